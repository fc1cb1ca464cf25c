// Writes K and V of one token and KV head into its page: the layouts of tensor/kv_tile.h, the
// rounding of num-1, rules 8 and 12. Included once per machine after lanes.h.
#pragma once

#include "ops/lanes.h"
#include "ops/lanes_bytes.h"
#include "ops/op_args.h"

namespace kvrm::ops::KVRM_LANES_NS {

inline float ClampToHalf(float x) {
  return x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x;
}

inline void WriteFloats(const float* k, const float* v, uint32_t head_dim, uint32_t place,
                        std::byte* tile) {
  float* out = reinterpret_cast<float*>(tile);
  const size_t v_begin = size_t{head_dim} * kPageTokens;
  for (uint32_t d = 0; d < head_dim; ++d) out[d * kPageTokens + place] = k[d];
  for (uint32_t d = 0; d < head_dim; ++d) out[v_begin + place * head_dim + d] = v[d];
}

inline void WriteHalves(const float* k, const float* v, uint32_t head_dim, uint32_t place,
                        std::byte* tile) {
  uint16_t* out = reinterpret_cast<uint16_t*>(tile);
  const size_t v_begin = size_t{head_dim} * kPageTokens;
  float clamped[kLanes];
  uint16_t halves[kLanes];
  for (uint32_t d = 0; d < head_dim; d += kLanes) {
    for (uint32_t i = 0; i < kLanes; ++i) clamped[i] = ClampToHalf(k[d + i]);
    StoreHalf(halves, Load(clamped));
    for (uint32_t i = 0; i < kLanes; ++i) out[(d + i) * kPageTokens + place] = halves[i];
    for (uint32_t i = 0; i < kLanes; ++i) clamped[i] = ClampToHalf(v[d + i]);
    StoreHalf(out + v_begin + place * head_dim + d, Load(clamped));
  }
}

// The scale of one plane: greatest magnitude / 127 as fp16, nearest, and one step up where 127 of
// it do not reach that magnitude, so that no code is cut off. NaN where a value is not finite.
struct ByteScale {
  uint16_t half;
  float inverse;  // 1 / scale; 0 where the scale is 0 or NaN: all codes are 0 then
};
inline ByteScale ByteScaleOf(const float* x, uint32_t head_dim) {
  constexpr uint16_t kGreatestHalf = 0x7BFF;
  F most = Zero();
  for (uint32_t d = 0; d < head_dim; d += kLanes) most = MaxMagnitudes(most, Load(x + d));
  const float amax = MaxMagnitude(most, most);
  if (!(amax <= __FLT_MAX__)) return {0x7E00, 0.0f};
  uint16_t halves[kLanes];
  float values[kLanes];
  const auto round = [&](uint16_t half) {
    for (uint16_t& h : halves) h = half;
    Store(values, LoadHalf(halves));
    return values[0];
  };
  StoreHalf(halves, Set(ClampToHalf(amax * (1.0f / 127.0f))));
  uint16_t half = halves[0];
  float scale = round(half);
  if (127.0f * scale < amax && half < kGreatestHalf) scale = round(++half);
  return {half, scale > 0.0f ? 1.0f / scale : 0.0f};
}

// Codes of `count` values, 16 or 32 of them. Those that a greatest scale leaves too large are
// clamped.
inline void EncodeBytes(const float* x, uint32_t count, float inverse, int8_t* codes) {
  const auto code = [&](const float* p) {
    const F scaled = inverse == 0.0f ? Zero() : Mul(Load(p), Set(inverse));
    return RoundToInt(Min(Set(127.0f), Max(Set(-127.0f), scaled)));
  };
  StoreLowBytes(codes, code(x), count > kLanes ? code(x + kLanes) : ZeroInt());
}

inline void WriteBytes(const float* k, const float* v, uint32_t head_dim, uint32_t place,
                       std::byte* tile) {
  const size_t plane_bytes = size_t{head_dim} * kPageTokens;
  std::byte* v_row = tile + plane_bytes + 64 + size_t{place} * head_dim;
  const ByteScale k_scale = ByteScaleOf(k, head_dim);
  const ByteScale v_scale = ByteScaleOf(v, head_dim);
  auto* scales = reinterpret_cast<uint16_t*>(tile + plane_bytes);
  scales[place] = k_scale.half;
  scales[kPageTokens + place] = v_scale.half;
  int8_t codes[2 * kLanes];
  for (uint32_t d = 0; d < head_dim; d += 2 * kLanes) {
    const uint32_t count = head_dim - d < 2 * kLanes ? head_dim - d : 2 * kLanes;
    EncodeBytes(k + d, count, k_scale.inverse, codes);
    for (uint32_t i = 0; i < count; ++i) {
      const auto unsigned_code = static_cast<uint8_t>(codes[i] + 128);
      tile[(d + i) / 4 * 64 + place * 4 + i % 4] = static_cast<std::byte>(unsigned_code);
    }
    EncodeBytes(v + d, count, v_scale.inverse, codes);
    __builtin_memcpy(v_row + d, codes, count);
  }
}

inline size_t KvHeadBytes(KvFormat format, uint32_t head_dim) {
  const size_t values = size_t{2} * kPageTokens * head_dim;
  return format == KvFormat::kF32   ? values * 4
         : format == KvFormat::kF16 ? values * 2
                                    : values + 64;
}

// `tile` is the head's part of the page, `place` the token's place in it.
inline void WriteHead(KvFormat format, const float* k, const float* v, uint32_t head_dim,
                      uint32_t place, std::byte* tile) {
  switch (format) {
    case KvFormat::kF32:
      return WriteFloats(k, v, head_dim, place, tile);
    case KvFormat::kF16:
      return WriteHalves(k, v, head_dim, place, tile);
    case KvFormat::kInt8:
      return WriteBytes(k, v, head_dim, place, tile);
  }
}

}  // namespace kvrm::ops::KVRM_LANES_NS
