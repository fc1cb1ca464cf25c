// Block formats to float32. Each value is computed in float32 in the order that the format's
// reference states, so results are bit-equal to it.
#include <cstring>

#include "base/check.h"
#include "tensor/dtype.h"

namespace kvrm {
namespace {

float LoadHalf(const uint8_t* bytes) {
  uint16_t h;
  std::memcpy(&h, bytes, sizeof h);
  return HalfToFloat(h);
}

// 32 values: fp16 d, 16 bytes; byte i holds value i low and value 16 + i high; d * (q - 8).
void BlockQ4_0(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  for (int i = 0; i < 16; ++i) {
    const int byte = block[2 + i];
    out[i] = d * static_cast<float>((byte & 15) - 8);
    out[16 + i] = d * static_cast<float>((byte >> 4) - 8);
  }
}

// 32 values: fp16 d, fp16 m, 16 bytes as Q4_0; d * q + m.
void BlockQ4_1(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  const float m = LoadHalf(block + 2);
  for (int i = 0; i < 16; ++i) {
    const int byte = block[4 + i];
    out[i] = d * static_cast<float>(byte & 15) + m;
    out[16 + i] = d * static_cast<float>(byte >> 4) + m;
  }
}

// 32 values: fp16 d, 32 int8; d * q.
void BlockQ8_0(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}

// 256 values: low nibbles [128], high 2-bit pairs [64], int8 scales [16] of 16 values, fp16 d;
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

template <class Block>
void ForEachBlock(const DTypeInfo& info, const uint8_t* bytes, size_t count, float* out,
                  Block block) {
  for (size_t done = 0; done < count; done += info.block_values, bytes += info.block_bytes) {
    block(bytes, out + done);
  }
}

}  // namespace

void Dequantize(DType type, const void* blocks, size_t count, float* out) {
  const DTypeInfo& info = GetDType(type);
  KVRM_CHECK(count % info.block_values == 0, "Dequantize takes whole blocks");
  const auto* bytes = static_cast<const uint8_t*>(blocks);
  switch (type) {
    case DType::kF32:
      if (count > 0) std::memcpy(out, bytes, count * sizeof(float));
      return;
    case DType::kF16:
      for (size_t i = 0; i < count; ++i) out[i] = LoadHalf(bytes + 2 * i);
      return;
    case DType::kBF16:
      for (size_t i = 0; i < count; ++i) {
        uint16_t b;
        std::memcpy(&b, bytes + 2 * i, sizeof b);
        out[i] = BFloat16ToFloat(b);
      }
      return;
    case DType::kQ4_0:
      return ForEachBlock(info, bytes, count, out, BlockQ4_0);
    case DType::kQ4_1:
      return ForEachBlock(info, bytes, count, out, BlockQ4_1);
    case DType::kQ8_0:
      return ForEachBlock(info, bytes, count, out, BlockQ8_0);
    case DType::kQ6_K:
      return ForEachBlock(info, bytes, count, out, BlockQ6_K);
    default:
      KVRM_CHECK(info.readable, "Dequantize is asked only for readable types");
  }
}

}  // namespace kvrm
