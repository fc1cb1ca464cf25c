// Block formats to float32. Each value is computed in float32 in the order that the format's
// reference states, so results are bit-equal to it.
#include <cstring>

#include "base/check.h"
#include "tensor/blocks.h"
#include "tensor/dtype.h"

namespace kvrm {

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

// 32 values: fp16 d, high bits [4 bytes], 16 bytes of low nibbles; d * (q - 16).
void BlockQ5_0(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  for (int i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(Code5(block + 2, block + 6, i) - 16);
  }
}

// 32 values: fp16 d, fp16 m, then as Q5_0; d * q + m.
void BlockQ5_1(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  const float m = LoadHalf(block + 2);
  for (int i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(Code5(block + 4, block + 8, i)) + m;
  }
}

// 32 values: fp16 d, 16 bytes as Q4_0; d * the code's value.
void BlockIQ4_NL(const uint8_t* block, float* out) {
  const float d = LoadHalf(block);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kIq4NlValues[block[2 + i] & 15]);
    out[16 + i] = d * static_cast<float>(kIq4NlValues[block[2 + i] >> 4]);
  }
}

namespace {

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
    case DType::kQ5_0:
      return ForEachBlock(info, bytes, count, out, BlockQ5_0);
    case DType::kQ5_1:
      return ForEachBlock(info, bytes, count, out, BlockQ5_1);
    case DType::kIQ4_NL:
      return ForEachBlock(info, bytes, count, out, BlockIQ4_NL);
    case DType::kQ2_K:
      return ForEachBlock(info, bytes, count, out, BlockQ2_K);
    case DType::kQ3_K:
      return ForEachBlock(info, bytes, count, out, BlockQ3_K);
    case DType::kQ4_K:
      return ForEachBlock(info, bytes, count, out, BlockQ4_K);
    case DType::kQ5_K:
      return ForEachBlock(info, bytes, count, out, BlockQ5_K);
    case DType::kQ6_K:
      return ForEachBlock(info, bytes, count, out, BlockQ6_K);
    default:
      KVRM_CHECK(info.readable, "Dequantize is asked only for readable types");
  }
}

}  // namespace kvrm
