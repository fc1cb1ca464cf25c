#include "tensor/dtype.h"

#include <bit>

#include "base/check.h"

namespace kvrm {
namespace {

constexpr DTypeInfo kTable[] = {
    // type, name, block_values, block_bytes, readable
    {DType::kF32, "F32", 1, 4, true},
    {DType::kF16, "F16", 1, 2, true},
    {DType::kBF16, "BF16", 1, 2, true},
    {DType::kQ8_0, "Q8_0", 32, 34, true},
    {DType::kQ4_0, "Q4_0", 32, 18, true},
    {DType::kQ4_1, "Q4_1", 32, 20, true},
    {DType::kQ5_0, "Q5_0", 32, 22, true},
    {DType::kQ5_1, "Q5_1", 32, 24, true},
    {DType::kQ2_K, "Q2_K", 256, 84, true},
    {DType::kQ3_K, "Q3_K", 256, 110, true},
    {DType::kQ4_K, "Q4_K", 256, 144, true},
    {DType::kQ5_K, "Q5_K", 256, 176, true},
    {DType::kQ6_K, "Q6_K", 256, 210, true},
    {DType::kIQ4_NL, "IQ4_NL", 32, 18, true},
    {DType::kIQ2_XXS, "IQ2_XXS", 256, 66, false},
    {DType::kIQ2_XS, "IQ2_XS", 256, 74, false},
    {DType::kIQ3_XXS, "IQ3_XXS", 256, 98, false},
    {DType::kIQ1_S, "IQ1_S", 256, 50, false},
    {DType::kIQ3_S, "IQ3_S", 256, 110, false},
    {DType::kIQ2_S, "IQ2_S", 256, 82, false},
    {DType::kIQ4_XS, "IQ4_XS", 256, 136, false},
    {DType::kIQ1_M, "IQ1_M", 256, 56, false},
    {DType::kTQ1_0, "TQ1_0", 256, 54, false},
    {DType::kTQ2_0, "TQ2_0", 256, 66, false},
    {DType::kMXFP4, "MXFP4", 32, 17, false},
};

}  // namespace

const DTypeInfo* FindDType(uint32_t gguf_type) {
  for (const DTypeInfo& info : kTable) {
    if (static_cast<uint32_t>(info.type) == gguf_type) return &info;
  }
  return nullptr;
}

const DTypeInfo& GetDType(DType type) {
  const DTypeInfo* info = FindDType(static_cast<uint32_t>(type));
  KVRM_CHECK(info != nullptr, "every DType stands in the type table");
  return *info;
}

std::string ReadableTypes() {
  std::string names;
  for (const DTypeInfo& info : kTable) {
    if (info.readable) names += (names.empty() ? "" : " ") + std::string(info.name);
  }
  return names;
}

float HalfToFloat(uint16_t h) {
  const uint32_t sign = uint32_t{h & 0x8000u} << 16;
  const uint32_t exponent = (h >> 10) & 0x1Fu;
  const uint32_t mantissa = h & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F80'0000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  // Zero and subnormals: mantissa * 2^-24, exact in a float.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

uint16_t FloatToHalf(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFF'FFFFu;
  if (magnitude > 0x7F80'0000u) {  // NaN: quiet, with the upper payload bits
    return static_cast<uint16_t>(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu));
  }
  if (magnitude >= 0x4780'0000u) return static_cast<uint16_t>(sign | 0x7C00u);  // >= 65536
  if (magnitude < 0x3880'0000u) {  // below 2^-14: a subnormal half, or zero
    // Adding 0.5 leaves a float whose last bit is worth 2^-24, so the addition itself rounds to
    // nearest even at a half's last subnormal bit.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F00'0000u));
  }
  // Rebias the exponent by -112 and round the 13 dropped bits to nearest even; a carry out of the
  // mantissa raises the exponent, up to infinity, as it should.
  const uint32_t odd = magnitude >> 13 & 1u;
  const uint32_t rounded = magnitude - (112u << 23) + 0xFFFu + odd;
  return static_cast<uint16_t>(sign | rounded >> 13);
}

float BFloat16ToFloat(uint16_t b) { return std::bit_cast<float>(uint32_t{b} << 16); }

}  // namespace kvrm
