#include "transport/copy_engine.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/clock.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace kvrm {
namespace {

#if defined(__SSE2__)
constexpr uint64_t kVectorBytes = 16;
constexpr uint64_t kLineBytes = 64;

// Stores go past the caches, a whole line at a time. The caller fences.
void CopyNonTemporal(std::byte* to, const std::byte* from, uint64_t bytes) {
  const uint64_t head = -reinterpret_cast<uintptr_t>(to) % kLineBytes;
  std::memcpy(to, from, head);
  to += head;
  from += head;
  bytes -= head;
  for (; bytes >= kLineBytes; bytes -= kLineBytes, to += kLineBytes, from += kLineBytes) {
    for (uint64_t i = 0; i < kLineBytes; i += kVectorBytes) {
      const __m128i value = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), value);
    }
  }
  std::memcpy(to, from, bytes);
}
void Fence() { _mm_sfence(); }
#else
void CopyNonTemporal(std::byte* to, const std::byte* from, uint64_t bytes) {
  std::memcpy(to, from, bytes);
}
void Fence() {}
#endif

}  // namespace

void CpuCopyEngine::Bind(CopySpace space, std::byte* base, uint64_t bytes) {
  KVRM_CHECK(static_cast<uint32_t>(space.kind) < kKinds && space.kv_group < kMaxKvGroups,
             "a copy space that exists is bound");
  spaces_[static_cast<uint32_t>(space.kind)][space.kv_group] = {.base = base, .bytes = bytes};
}

std::byte* CpuCopyEngine::At(CopySpace space, uint64_t offset, uint64_t bytes) const {
  KVRM_CHECK(static_cast<uint32_t>(space.kind) < kKinds && space.kv_group < kMaxKvGroups,
             "a train names a space that exists");
  const Space& bound = spaces_[static_cast<uint32_t>(space.kind)][space.kv_group];
  KVRM_CHECK(bound.base != nullptr, "a space is bound before a train names it");
  KVRM_CHECK(bytes <= bound.bytes && offset <= bound.bytes - bytes,
             "a train stays within its spaces");
  return bound.base + offset;
}

void CpuCopyEngine::Run(std::span<const Train> trains) {
  bool streamed = false;
  for (const Train& train : trains) {
    const std::byte* from = At(train.source, train.source_offset, train.bytes);
    std::byte* to = At(train.destination, train.destination_offset, train.bytes);
    if (train.bytes > kNonTemporalBytes) {
      CopyNonTemporal(to, from, train.bytes);
      streamed = true;
    } else {
      std::memcpy(to, from, train.bytes);
    }
    KVRM_DCHECK(2, std::memcmp(to, from, train.bytes) == 0, "a train does not overlap itself");
  }
  // A train may read what an earlier one wrote (TRAIN-5): this core sees its own stores in order
  // without a fence; other threads need it.
  if (streamed) Fence();
}

uint64_t ChooseTau(std::span<const double> bytes_per_second) {
  const double plateau = *std::max_element(bytes_per_second.begin(), bytes_per_second.end());
  uint64_t size = TauCalibration::kSmallestBytes;
  for (const double rate : bytes_per_second) {
    if (rate >= TauCalibration::kShareOfPlateau * plateau) return size;
    size *= 2;
  }
  KVRM_CHECK(false, "the plateau is one of the rates");
}

namespace {

// Copies of `bytes` that fill one stretch of scratch at each end. An odd stride visits each place
// once and hardly ever two neighbours in turn: each copy starts cold, as scattered pieces do.
void ListScattered(uint64_t begin, uint64_t stretch_bytes, uint64_t bytes,
                   std::vector<Train>& trains) {
  trains.clear();
  const uint64_t count = stretch_bytes / bytes;
  const uint64_t stride = count / 2 + 1 - (count / 2) % 2;
  for (uint64_t k = 0; k < count; ++k) {
    trains.push_back({.source_offset = begin + k * stride % count * bytes,
                      .destination_offset = begin + (k * stride + count / 3) % count * bytes,
                      .bytes = bytes,
                      .source = {.kind = CopySpaceKind::kPool},
                      .destination = {.kind = CopySpaceKind::kWindow},
                      .pieces = 1});
  }
}

}  // namespace

TauCalibration CalibrateTau() {
  constexpr uint64_t kStretchBytes = 8u << 20;
  constexpr uint64_t kStretches =
      6;                      // one after the other, so that caches hold none when it recurs
  constexpr int kRounds = 4;  // the best counts: others share the machine
  std::vector<std::byte> from(kStretches * kStretchBytes, std::byte{1});
  std::vector<std::byte> to(from.size(), std::byte{2});
  CpuCopyEngine engine;
  engine.Bind({.kind = CopySpaceKind::kPool}, from.data(), from.size());
  engine.Bind({.kind = CopySpaceKind::kWindow}, to.data(), to.size());
  SystemClock clock;

  TauCalibration result;
  std::vector<Train> trains;
  uint64_t stretch = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (uint32_t i = 0; i < TauCalibration::kSizes; ++i) {
      ListScattered(stretch * kStretchBytes, kStretchBytes, TauCalibration::kSmallestBytes << i,
                    trains);
      stretch = (stretch + 1) % kStretches;
      const int64_t begin_us = clock.NowUs();
      engine.Run(trains);
      const int64_t took_us = std::max<int64_t>(1, clock.NowUs() - begin_us);
      result.bytes_per_second[i] =
          std::max(result.bytes_per_second[i],
                   static_cast<double>(kStretchBytes) * 1e6 / static_cast<double>(took_us));
    }
  }
  result.tau_bytes = ChooseTau(result.bytes_per_second);
  return result;
}

}  // namespace kvrm
