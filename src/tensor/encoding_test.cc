#include "tensor/encoding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace kvrm {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Random blocks of `type` with scales that stay finite.
std::vector<uint8_t> RandomRows(DType type, uint32_t n, uint32_t k, uint32_t seed) {
  const DTypeInfo& info = GetDType(type);
  std::mt19937 rng(seed);
  std::vector<uint8_t> bytes(size_t{n} * k / info.block_values * info.block_bytes);
  for (auto& b : bytes) b = static_cast<uint8_t>(rng());
  std::uniform_real_distribution<float> value(-2, 2);
  const auto put_half = [&](size_t at) {
    const uint16_t half = FloatToHalf(value(rng));
    std::memcpy(bytes.data() + at, &half, sizeof half);
  };
  for (size_t at = 0; at < bytes.size(); at += info.block_bytes) {
    switch (type) {
      case DType::kF32: {
        const float f = value(rng);
        std::memcpy(bytes.data() + at, &f, sizeof f);
        break;
      }
      case DType::kBF16:
        bytes[at + 1] = static_cast<uint8_t>((bytes[at + 1] & 0x80) | 0x3E);
        break;
      case DType::kQ6_K:
        put_half(at + 208);
        break;
      case DType::kQ4_1:
        put_half(at + 2);
        [[fallthrough]];
      default:
        put_half(at);
    }
  }
  return bytes;
}

std::vector<float> Dequantized(DType type, const std::vector<uint8_t>& rows, size_t count) {
  std::vector<float> values(count);
  Dequantize(type, rows.data(), count, values.data());
  return values;
}

struct Encoded {
  std::vector<std::byte> bytes;
  Status status = Ok();
};
Encoded Encode(Encoding encoding, DType type, const void* rows, uint32_t n, uint32_t k) {
  Encoded result;
  result.bytes.assign(EncodedBytes(encoding, n, k), std::byte{0xEE});
  result.status = EncodeRows(encoding, type, rows, n, k, 0, result.bytes.data());
  return result;
}

int CodeAt(const Encoded& e, size_t offset) { return std::to_integer<int>(e.bytes[offset]); }
float HalfAt(const Encoded& e, size_t offset) {
  uint16_t half;
  std::memcpy(&half, e.bytes.data() + offset, sizeof half);
  return HalfToFloat(half);
}

struct ExactCase {
  Encoding encoding;
  DType type;
};
class ExactEncoding : public ::testing::TestWithParam<ExactCase> {};

TEST_P(ExactEncoding, EveryValueEqualsTheFiles) {
  const auto [encoding, type] = GetParam();
  constexpr uint32_t kN = 37, kK = 96;  // n on purpose not a whole number of panels
  const auto rows = RandomRows(type, kN, kK, 7);
  const auto expected = Dequantized(type, rows, size_t{kN} * kK);
  const Encoded e = Encode(encoding, type, rows.data(), kN, kK);
  ASSERT_TRUE(e.status.ok());
  for (uint32_t o = 0; o < 48; ++o) {
    for (uint32_t i = 0; i < kK; ++i) {
      const float want = o < kN ? expected[size_t{o} * kK + i] : 0.0f;
      ASSERT_EQ(EncodedValue(encoding, e.bytes.data(), kK, o, i), want) << o << ", " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(FileTypes, ExactEncoding,
                         ::testing::Values(ExactCase{Encoding::kQ4, DType::kQ4_0},
                                           ExactCase{Encoding::kQ4, DType::kQ4_1},
                                           ExactCase{Encoding::kQ8, DType::kQ8_0},
                                           ExactCase{Encoding::kQ8, DType::kQ5_0},
                                           ExactCase{Encoding::kQ8, DType::kIQ4_NL},
                                           ExactCase{Encoding::kF32, DType::kF32},
                                           ExactCase{Encoding::kF32, DType::kF16},
                                           ExactCase{Encoding::kF32, DType::kBF16},
                                           ExactCase{Encoding::kF32, DType::kQ4_1},
                                           ExactCase{Encoding::kF32, DType::kQ8_0}));

TEST(Encoding, Q4BytesLieAsTheHeaderSays) {
  constexpr uint32_t kK = 64;
  // Q4_1 rows whose code of (output o, input k) is (o + 3 k) % 16, d = o + 1, m = -o - group.
  std::vector<uint8_t> rows;
  for (uint32_t o = 0; o < 16; ++o) {
    for (uint32_t g = 0; g < kK / 32; ++g) {
      const uint16_t halves[2] = {FloatToHalf(static_cast<float>(o + 1)),
                                  FloatToHalf(-static_cast<float>(o + g))};
      const auto* h = reinterpret_cast<const uint8_t*>(halves);
      rows.insert(rows.end(), h, h + 4);
      for (uint32_t i = 0; i < 16; ++i) {
        const uint32_t low = (o + 3 * (32 * g + i)) % 16, high = (o + 3 * (32 * g + 16 + i)) % 16;
        rows.push_back(static_cast<uint8_t>(low | high << 4));
      }
    }
  }
  const Encoded e = Encode(Encoding::kQ4, DType::kQ4_1, rows.data(), 16, kK);
  ASSERT_TRUE(e.status.ok());
  ASSERT_EQ(e.bytes.size(), 2u * 320);
  for (uint32_t g = 0; g < 2; ++g) {
    for (uint32_t o = 0; o < 16; ++o) {
      for (uint32_t j = 0; j < 4; ++j) {
        for (uint32_t i = 0; i < 4; ++i) {
          const uint32_t low = 32 * g + 8 * j + i, high = low + 4;
          const int want = static_cast<int>((o + 3 * low) % 16 | ((o + 3 * high) % 16) << 4);
          ASSERT_EQ(CodeAt(e, 320 * g + 64 * j + 4 * o + i), want);
        }
      }
      EXPECT_EQ(HalfAt(e, 320 * g + 256 + 2 * o), static_cast<float>(o + 1));
      EXPECT_EQ(HalfAt(e, 320 * g + 288 + 2 * o), -static_cast<float>(o + g));
    }
  }
}

TEST(Encoding, Q8BytesLieAsTheHeaderSays) {
  constexpr uint32_t kK = 96;
  std::vector<uint8_t> rows;
  for (uint32_t o = 0; o < 16; ++o) {
    for (uint32_t g = 0; g < kK / 32; ++g) {
      const uint16_t d = FloatToHalf(static_cast<float>(16 * g + o + 1));
      rows.push_back(static_cast<uint8_t>(d & 0xFF));
      rows.push_back(static_cast<uint8_t>(d >> 8));
      for (uint32_t i = 0; i < 32; ++i) rows.push_back(static_cast<uint8_t>(7 * o + 32 * g + i));
    }
  }
  const Encoded e = Encode(Encoding::kQ8, DType::kQ8_0, rows.data(), 16, kK);
  ASSERT_TRUE(e.status.ok());
  ASSERT_EQ(e.bytes.size(), 3u * 512 + 128);  // 96 bytes of scales, padded to 128
  for (uint32_t o = 0; o < 16; ++o) {
    for (uint32_t k = 0; k < kK; ++k) {
      const int file_code = static_cast<int8_t>(static_cast<uint8_t>(7 * o + k));
      const size_t at = k / 32 * 512 + k % 32 / 4 * 64 + 4 * o + k % 4;
      ASSERT_EQ(CodeAt(e, at), file_code + 128) << o << ", " << k;
    }
    for (uint32_t g = 0; g < 3; ++g) {
      EXPECT_EQ(HalfAt(e, 3 * 512 + 32 * g + 2 * o), static_cast<float>(16 * g + o + 1));
    }
  }
}

TEST(Encoding, SizesAreWholeAlignedPanels) {
  EXPECT_EQ(PanelBytes(Encoding::kF32, 10), 640u);
  EXPECT_EQ(PanelBytes(Encoding::kQ4, 576), 18u * 320);
  EXPECT_EQ(PanelBytes(Encoding::kQ8, 576), 18u * 512 + 576);
  EXPECT_EQ(PanelBytes(Encoding::kQ8, 32), 512u + 64);
  EXPECT_EQ(EncodedBytes(Encoding::kQ4, 17, 32), 2u * 320);
  EXPECT_EQ(EncodedBytes(Encoding::kF32, 0xFFFF'FFFF, 0xFFFF'FFE0),
            (uint64_t{1} << 28) * 0xFFFF'FFE0ull * 64);
}

TEST(Encoding, Q8OfFloatsFollowsItsRoundingRule) {
  for (DType type : {DType::kF32, DType::kBF16, DType::kQ4_1, DType::kQ6_K}) {
    constexpr uint32_t kN = 16, kK = 256;
    const auto rows = RandomRows(type, kN, kK, 11);
    const auto values = Dequantized(type, rows, size_t{kN} * kK);
    const Encoded e = Encode(Encoding::kQ8, type, rows.data(), kN, kK);
    ASSERT_TRUE(e.status.ok());
    for (uint32_t o = 0; o < kN; ++o) {
      for (uint32_t g = 0; g < kK / 32; ++g) {
        const float* group = values.data() + size_t{o} * kK + 32 * g;
        float amax = 0;
        for (uint32_t i = 0; i < 32; ++i) amax = std::fmax(amax, std::fabs(group[i]));
        const float d = HalfToFloat(FloatToHalf(amax / 127.0f));
        for (uint32_t i = 0; i < 32; ++i) {
          const float got = EncodedValue(Encoding::kQ8, e.bytes.data(), kK, o, 32 * g + i);
          ASSERT_EQ(got, d * std::rint(group[i] / d));
        }
      }
    }
  }
}

TEST(Encoding, Q4OfFloatsIsWithinHalfAStepAndTheScalesRounding) {
  constexpr uint32_t kN = 16, kK = 64;
  const auto rows = RandomRows(DType::kF32, kN, kK, 5);
  const auto values = Dequantized(DType::kF32, rows, size_t{kN} * kK);
  const Encoded e = Encode(Encoding::kQ4, DType::kF32, rows.data(), kN, kK);
  ASSERT_TRUE(e.status.ok());
  for (uint32_t o = 0; o < kN; ++o) {
    for (uint32_t i = 0; i < kK; ++i) {
      const float got = EncodedValue(Encoding::kQ4, e.bytes.data(), kK, o, i);
      EXPECT_NEAR(got, values[size_t{o} * kK + i], 4.0f / 15 / 2 + 4 * 0x1p-10f);
    }
  }
}

TEST(Encoding, ConstantAndTinyGroupsStayFinite) {
  std::vector<float> row(96, 0.0f);
  for (int i = 32; i < 64; ++i) row[i] = 0.25f;                // constant
  for (int i = 64; i < 96; ++i) row[i] = 1e-7f * (i % 3 - 1);  // scale below fp16's last subnormal
  for (Encoding encoding : {Encoding::kQ4, Encoding::kQ8}) {
    const Encoded e = Encode(encoding, DType::kF32, row.data(), 1, 96);
    ASSERT_TRUE(e.status.ok());
    for (uint32_t i = 0; i < 96; ++i) {
      const float got = EncodedValue(encoding, e.bytes.data(), 96, 0, i);
      EXPECT_NEAR(got, row[i], 1e-3) << EncodingName(encoding) << " " << i;
    }
  }
}

TEST(Encoding, MinusOneTwentyEightOfQ8IsHeld) {
  std::vector<uint8_t> row(34, 0x80);
  const uint16_t d = FloatToHalf(0.5f);
  std::memcpy(row.data(), &d, 2);
  const Encoded e = Encode(Encoding::kQ8, DType::kQ8_0, row.data(), 1, 32);
  ASSERT_TRUE(e.status.ok());
  EXPECT_EQ(EncodedValue(Encoding::kQ8, e.bytes.data(), 32, 0, 0), -64.0f);
}

TEST(Encoding, NaNStaysInItsGroup) {
  for (Encoding encoding : {Encoding::kQ4, Encoding::kQ8, Encoding::kF32}) {
    std::vector<float> row(64, 0.5f);
    row[3] = kNaN;
    const Encoded e = Encode(encoding, DType::kF32, row.data(), 1, 64);
    ASSERT_TRUE(e.status.ok());
    EXPECT_TRUE(std::isnan(EncodedValue(encoding, e.bytes.data(), 64, 0, 3)));
    for (uint32_t i = 32; i < 64; ++i) {
      EXPECT_NEAR(EncodedValue(encoding, e.bytes.data(), 64, 0, i), 0.5f, 1e-3);
    }
  }
}

TEST(Encoding, ScalesAboveFp16AreRefusedWithTheLimit) {
  std::vector<uint8_t> block(18, 0);
  uint16_t d = FloatToHalf(8188.0f);  // -8 d = -65504 just fits
  std::memcpy(block.data(), &d, 2);
  EXPECT_TRUE(Encode(Encoding::kQ4, DType::kQ4_0, block.data(), 1, 32).status.ok());
  d = FloatToHalf(-8192.0f);
  std::memcpy(block.data(), &d, 2);
  const Encoded q4 = Encode(Encoding::kQ4, DType::kQ4_0, block.data(), 1, 32);
  ASSERT_FALSE(q4.status.ok());
  EXPECT_NE(q4.status.error().message.find("65504"), std::string::npos);
  std::vector<float> row(32, 9e6f);
  EXPECT_FALSE(Encode(Encoding::kQ8, DType::kF32, row.data(), 1, 32).status.ok());
  EXPECT_FALSE(Encode(Encoding::kQ4, DType::kF32, row.data(), 1, 32).status.ok());
  EXPECT_TRUE(Encode(Encoding::kF32, DType::kF32, row.data(), 1, 32).status.ok());
}

TEST(Encoding, RowLengthsThatDoNotFitAreRefused) {
  const std::vector<float> row(256, 1.0f);
  EXPECT_FALSE(Encode(Encoding::kQ8, DType::kF32, row.data(), 1, 48).status.ok());
  EXPECT_FALSE(Encode(Encoding::kQ4, DType::kF16, row.data(), 1, 31).status.ok());
  EXPECT_TRUE(Encode(Encoding::kF32, DType::kF32, row.data(), 1, 31).status.ok());
  EXPECT_FALSE(Encode(Encoding::kF32, DType::kQ8_0, row.data(), 1, 31).status.ok());
  EXPECT_FALSE(Encode(Encoding::kQ8, DType::kQ6_K, row.data(), 1, 32).status.ok());
}

TEST(Encoding, PartsEncodedApartEqualTheWhole) {
  constexpr uint32_t kN = 64, kK = 64;
  const auto rows = RandomRows(DType::kQ8_0, kN, kK, 3);
  const Encoded whole = Encode(Encoding::kQ8, DType::kQ8_0, rows.data(), kN, kK);
  std::vector<std::byte> parts(whole.bytes.size());
  for (uint32_t first : {48u, 0u, 32u, 16u}) {
    const uint8_t* part = rows.data() + size_t{first} * kK / 32 * 34;
    ASSERT_TRUE(EncodeRows(Encoding::kQ8, DType::kQ8_0, part, 16, kK, first, parts.data()).ok());
  }
  EXPECT_EQ(parts, whole.bytes);
}

TEST(Encoding, NearestKeepsFourBitFilesExact) {
  EXPECT_EQ(NearestEncoding(DType::kQ4_0), Encoding::kQ4);
  EXPECT_EQ(NearestEncoding(DType::kQ4_1), Encoding::kQ4);
  for (DType type : {DType::kQ8_0, DType::kF32, DType::kF16, DType::kBF16, DType::kQ6_K}) {
    EXPECT_EQ(NearestEncoding(type), Encoding::kQ8);
  }
}

}  // namespace
}  // namespace kvrm
