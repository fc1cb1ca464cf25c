#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "base/test_data.h"

namespace kvrm {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(DType, EveryTypeIsFoundByItsNumberAndOthersAreNot) {
  EXPECT_EQ(FindDType(3)->name, "Q4_1");
  EXPECT_EQ(FindDType(14)->block_bytes, 210u);
  EXPECT_EQ(&GetDType(DType::kBF16), FindDType(30));
  for (uint32_t unknown : {4u, 5u, 9u, 99u, 0xFFFF'FFFFu}) {
    EXPECT_EQ(FindDType(unknown), nullptr) << unknown;
  }
}

TEST(DType, EveryHalfSurvivesTheWayToFloatAndBack) {
  for (uint32_t h = 0; h < 65'536; ++h) {
    const float f = HalfToFloat(static_cast<uint16_t>(h));
    if (std::isnan(f)) {
      EXPECT_EQ(FloatToHalf(f), h | 0x0200u) << h;  // quieted, payload and sign kept
    } else {
      EXPECT_EQ(FloatToHalf(f), h) << h;
    }
  }
}

TEST(DType, HalvesHaveTheirIeeeValues) {
  EXPECT_EQ(HalfToFloat(0x3C00), 1.0f);
  EXPECT_EQ(HalfToFloat(0xC000), -2.0f);
  EXPECT_EQ(HalfToFloat(0x7BFF), 65504.0f);
  EXPECT_EQ(HalfToFloat(0x0400), 0x1p-14f);
  EXPECT_EQ(HalfToFloat(0x03FF), 1023 * 0x1p-24f);
  EXPECT_EQ(HalfToFloat(0x8001), -0x1p-24f);
  EXPECT_TRUE(std::signbit(HalfToFloat(0x8000)));
  EXPECT_EQ(HalfToFloat(0x7C00), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(HalfToFloat(0x7C01)));
}

// Between each two neighbouring halves: the midpoint goes to the even one, its float neighbours to
// the nearer one.
TEST(DType, FloatsRoundToTheNearestHalfAndTiesToEven) {
  for (uint16_t low = 0; low < 0x7BFF; ++low) {
    const auto high = static_cast<uint16_t>(low + 1);
    const float middle = (HalfToFloat(low) + HalfToFloat(high)) / 2;  // exact in a float
    ASSERT_EQ(FloatToHalf(middle), low % 2 == 0 ? low : high) << low;
    ASSERT_EQ(FloatToHalf(std::nextafterf(middle, 0)), low) << low;
    ASSERT_EQ(FloatToHalf(std::nextafterf(middle, 1e9f)), high) << low;
    ASSERT_EQ(FloatToHalf(-middle), (low % 2 == 0 ? low : high) | 0x8000) << low;
  }
}

TEST(DType, FloatsPastTheLastHalfBecomeInfinity) {
  EXPECT_EQ(FloatToHalf(65519.99f), 0x7BFF);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7C00);  // a tie, and 65536 is the even one
  EXPECT_EQ(FloatToHalf(1e30f), 0x7C00);
  EXPECT_EQ(FloatToHalf(-std::numeric_limits<float>::infinity()), 0xFC00);
  EXPECT_EQ(FloatToHalf(0x1p-25f), 0);  // half of the smallest subnormal: even is zero
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(DType, BFloat16IsTheUpperHalfOfAFloat) {
  for (uint32_t b = 0; b < 65'536; ++b) {
    EXPECT_EQ(std::bit_cast<uint32_t>(BFloat16ToFloat(static_cast<uint16_t>(b))), b << 16);
  }
}

TEST(DType, DequantizeIsBitEqualToTheFormatsReference) {
  const std::string file = ReadAll(testing::ProjectDataDir() + "/tensor/dequant_vectors.bin");
  std::set<uint32_t> seen;
  for (size_t at = 0; at < file.size();) {
    uint32_t head[3];  // type, values, block bytes
    ASSERT_LE(at + sizeof head, file.size());
    std::memcpy(head, file.data() + at, sizeof head);
    at += sizeof head;
    const DTypeInfo* info = FindDType(head[0]);
    ASSERT_NE(info, nullptr) << head[0];
    ASSERT_EQ(head[1] / info->block_values * info->block_bytes, head[2]) << info->name;
    ASSERT_LE(at + head[2] + head[1] * sizeof(float), file.size());
    std::vector<float> values(head[1]);
    Dequantize(info->type, file.data() + at, head[1], values.data());
    at += head[2];
    std::vector<float> expected(head[1]);
    std::memcpy(expected.data(), file.data() + at, head[1] * sizeof(float));
    at += head[1] * sizeof(float);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(expected[i]))
          << info->name << " value " << i << ": " << values[i] << " against " << expected[i];
    }
    seen.insert(head[0]);
  }
  std::set<uint32_t> readable;
  for (uint32_t type = 0; type < 64; ++type) {
    const DTypeInfo* info = FindDType(type);
    if (info != nullptr && info->readable) readable.insert(type);
  }
  EXPECT_EQ(seen, readable);
  EXPECT_EQ(readable.size(), 14u);
}

}  // namespace
}  // namespace kvrm
