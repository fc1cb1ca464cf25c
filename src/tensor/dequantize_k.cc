// The K types: blocks of 256 values in groups of 16 or 32 with integer scales, which one or two
// fp16 numbers of the block scale again.
#include "tensor/blocks.h"

namespace kvrm {
namespace {

constexpr int kBlock = 256;

// Q4_K and Q5_K: eight 6-bit scales and eight 6-bit minima in twelve bytes. Groups 0..3 have theirs
// in the low six bits of bytes 0..3 and 4..7; groups 4..7 the low four bits in bytes 8..11, scale
// low and minimum high, and the upper two in the top of the bytes of the group four before.
struct ScaleAndMinimum {
  int scale, minimum;
};
ScaleAndMinimum SixBits(const uint8_t* packed, int group) {
  if (group < 4) return {packed[group] & 63, packed[group + 4] & 63};
  return {(packed[group + 4] & 15) | (packed[group - 4] >> 6) << 4,
          packed[group + 4] >> 4 | (packed[group] >> 6) << 4};
}

// Q3_K: sixteen 6-bit scales in twelve bytes, less 32. Low four bits in bytes 0..7, scales 0..7 low
// and 8..15 high; the upper two of scale i in bits 2 * (i / 4) of byte 8 + i % 4.
int SixBitScale(const uint8_t* packed, int i) {
  const int low = i < 8 ? packed[i] & 15 : packed[i - 8] >> 4;
  return (low | (packed[8 + i % 4] >> (2 * (i / 4)) & 3) << 4) - 32;
}

// Where K types of two bits per value keep value i: byte and shift within 64 bytes.
int TwoBits(const uint8_t* packed, int i) {
  return packed[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32)) & 3;
}

// The nibble of value i within 128 bytes: runs of 64 values, the first 32 low, then 32 high.
int Nibble(const uint8_t* packed, int i) {
  return packed[32 * (i / 64) + i % 32] >> (i % 64 < 32 ? 0 : 4) & 15;
}

}  // namespace

// Scales and minima of 16 values [16 bytes, scale low, minimum high], codes [64], fp16 d, fp16 m:
// (d * scale) * q - m * minimum.
void BlockQ2_K(const uint8_t* block, float* out) {
  const float d = LoadHalf(block + 80);
  const float m = LoadHalf(block + 82);
  for (int i = 0; i < kBlock; ++i) {
    const int scale = block[i / 16];
    out[i] = d * static_cast<float>(scale & 15) * static_cast<float>(TwoBits(block + 16, i)) -
             m * static_cast<float>(scale >> 4);
  }
}

// High bits [32], two low bits [64], scales of 16 values [12], fp16 d: (d * scale) * (q - 4), the
// high bit of value i in bit i / 32 of byte i % 32.
void BlockQ3_K(const uint8_t* block, float* out) {
  const float d = LoadHalf(block + 108);
  for (int i = 0; i < kBlock; ++i) {
    const int high = block[i % 32] >> (i / 32) & 1;
    const int code = (TwoBits(block + 32, i) | high << 2) - 4;
    out[i] = d * static_cast<float>(SixBitScale(block + 96, i / 16)) * static_cast<float>(code);
  }
}

// fp16 d, fp16 m, scales and minima of 32 values [12], nibbles [128]:
// (d * scale) * q - m * minimum.
void BlockQ4_K(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  const float m = LoadHalf(block + 2);
  for (int i = 0; i < kBlock; ++i) {
    const auto [scale, minimum] = SixBits(block + 4, i / 32);
    out[i] = d * static_cast<float>(scale) * static_cast<float>(Nibble(block + 16, i)) -
             m * static_cast<float>(minimum);
  }
}

// As Q4_K, with the fifth bit of value i in bit i / 32 of byte i % 32 of [32] before the nibbles.
void BlockQ5_K(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  const float m = LoadHalf(block + 2);
  for (int i = 0; i < kBlock; ++i) {
    const auto [scale, minimum] = SixBits(block + 4, i / 32);
    const int code = Nibble(block + 48, i) | (block[16 + i % 32] >> (i / 32) & 1) << 4;
    out[i] =
        d * static_cast<float>(scale) * static_cast<float>(code) - m * static_cast<float>(minimum);
  }
}

// Low nibbles [128], high 2-bit pairs [64], int8 scales [16] of 16 values, fp16 d;
// (d * scale) * (q - 32). Each half of 128 values takes 64 low bytes and 32 high bytes: the value
// at 32 * quarter + i has its low bits in byte i (even quarters) or 32 + i (odd ones) of the half,
// low nibble for quarters 0 and 1, and bits 2 * quarter of high byte i.
void BlockQ6_K(const uint8_t* block, float* out) {
  const float d = LoadHalf(block + 208);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = block + 64 * half;
    const uint8_t* high = block + 128 + 32 * half;
    const uint8_t* scales = block + 192 + 8 * half;
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int i = 0; i < 32; ++i) {
        const int low_bits = low[32 * (quarter & 1) + i] >> (quarter < 2 ? 0 : 4) & 15;
        const int high_bits = high[i] >> (2 * quarter) & 3;
        const int scale = static_cast<int8_t>(scales[2 * quarter + i / 16]);
        const float step = d * static_cast<float>(scale);
        out[128 * half + 32 * quarter + i] =
            step * static_cast<float>((low_bits | high_bits << 4) - 32);
      }
    }
  }
}

}  // namespace kvrm
