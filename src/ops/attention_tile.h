// What the tiles of attention share, whatever the KV format: where planes lie, the queries of a
// tile, the softmax of a chunk and the fold of chunks. Included once per machine after lanes.h.
#pragma once

#include "ops/attention_pages.h"
#include "ops/lanes.h"
#include "ops/op_args.h"

namespace kvrm::ops::KVRM_LANES_NS {

inline constexpr uint32_t kHalfTiles = 128 / kLanes;
inline constexpr uint32_t kChunkHalves = kChunkTokens / 128;

// The layout of tensor/kv_tile.h, as distances from the beginning of a page.
template <KvFormat kFormat>
inline constexpr size_t kValueBytes = kFormat == KvFormat::kF32   ? 4
                                      : kFormat == KvFormat::kF16 ? 2
                                                                  : 1;
template <KvFormat kFormat>
inline constexpr size_t kScaleBytes = kFormat == KvFormat::kInt8 ? 64 : 0;

template <KvFormat kFormat>
inline size_t PlaneBytes(const AttentionArgs& args) {
  return size_t{kPageTokens} * args.head_dim * kValueBytes<kFormat>;
}
template <KvFormat kFormat>
inline size_t KeyOffset(const AttentionArgs& args, uint32_t kv_head) {
  return kv_head * (2 * PlaneBytes<kFormat>(args) + kScaleBytes<kFormat>);
}
template <KvFormat kFormat>
inline size_t ValueOffset(const AttentionArgs& args, uint32_t kv_head) {
  return KeyOffset<kFormat>(args, kv_head) + PlaneBytes<kFormat>(args) + kScaleBytes<kFormat>;
}

// The K tiles that are read after the V tiles at hand: brought near meanwhile.
struct NextKeys {
  const ChunkPages* pages;  // nullptr: none
  size_t k_offset;
};

// What up to kTileQueries queries of one KV head read and write in one chunk.
struct QueryTile {
  uint32_t count;
  const float* query[kTileQueries];  // [head_dim]
  Visible visible[kTileQueries];
  float* scores[kTileQueries];   // [kChunkTokens]
  float* out[kTileQueries];      // [head_dim]
  uint32_t index[kTileQueries];  // of the task's queries
  float m[kTileQueries];
  float l[kTileQueries];
  // int8 pages alone (attention_int8.h).
  const int8_t* codes[kTileQueries];  // [head_dim]
  float code_scale[kTileQueries];
  int32_t code_offset[kTileQueries];  // -128 * sum of codes
  int8_t* weights[kTileQueries];      // [kChunkPages][2][16]
};

inline bool SeesAll(Visible visible) { return visible.first == 0 && visible.end == kChunkTokens; }

inline F FinishScore(float scale, float soft_cap, F score) {
  const F s = scale == 1.0f ? score : Mul(score, Set(scale));
  return soft_cap == 0.0f ? s : SoftCap(s, soft_cap);
}

// The softmax of a chunk in two steps, so that those of a tile's queries can overlap: from dot
// products to scores, of which the greatest is returned. In a tile of which the query sees a part
// the others are -inf.
inline float FinishScores(float scale, float soft_cap, float* scores, Visible visible) {
  const F low = Set(-__builtin_inff());
  if (SeesAll(visible)) {
    F m[4] = {low, low, low, low};
    for (uint32_t t = 0; t < kChunkTokens / kLanes; t += 4) {
      for (uint32_t i = 0; i < 4; ++i) {
        float* at = scores + (t + i) * kLanes;
        const F s = FinishScore(scale, soft_cap, Load(at));
        if (scale != 1.0f || soft_cap != 0.0f) Store(at, s);
        m[i] = Max(s, m[i]);
      }
    }
    return MaxLane(Max(Max(m[0], m[1]), Max(m[2], m[3])));
  }
  const auto [first, live] = visible;
  F m = low;
  for (uint32_t t = first / kLanes; t < (live + kLanes - 1) / kLanes; ++t) {
    F s = FinishScore(scale, soft_cap, Load(scores + t * kLanes));
    if (t * kLanes < first) s = SelectFirst(first - t * kLanes, low, s);
    if (live - t * kLanes < kLanes) s = SelectFirst(live - t * kLanes, s, low);
    Store(scores + t * kLanes, s);
    m = Max(s, m);
  }
  return MaxLane(m);
}

// From those to l, which is returned, and, in place, what `keep` makes of p: keep(t, p) of the
// sixteen tokens of tile t. p of tokens that are not seen is exactly 0, whatever their scores were.
template <class Keep>
inline float ExpScores(float* scores, Visible visible, float max, Keep&& keep) {
  const auto exp = [&](uint32_t t) {
    const F p = Exp(Sub(Load(scores + t * kLanes), Set(max)));
    Store(scores + t * kLanes, keep(t, p));
    return p;
  };
  F half[kChunkHalves];
  for (F& h : half) h = Zero();
  if (SeesAll(visible)) {
    for (uint32_t i = 0; i < kHalfTiles; ++i) {
      for (uint32_t h = 0; h < kChunkHalves; ++h) half[h] = Add(half[h], exp(h * kHalfTiles + i));
    }
  } else {
    const uint32_t begin = visible.first / kLanes;
    const uint32_t end = (visible.end + kLanes - 1) / kLanes;
    for (uint32_t h = 0; h < kChunkHalves; ++h) {
      const uint32_t from = begin > h * kHalfTiles ? begin : h * kHalfTiles;
      const uint32_t to = end < (h + 1) * kHalfTiles ? end : (h + 1) * kHalfTiles;
      for (uint32_t t = from; t < to; ++t) half[h] = Add(half[h], exp(t));
    }
  }
  float l = TreeSum(half[0]);
  for (uint32_t h = 1; h < kChunkHalves; ++h) l += TreeSum(half[h]);
  return l;
}

// The running state of one query: o [head_dim], m, l. Folds a chunk's (m, l, o) into it.
struct QueryState {
  float m;
  float l;
  bool empty;
};

inline void Fold(QueryState& state, float* o, float m, float l, const float* chunk_o,
                 uint32_t head_dim) {
  if (state.empty) {
    for (uint32_t d = 0; d < head_dim; d += kLanes) Store(o + d, Load(chunk_o + d));
    state = {m, l, false};
    return;
  }
  const float top = m > state.m ? m : state.m;
  const float a = ExpOne(state.m - top);
  const float b = ExpOne(m - top);
  for (uint32_t d = 0; d < head_dim; d += kLanes) {
    Store(o + d, Fma(Load(o + d), Set(a), Mul(Load(chunk_o + d), Set(b))));
  }
  state.l = __builtin_fmaf(state.l, a, l * b);
  state.m = top;
}

}  // namespace kvrm::ops::KVRM_LANES_NS
