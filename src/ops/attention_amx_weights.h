// What becomes of a chunk's scores on the matrix unit: softmax, weights of 14 bits in two planes,
// and how its outputs go into those of the chunks before it. Included once per machine after
// attention_kernel.h.
#pragma once

#include "ops/amx_tiles.h"
#include "ops/attention_kernel.h"

namespace kvrm::ops::KVRM_LANES_NS {

inline constexpr uint32_t kStepTokens = 64;  // of a product of values
inline constexpr uint32_t kStepPages = kStepTokens / kPageTokens;

// One chunk of one KV head.
struct MatrixChunk {
  const ChunkPages& pages;
  size_t k_offset;
  size_t v_offset;
  uint32_t first_step, end_step;
};

// exp of x <= 0 or NaN: the bits of Exp (lanes.h), for which this leaves out what such an x does
// not need.
inline F ExpOfNegative(F x) {
  const F low = Set(-87.3f);
  const F clamped = Max(low, x);
  const F n = ToFloat(RoundToInt(Mul(clamped, Set(1.44269504088896341f))));
  F r = Fma(n, Set(-0.693359375f), clamped);
  r = Fma(n, Set(2.12194440e-4f), r);
  return ScaleUnlessLess(x, low, ExpSeries(r), n);
}

// The lanes of tile t, of those from `x`, that a query sees; the others are `none`.
inline F SeenOf(Visible visible, uint32_t t, F x, F none) {
  if (t * kLanes < visible.first) x = SelectFirst(visible.first - t * kLanes, none, x);
  if (visible.end - t * kLanes < kLanes) x = SelectFirst(visible.end - t * kLanes, x, none);
  return x;
}

// Scores of the tiles of which the query sees any token, in place of the integers; returns the
// greatest.
inline float MatrixScores(int32_t* scores, const float* k_scales, float code_scale,
                          Visible visible) {
  const F low = Set(-__builtin_inff());
  const F scale = Set(code_scale);
  F m = low;
  const auto score = [&](uint32_t t) {
    return Mul(Mul(ToFloat(LoadInts(scores + t * kLanes)), Load(k_scales + t * kLanes)), scale);
  };
  const auto keep = [&](uint32_t t, F s) {
    Store(reinterpret_cast<float*>(scores + t * kLanes), s);
    m = Max(s, m);
  };
  const uint32_t whole = visible.end / kLanes;
  const uint32_t end = (visible.end + kLanes - 1) / kLanes;
  uint32_t t = visible.first / kLanes;
  if (visible.first % kLanes != 0) {
    keep(t, SeenOf(visible, t, score(t), low));
    ++t;
  }
  for (; t < whole; ++t) keep(t, score(t));
  if (t < end) keep(t, SeenOf(visible, t, score(t), low));
  return MaxLane(m);
}

// From scores to p times V's scales, in place; returns l, and the greatest of those. Tokens that
// the query does not see weigh 0.
inline float MatrixExponentials(float* scores, const float* v_scales, float max, Visible visible,
                                F* greatest) {
  const uint32_t begin = visible.first / kLanes;
  const uint32_t end = (visible.end + kLanes - 1) / kLanes;
  F most = Zero();
  float l = 0.0f;
  const F top = Set(max);
  for (uint32_t h = 0; h < kChunkHalves; ++h) {
    const uint32_t from = begin > h * kHalfTiles ? begin : h * kHalfTiles;
    const uint32_t to = end < (h + 1) * kHalfTiles ? end : (h + 1) * kHalfTiles;
    F half = Zero();
    for (uint32_t t = from; t < to; ++t) {
      const F p = ExpOfNegative(Sub(Load(scores + t * kLanes), top));
      half = Add(half, p);
      F w = Mul(p, Load(v_scales + t * kLanes));
      if (t == begin || t + 1 == end) w = SeenOf(visible, t, w, Zero());
      Store(scores + t * kLanes, w);
      most = MaxBits(most, w);
    }
    l = h == 0 ? TreeSum(half) : l + TreeSum(half);
  }
  *greatest = most;
  return l;
}

// From those to 14 bits of the greatest, in two planes; returns what a unit of them stands for. Of
// the chunk's steps all tokens get a weight, those that the query does not see 0.
inline float MatrixWeights(const MatrixChunk& chunk, float* scaled, Visible visible, F greatest,
                           uint8_t* upper, uint8_t* lower) {
  const uint32_t begin = visible.first / kLanes;
  const uint32_t end = (visible.end + kLanes - 1) / kLanes;
  const float max = MaxMagnitude(greatest, greatest);
  const F inverse = Set(max > 0x1p-100f ? kMaxWeight / max : 0.0f);
  for (uint32_t t = chunk.first_step * kStepPages; t < begin; ++t)
    Store(scaled + t * kLanes, Zero());
  for (uint32_t t = end; t < chunk.end_step * kStepPages; ++t) Store(scaled + t * kLanes, Zero());
  for (uint32_t step = chunk.first_step; step < chunk.end_step; ++step) {
    const float* w = scaled + step * kStepTokens;
    I rounded[4];
    for (uint32_t i = 0; i < 4; ++i) rounded[i] = RoundToInt(Mul(Load(w + i * kLanes), inverse));
    StoreSevensOf64(upper + step * kStepTokens, lower + step * kStepTokens, rounded);
  }
  return max * (1.0f / kMaxWeight);
}

// How a chunk's outputs go into those of the chunks before it: o = o * keep + chunk * add.
struct FoldFactors {
  float unit[kTileSide];
  float keep[kTileSide];
  float add[kTileSide];
  bool seen[kTileSide];
  bool first[kTileSide];  // nothing came before: o = chunk
};

// Fold (attention_tile.h), for the states of a tile's queries at once.
inline void FoldStates(uint32_t count, const float* m, const float* l, QueryState* states,
                       FoldFactors& f) {
  float before[kTileSide] = {};
  for (uint32_t i = 0; i < count; ++i) before[i] = states[i].empty ? m[i] : states[i].m;
  const F old = Load(before);
  const F now = Load(m);
  const F top = SelectLess(old, now, now, old);
  Store(f.keep, Exp(Sub(old, top)));
  Store(f.add, Exp(Sub(now, top)));
  float tops[kTileSide];
  Store(tops, top);
  for (uint32_t i = 0; i < count; ++i) {
    if (!f.seen[i]) continue;
    f.first[i] = states[i].empty;
    const float sum = __builtin_fmaf(states[i].l, f.keep[i], l[i] * f.add[i]);
    states[i] = f.first[i] ? QueryState{m[i], l[i], false} : QueryState{tops[i], sum, false};
  }
}

}  // namespace kvrm::ops::KVRM_LANES_NS
