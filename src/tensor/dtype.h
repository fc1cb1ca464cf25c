// Tensor element types as GGUF files name them, and the block formats behind them.
// Pure tables; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvrm {

// Values are GGUF's tensor type numbers (public format), frozen.
enum class DType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
};

struct DTypeInfo {
  DType type;
  std::string_view name;  // "Q4_1"
  uint32_t block_values;  // values a block holds
  uint32_t block_bytes;
  bool readable;  // Dequantize() is built for it
};
// nullptr for a number that is no known type.
const DTypeInfo* FindDType(uint32_t gguf_type);
const DTypeInfo& GetDType(DType type);
std::string ReadableTypes();  // "F32 F16 ..", for messages

// Dequantises `count` values (a whole number of blocks) of `type` from `blocks` into `out`, exactly
// as the format defines them (bit-equal to PyPI gguf's dequantize). Requires: readable.
void Dequantize(DType type, const void* blocks, size_t count, float* out);

// IEEE half and bfloat16, bit exact, round to nearest even; no clamp.
float HalfToFloat(uint16_t h);
uint16_t FloatToHalf(float f);
float BFloat16ToFloat(uint16_t b);

}  // namespace kvrm
