#include "transport/copy_engine.h"

#include <array>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace kvrm {
namespace {

constexpr CopySpace kPool{.kind = CopySpaceKind::kPool};
constexpr CopySpace kWindow{.kind = CopySpaceKind::kWindow, .kv_group = 3};

std::vector<std::byte> RandomBytes(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

Train MakeTrain(uint64_t source, uint64_t destination, uint64_t bytes) {
  return {.source_offset = source,
          .destination_offset = destination,
          .bytes = bytes,
          .source = kPool,
          .destination = kWindow,
          .pieces = 1};
}

// Every size class and every alignment of both ends, around the size where stores change.
TEST(CpuCopyEngine, CopiesTheBytesOfATrainAndNoOthers) {
  constexpr uint64_t kLimit = CpuCopyEngine::kNonTemporalBytes;
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{15}, kLimit, kLimit + 1, kLimit + 63,
                               kLimit + 64, kLimit + 65, 3 * kLimit + 17}) {
    for (const uint64_t source : {0, 1, 16, 63, 100}) {
      for (const uint64_t destination : {0, 1, 8, 17, 63, 64}) {
        auto pool = RandomBytes(4 * kLimit, bytes);
        auto window = RandomBytes(4 * kLimit, source);
        auto expected = window;
        std::copy_n(pool.begin() + static_cast<ptrdiff_t>(source), bytes,
                    expected.begin() + static_cast<ptrdiff_t>(destination));
        CpuCopyEngine engine;
        engine.Bind(kPool, pool.data(), pool.size());
        engine.Bind(kWindow, window.data(), window.size());
        const Train train = MakeTrain(source, destination, bytes);
        engine.Run({&train, 1});
        ASSERT_EQ(window, expected) << bytes << " from " << source << " to " << destination;
      }
    }
  }
}

TEST(CpuCopyEngine, TrainsAreCarriedOutInOrder) {
  auto pool = RandomBytes(64 * 1024, 1);
  const auto first = std::vector(pool.begin(), pool.begin() + 8192);
  CpuCopyEngine engine;
  engine.Bind(kPool, pool.data(), pool.size());
  std::vector<Train> trains;
  for (uint64_t i = 0; i < 7; ++i) {
    trains.push_back(MakeTrain(i * 8192, (i + 1) * 8192, 8192));
    trains.back().destination = kPool;
  }
  engine.Run(trains);
  EXPECT_EQ(std::vector(pool.end() - 8192, pool.end()), first);
}

TEST(CpuCopyEngineDeathTest, ATrainOutsideItsSpaceIsABug) {
  std::array<std::byte, 64> pool{}, window{};
  CpuCopyEngine engine;
  engine.Bind(kPool, pool.data(), pool.size());
  const Train unbound = MakeTrain(0, 0, 1);
  EXPECT_DEATH(engine.Run({&unbound, 1}), "bound before");
  engine.Bind(kWindow, window.data(), window.size());
  for (const Train& train : {MakeTrain(60, 0, 5), MakeTrain(0, 60, 5), MakeTrain(0, 0, 65),
                             MakeTrain(UINT64_MAX, 0, 2), MakeTrain(0, 2, UINT64_MAX)}) {
    EXPECT_DEATH(engine.Run({&train, 1}), "within its spaces");
  }
  const Train fits = MakeTrain(60, 0, 4);
  engine.Run({&fits, 1});
}

TEST(ChooseTau, IsTheSmallestSizeAtNineTenthsOfTheFastest) {
  EXPECT_EQ(ChooseTau(std::array{1.0, 5.0, 8.9, 9.0, 10.0, 9.9, 10.0}), 128u * 1024);
  EXPECT_EQ(ChooseTau(std::array{10.0, 5.0, 8.9, 9.0, 10.0, 9.9, 10.0}), 16u * 1024);
  EXPECT_EQ(ChooseTau(std::array{1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0}), 1024u * 1024);
}

TEST(CalibrateTau, MeasuresEverySizeAndChoosesAmongThem) {
  const TauCalibration result = CalibrateTau();
  for (const double rate : result.bytes_per_second) EXPECT_GT(rate, 0);
  EXPECT_EQ(result.tau_bytes, ChooseTau(result.bytes_per_second));
  EXPECT_GE(result.tau_bytes, TauCalibration::kSmallestBytes);
  EXPECT_LE(result.tau_bytes, TauCalibration::kSmallestBytes << (TauCalibration::kSizes - 1));
}

}  // namespace
}  // namespace kvrm
