// Ops that work on one row at a time: embed, norm, rope and KV write; gates; and the encoding of
// activations. Included once per machine after lanes.h (see there).
#pragma once

#include "ops/kv_write.h"
#include "ops/lanes.h"
#include "ops/lanes_pairs.h"
#include "ops/op_args.h"

namespace kvrm::ops::KVRM_LANES_NS {

// Encodes one group of 32 values (a, b) of a row. `group` counts groups of the row. A NaN makes the
// scale NaN, so that it reaches every output that reads the group.
inline void EncodeGroup(F a, F b, std::byte* row, uint32_t k, uint32_t group) {
  const uint32_t groups = k / kGroup;
  const float amax = MaxMagnitude(a, b);
  const float inverse = amax > 0.0f ? 127.0f / amax : 0.0f;
  const float scale = amax * (1.0f / 127.0f);
  const I qa = RoundToInt(Mul(a, Set(inverse)));
  const I qb = RoundToInt(Mul(b, Set(inverse)));
  int8_t* codes = reinterpret_cast<int8_t*>(row) + group * kGroup;
  const int32_t sum = StoreLowBytes(codes, qa, qb);
  float* scales = reinterpret_cast<float*>(row + k);
  int32_t* offsets = reinterpret_cast<int32_t*>(scales + 2 * groups);
  scales[group] = scale;
  scales[groups + group] = scale * static_cast<float>(sum);
  offsets[group] = -128 * sum;
}

inline void EmbedRow(const EmbedArgs& args, uint32_t row) {
  const uint32_t token = static_cast<uint32_t>(args.rows[row].token);
  const uint32_t panel = token / kLanes;
  const uint32_t lane = token % kLanes;
  float* out = args.out + row * args.out_stride;
  const uint32_t k = args.k;
  const uint32_t groups = k / kGroup;
  if (args.encoding == Encoding::kF32) {
    const float* w =
        reinterpret_cast<const float*>(args.panels) + size_t{panel} * k * kLanes + lane;
    for (uint32_t i = 0; i < k; ++i) out[i] = w[size_t{i} * kLanes];
    return;
  }
  float scales[kLanes];
  float minima[kLanes];
  for (uint32_t g = 0; g < groups; ++g) {
    float* values = out + g * kGroup;
    if (args.encoding == Encoding::kQ4) {
      const auto* group = reinterpret_cast<const uint8_t*>(args.panels) +
                          (size_t{panel} * groups + g) * kQ4GroupBytes;
      const auto* halves = reinterpret_cast<const uint16_t*>(group + 256);
      Store(scales, LoadHalf(halves));
      Store(minima, LoadHalf(halves + kLanes));
      for (uint32_t i = 0; i < kGroup; ++i) {
        const uint8_t byte = group[(i / 8) * 64 + lane * 4 + i % 4];
        const uint32_t code = i % 8 < 4 ? byte & 15u : byte >> 4;
        values[i] = __builtin_fmaf(scales[lane], static_cast<float>(code), minima[lane]);
      }
    } else {
      const size_t panel_bytes = (size_t{groups} * (kQ8GroupBytes + 32) + 63) / 64 * 64;
      const auto* base = reinterpret_cast<const uint8_t*>(args.panels) + panel * panel_bytes;
      const uint8_t* group = base + size_t{g} * kQ8GroupBytes;
      Store(scales, LoadHalf(reinterpret_cast<const uint16_t*>(
                        base + size_t{groups} * kQ8GroupBytes + size_t{g} * 32)));
      for (uint32_t i = 0; i < kGroup; ++i) {
        const int32_t code = int32_t{group[(i / 4) * 64 + lane * 4 + i % 4]} - 128;
        values[i] = scales[lane] * static_cast<float>(code);
      }
    }
  }
}

inline void Embed(const EmbedArgs& args, uint32_t row) {
  EmbedRow(args, row);
  if (args.scale == 1.0f) return;
  float* out = args.out + row * args.out_stride;
  for (uint32_t i = 0; i < args.k; ++i) out[i] *= args.scale;
}

// 1 / sqrt(mean(x^2) + eps) in every lane.
inline F InverseRms(const float* x, uint32_t k, float eps) {
  F sum = Zero();
  for (uint32_t i = 0; i < k; i += kLanes) {
    const F v = Load(x + i);
    sum = Fma(v, v, sum);
  }
  const float mean = TreeSum(sum) / static_cast<float>(k);
  return Set(1.0f / __builtin_sqrtf(mean + eps));
}

inline void Norm(const NormArgs& args, uint32_t row) {
  const uint32_t source = args.row_index == nullptr ? row : args.row_index[row];
  const float* x = args.in + source * args.in_stride;
  const F r = InverseRms(x, args.k, args.eps);
  std::byte* out = args.out + row * args.out_stride;
  if (args.kind == ActivationKind::kFloat) {
    float* y = reinterpret_cast<float*>(out);
    const uint32_t add_row = args.add_index == nullptr ? row : args.add_index[row];
    const float* add =
        args.add == nullptr ? nullptr : args.add + add_row * (args.out_stride / sizeof(float));
    for (uint32_t i = 0; i < args.k; i += kLanes) {
      const F normed = Mul(Mul(Load(x + i), r), Load(args.weight + i));
      Store(y + i, add == nullptr ? normed : Add(Load(add + i), normed));
    }
    return;
  }
  for (uint32_t i = 0; i < args.k; i += kGroup) {
    const F a = Mul(Mul(Load(x + i), r), Load(args.weight + i));
    const F b = Mul(Mul(Load(x + i + kLanes), r), Load(args.weight + i + kLanes));
    EncodeGroup(a, b, out, args.k, i / kGroup);
  }
}

inline void HeadNorm(const HeadNormArgs& args, uint32_t row) {
  float* x = args.qkv + row * args.stride;
  for (uint32_t h = 0; h < args.num_heads + args.num_kv_heads; ++h, x += args.head_dim) {
    const float* weight = args.weight + (h < args.num_heads ? 0 : args.head_dim);
    const F r = InverseRms(x, args.head_dim, args.eps);
    for (uint32_t i = 0; i < args.head_dim; i += kLanes) {
      Store(x + i, Mul(Mul(Load(x + i), r), Load(weight + i)));
    }
  }
}

// The rotation of one position: x' = fma(x, c, -(y s)), y' = fma(x, s, y c) for each pair (x, y).
struct Rotation {
  const float* c;
  const float* s;
  uint32_t half;  // pairs
};

inline void RotatePair(const Rotation& r, uint32_t i, float* x, float* y) {
  const float a = *x;
  const float b = *y;
  *x = __builtin_fmaf(a, r.c[i], -(b * r.s[i]));
  *y = __builtin_fmaf(a, r.s[i], b * r.c[i]);
}

// Pairs (2i, 2i + 1) of `num_heads` heads, `stride` floats apart; eight pairs of all heads at a
// time, so that their factors are arranged once. Negating a factor instead of the product gives the
// same bits.
inline void RotateNeighbours(const Rotation& r, float* heads, uint32_t num_heads, uint32_t stride) {
  const float signs[2][8] = {{-1, -1, -1, -1, -1, -1, -1, -1}, {1, 1, 1, 1, 1, 1, 1, 1}};
  const F sign = MakePairs(signs[0], signs[1]);
  uint32_t i = 0;
  for (; i + 8 <= r.half; i += 8) {
    const F with_x = MakePairs(r.c + i, r.s + i);             // c s c s ..
    const F with_y = Mul(MakePairs(r.s + i, r.c + i), sign);  // -s c -s c ..
    for (uint32_t h = 0; h < num_heads; ++h) {
      float* at = heads + size_t{h} * stride + 2 * i;
      const F pairs = Load(at);
      Store(at, Fma(EvenOfPairs(pairs), with_x, Mul(OddOfPairs(pairs), with_y)));
    }
  }
  for (uint32_t h = 0; h < num_heads; ++h) {
    float* head = heads + size_t{h} * stride;
    for (uint32_t rest = i; rest < r.half; ++rest) {
      RotatePair(r, rest, head + 2 * rest, head + 2 * rest + 1);
    }
  }
}

// Pairs (i, i + half).
inline void RotateHalves(const Rotation& r, float* heads, uint32_t num_heads, uint32_t stride) {
  for (uint32_t h = 0; h < num_heads; ++h) {
    float* x = heads + size_t{h} * stride;
    float* y = x + r.half;
    uint32_t i = 0;
    for (; i + kLanes <= r.half; i += kLanes) {
      const F a = Load(x + i);
      const F b = Load(y + i);
      const F c = Load(r.c + i);
      const F s = Load(r.s + i);
      Store(x + i, Fma(a, c, Mul(b, Mul(s, Set(-1.0f)))));
      Store(y + i, Fma(a, s, Mul(b, c)));
    }
    for (; i < r.half; ++i) RotatePair(r, i, x + i, y + i);
  }
}

inline void RopeWrite(const RopeWriteArgs& args, uint32_t row) {
  const Row& r = args.rows[row];
  float* q = args.qkv + row * args.stride;
  float* k = q + size_t{args.num_heads} * args.head_dim;
  float* v = k + size_t{args.num_kv_heads} * args.head_dim;
  const uint32_t half = args.rope_dims / 2;
  const size_t factors = size_t{r.position} * half;
  const Rotation rotation = {args.cos_table + factors, args.sin_table + factors, half};
  const uint32_t num_rotated = args.num_heads + args.num_kv_heads;
  if (args.interleaved) {
    RotateNeighbours(rotation, q, num_rotated, args.head_dim);
  } else {
    RotateHalves(rotation, q, num_rotated, args.head_dim);
  }
  // After the rotation, which may itself overflow. Subtracting a value from itself gives 0 for
  // finite values and NaN for all others.
  F finite = Zero();
  const uint32_t width = (args.num_heads + 2 * args.num_kv_heads) * args.head_dim;
  for (uint32_t i = 0; i < width; i += kLanes) {
    const F x = Load(q + i);
    finite = Add(finite, Sub(x, x));
  }
  if (!(TreeSum(finite) == 0.0f)) args.row_status[row] = 1;
  if ((r.flags & kRowNoWrite) != 0) return;
  const size_t head_bytes = KvHeadBytes(args.format, args.head_dim);
  std::byte* page = args.kv_base + args.write_offset[row] + args.part_offset;
  for (uint32_t h = 0; h < args.num_kv_heads; ++h) {
    WriteHead(args.format, k + size_t{h} * args.head_dim, v + size_t{h} * args.head_dim,
              args.head_dim, r.kv_index % kPageTokens, page + h * head_bytes);
  }
}

// kSilu: g / (1 + exp(-g)) * up. kGeluTanh: 0.5 g (1 + tanh(u)) = g / (1 + exp(-2u)) with
// u = sqrt(2/pi) (g + 0.044715 g^3).
template <GateFunction kFunction>
inline F Gated(F gate, F up) {
  F exponent = Sub(Zero(), gate);
  if constexpr (kFunction == GateFunction::kGeluTanh) {
    const F slope = Fma(Mul(gate, gate), Set(kGeluCubic), Set(kGeluLinear));
    exponent = Mul(exponent, slope);
  }
  const F denominator = Add(Set(1.0f), Exp(exponent));
  return Mul(Div(gate, denominator), up);
}

}  // namespace kvrm::ops::KVRM_LANES_NS
