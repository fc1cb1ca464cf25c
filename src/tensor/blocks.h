// The blocks of quantised GGUF types, one function each: `block` to values in float32, each
// computed in the order that the format's reference states. Little endian; pure; thread-safe.
#pragma once

#include <cstdint>
#include <cstring>

#include "tensor/dtype.h"

namespace kvrm {

inline float LoadHalf(const uint8_t* bytes) {
  uint16_t h;
  std::memcpy(&h, bytes, sizeof h);
  return HalfToFloat(h);
}

// The values of IQ4_NL's sixteen codes.
inline constexpr int8_t kIq4NlValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                            1,    13,   25,  38,  53,  69,  89,  113};

// 32 values.
void BlockQ4_0(const uint8_t* block, float* out);
void BlockQ4_1(const uint8_t* block, float* out);
void BlockQ5_0(const uint8_t* block, float* out);
void BlockQ5_1(const uint8_t* block, float* out);
void BlockQ8_0(const uint8_t* block, float* out);
void BlockIQ4_NL(const uint8_t* block, float* out);
// The 5-bit code of value i, 0..31, of a block whose high bits are the four bytes `high` and whose
// low nibbles are `low`: byte i holds value i low and value 16 + i high.
inline int Code5(const uint8_t* high, const uint8_t* low, int i) {
  const int nibble = i < 16 ? low[i] & 15 : low[i - 16] >> 4;
  return nibble | (high[i / 8] >> (i % 8) & 1) << 4;
}

// 256 values (dequantize_k.cc).
void BlockQ2_K(const uint8_t* block, float* out);
void BlockQ3_K(const uint8_t* block, float* out);
void BlockQ4_K(const uint8_t* block, float* out);
void BlockQ5_K(const uint8_t* block, float* out);
void BlockQ6_K(const uint8_t* block, float* out);

}  // namespace kvrm
