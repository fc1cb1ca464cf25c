// Contract num-1 (docs/numerics.md) as plain scalar loops: the pieces that the reference ops share.
//
// The reference knows nothing of lanes.h: it is written from the contract and the layouts that
// tensor/encoding.h and base/kv_view.h state, one rounding after the other, so that a fault in the
// vector code cannot be in both. Slow; for tests and for reading. Thread-safe.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ops/op_args.h"

namespace kvrm::ops::reference {

// The vector that the contract is written in: sums run in sixteen lanes, value i in lane i % 16.
inline constexpr uint32_t kNumLanes = 16;
using Lanes = std::array<float, kNumLanes>;

// Lanes i and i + 8 are added, then i and i + 4, i + 2, i + 1.
inline float TreeSum(Lanes lanes) {
  for (uint32_t half = kNumLanes / 2; half > 0; half /= 2) {
    for (uint32_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// exp(x) = 2^n p(r): n = rint(x log2 e), r = x - n ln 2 in two fma steps (ln 2 = 0.693359375 -
// 2.1219444e-4), p the Taylor polynomial of degree 6 in Horner form. Below -87.3: 0. Above 88:
// exp(88). NaN stays NaN.
inline float Exp(float x) {
  if (x < -87.3f) return 0.0f;
  if (x > 88.0f) x = 88.0f;
  const float n = std::rint(x * 1.44269504088896341f);
  float r = std::fma(n, -0.693359375f, x);
  r = std::fma(n, 2.12194440e-4f, r);
  float p = 1.0f / 720.0f;
  for (float c : {1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f, 1.0f, 1.0f}) {
    p = std::fma(p, r, c);
  }
  return std::isnan(x) ? x : std::ldexp(p, static_cast<int>(n));
}

// cap * tanh(x / cap), tanh(x) = 1 - 2 / (exp(2x) + 1).
inline float SoftCap(float x, float cap) {
  const float e = Exp(x * (2.0f / cap));
  return (1.0f - 2.0f / (e + 1.0f)) * cap;
}

// Reads a T at `bytes`; layouts promise alignment only to a tile, not to the C++ type.
template <class T>
T Read(const std::byte* bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes + index * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void Write(std::byte* bytes, size_t index, T value) {
  std::memcpy(bytes + index * sizeof(T), &value, sizeof(T));
}

// A head's values as signed bytes with one scale. NaN counts as the greatest magnitude.
float GreatestMagnitude(const float* x, uint32_t count);
struct Bytes {
  std::vector<int8_t> codes;
  float scale;
};
// Rule 3's rounding, over a whole head: scale = amax / 127 in float.
Bytes EncodeQuery(const float* q, uint32_t head_dim);

// Writes x [k] as an activation row: as it is, or as int8 groups of 32 (ActivationLayout).
void EncodeActivations(ActivationKind kind, const float* x, uint32_t k, std::byte* row);
// The same of `count` values from `first` on of such a row: groups of 32 do not know one another.
void EncodePart(ActivationKind kind, const float* x, uint32_t first, uint32_t count, uint32_t k,
                std::byte* row);

void Embed(const EmbedArgs& args, uint32_t row);
void Norm(const NormArgs& args, uint32_t row);
void HeadNorm(const HeadNormArgs& args, uint32_t row);
void Linear(const LinearArgs& args, uint32_t panel_begin, uint32_t num_panels, Scratch scratch);
void GatedLinear(const GatedLinearArgs& args, uint32_t panel_begin, uint32_t num_panels,
                 Scratch scratch);
void RopeWrite(const RopeWriteArgs& args, uint32_t row);
void Attention(const AttentionArgs& args, uint32_t task, Scratch scratch);

}  // namespace kvrm::ops::reference
