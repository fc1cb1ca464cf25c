// Attention over int8 pages: scores and values of one chunk, both as integer dot products. Included
// once per machine after attention_tile.h.
//
// Contract (num-1, rule 12). The query is rounded to bytes once a task, with one scale per head.
// A score is its exact dot product with K's bytes, times K's scale, times its own (which holds
// that of attention). p times V's
// scale is rounded to 14 bits of the greatest of the chunk; the sum over tokens is exact again, so
// that tokens may come in any order, and one that is not seen weighs exactly 0, whatever its
// bytes are.
//
// Per 16 tokens and 64 d of a group of three: 2,112 bytes; 48 dot instructions of 64 products for
// scores, 96 for values (two halves of seven bits: seven, so that AVX2's byte products cannot
// saturate), 32 shuffles, and the softmax. fp16 pages: 4,096 bytes, 384 fma, 128 conversions.
#pragma once

#include "ops/attention_tile.h"
#include "ops/lanes.h"
#include "ops/lanes_bytes.h"

namespace kvrm::ops::KVRM_LANES_NS {

inline constexpr float kMaxWeight = 16383.0f;  // 14 bits
inline constexpr uint32_t kWeightBytes = 2 * kChunkTokens;

// The queries of a task as bytes.
struct QueryCodes {
  int8_t* codes;     // [queries][head_dim]
  float* scales;     // [queries] times the scale of attention
  int32_t* offsets;  // [queries] -128 * sum of codes, what K's codes + 128 add too much
};

// Rounds one head's query. A value that is not finite makes the scale not finite.
inline void EncodeQuery(const float* q, uint32_t head_dim, int8_t* codes, float* scale,
                        int32_t* offset) {
  F most = Zero();
  for (uint32_t d = 0; d < head_dim; d += kLanes) most = MaxMagnitudes(most, Load(q + d));
  const float amax = MaxMagnitude(most, most);
  const F inverse = Set(amax > 0.0f ? 127.0f / amax : 0.0f);
  int32_t sum = 0;
  for (uint32_t d = 0; d < head_dim; d += kLanes) {
    const I code = RoundToInt(Mul(Load(q + d), inverse));
    int8_t bytes[2 * kLanes];
    sum += StoreLowBytes(bytes, code, ZeroInt());
    __builtin_memcpy(codes + d, bytes, kLanes);
  }
  *scale = amax * (1.0f / 127.0f);
  *offset = -128 * sum;
}

inline void EncodeQueries(const AttentionArgs& args, const AttentionTask& task,
                          const QueryCodes& out) {
  const uint32_t group = args.num_heads / args.num_kv_heads;
  size_t query = 0;
  for (uint32_t kv_head = task.kv_head_begin; kv_head < task.kv_head_end; ++kv_head) {
    for (uint32_t i = 0; i < task.num_rows * group; ++i, ++query) {
      const float* q = args.q + (task.row_begin + i / group) * args.q_stride +
                       size_t{kv_head * group + i % group} * args.head_dim;
      EncodeQuery(q, args.head_dim, out.codes + query * args.head_dim, &out.scales[query],
                  &out.offsets[query]);
      out.scales[query] *= args.scale;
    }
  }
}

inline int32_t FourBytes(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, 4);
  return four;
}

// scores[q][16 pages ..] for Q queries and PG pages at once. `fetch`: the V tiles, which lie behind
// the K tiles and their scales, are brought near meanwhile, a line for each line of K.
template <uint32_t Q, uint32_t PG>
inline void ScoreBytes(const QueryTile& tile, const std::byte* const* k_tile, uint32_t head_dim,
                       bool fetch, uint32_t first_page) {
  const size_t scales = size_t{kPageTokens} * head_dim;
  I acc[Q][PG];
  for (uint32_t q = 0; q < Q; ++q) {
    for (uint32_t g = 0; g < PG; ++g) acc[q][g] = SetInt(tile.code_offset[q]);
  }
  for (uint32_t d = 0; d < head_dim; d += 4) {
    B k[PG];
    for (uint32_t g = 0; g < PG; ++g) {
      const std::byte* line = k_tile[g] + d * kPageTokens;
      k[g] = LoadBytes(reinterpret_cast<const uint8_t*>(line));
      if (fetch) Prefetch(line + scales + kScaleBytes<KvFormat::kInt8>);
    }
    for (uint32_t q = 0; q < Q; ++q) {
      const int32_t four = FourBytes(tile.codes[q] + d);
      for (uint32_t g = 0; g < PG; ++g) acc[q][g] = Dot(acc[q][g], k[g], four);
    }
  }
  for (uint32_t g = 0; g < PG; ++g) {
    const F scale = LoadHalf(reinterpret_cast<const uint16_t*>(k_tile[g] + scales));
    for (uint32_t q = 0; q < Q; ++q) {
      const F s = Mul(Mul(ToFloat(acc[q][g]), scale), Set(tile.code_scale[q]));
      Store(tile.scores[q] + (first_page + g) * kPageTokens, s);
    }
  }
}

template <uint32_t Q, uint32_t PG>
inline void ScoreBytesOfPages(const QueryTile& tile, const ChunkPages& pages, size_t k_offset,
                              uint32_t head_dim, bool fetch) {
  const std::byte* tiles[PG];
  uint32_t page = pages.begin;
  for (; page + PG <= pages.end; page += PG) {
    for (uint32_t g = 0; g < PG; ++g) tiles[g] = pages.page[page + g] + k_offset;
    ScoreBytes<Q, PG>(tile, tiles, head_dim, fetch, page);
  }
  for (; page < pages.end; ++page) {
    tiles[0] = pages.page[page] + k_offset;
    ScoreBytes<Q, 1>(tile, tiles, head_dim, fetch, page);
  }
}

// From scores to p times V's scales, in place; returns l. A token that is not seen weighs 0: p is 0
// there, but 0 times the scale of a recycled place may be NaN.
inline float ScaleWeights(const ChunkPages& pages, size_t v_scales, Visible visible, float* scores,
                          float max) {
  const auto scaled = [&](uint32_t t, F p) {
    return Mul(p, LoadHalf(reinterpret_cast<const uint16_t*>(pages.page[t] + v_scales)));
  };
  if (SeesAll(visible)) return ExpScores(scores, visible, max, scaled);
  return ExpScores(scores, visible, max, [&](uint32_t t, F p) {
    F w = scaled(t, p);
    if (t * kLanes < visible.first) w = SelectFirst(visible.first - t * kLanes, Zero(), w);
    if (visible.end - t * kLanes < kLanes) w = SelectFirst(visible.end - t * kLanes, w, Zero());
    return w;
  });
}

// From those to the weights of V's bytes, [page][2][16], upper and lower seven bits. Returns what a
// unit of them stands for. Tokens of `pages` that the query does not see weigh 0.
inline float RoundWeights(const ChunkPages& pages, Visible visible, const float* scaled,
                          int8_t* weights) {
  const uint32_t begin = visible.first / kLanes;
  const uint32_t end = (visible.end + kLanes - 1) / kLanes;
  F most = Zero();
  for (uint32_t t = begin; t < end; ++t) most = MaxMagnitudes(most, Load(scaled + t * kLanes));
  const float max = MaxMagnitude(most, most);
  const F inverse = Set(max > 0x1p-100f ? kMaxWeight / max : 0.0f);
  for (uint32_t t = pages.begin; t < begin; ++t) StoreSevens(weights + t * 32, ZeroInt());
  for (uint32_t t = begin; t < end; ++t) {
    StoreSevens(weights + t * 32, RoundToInt(Mul(Load(scaled + t * kLanes), inverse)));
  }
  for (uint32_t t = end; t < pages.end; ++t) StoreSevens(weights + t * 32, ZeroInt());
  return max * (1.0f / kMaxWeight);
}

// out[q][d..] = unit[q] * sum over the tokens of `pages` of weight * V[t][d..], for Q queries and
// the blocks 2 * kHalf .. of up to 64 d (lanes_bytes.h): two blocks, or all four.
template <uint32_t Q, int kHalf, uint32_t kBlocks, bool kWhole>
inline void SumBytes(const QueryTile& tile, const ChunkPages& pages, size_t v_offset,
                     uint32_t head_dim, uint32_t first_d, NextKeys next, const float* unit) {
  const uint32_t width = head_dim - first_d < 64 ? head_dim - first_d : 64;
  I upper[Q][kBlocks], lower[Q][kBlocks];
  for (uint32_t q = 0; q < Q; ++q) {
    for (uint32_t j = 0; j < kBlocks; ++j) upper[q][j] = lower[q][j] = ZeroInt();
  }
  for (uint32_t page = pages.begin; page < pages.end; ++page) {
    const std::byte* v = pages.page[page] + v_offset + first_d;
    // What is read after V comes near meanwhile: per 64 d of V as much of K, and its scales.
    const bool fetch = next.pages != nullptr && page >= next.pages->begin && page < next.pages->end;
    const std::byte* k = fetch ? next.pages->page[page] + next.k_offset + first_d * kPageTokens : v;
    if (kHalf == 0 && first_d == 0) Prefetch(k + size_t{kPageTokens} * head_dim);
    for (uint32_t t = 0; t < kPageTokens; t += 4) {
      if constexpr (kHalf == 0) {
        const uint32_t lines = kWhole ? 4 : width / 16;
        for (uint32_t i = 0; i < lines; ++i) Prefetch(k + (t / 4 * lines + i) * 64);
      }
      B rows[4];
      B blocks[kBlocks];
      for (uint32_t i = 0; i < 4; ++i) {
        const auto* row = reinterpret_cast<const int8_t*>(v + size_t{t + i} * head_dim);
        rows[i] =
            kWhole ? LoadBytes(reinterpret_cast<const uint8_t*>(row)) : LoadFirstBytes(row, width);
      }
      Interleave<kHalf>(rows, blocks);
      if constexpr (kBlocks == 4) Interleave<1>(rows, blocks + 2);
      for (uint32_t q = 0; q < Q; ++q) {
        const int8_t* w = tile.weights[q] + page * 32 + t;
        const int32_t up = FourBytes(w);
        for (uint32_t j = 0; j < kBlocks; ++j) upper[q][j] = DotSigned(upper[q][j], up, blocks[j]);
        const int32_t low = FourBytes(w + kPageTokens);
        for (uint32_t j = 0; j < kBlocks; ++j) lower[q][j] = DotSigned(lower[q][j], low, blocks[j]);
      }
    }
  }
  // In two loops: the first is small enough that compilers keep the sums in registers until here.
  float sums[Q][kBlocks][kLanes];
  for (uint32_t q = 0; q < Q; ++q) {
    for (uint32_t j = 0; j < kBlocks; ++j) {
      Store(sums[q][j], ToFloat(JoinSevens(upper[q][j], lower[q][j])));
    }
  }
  for (uint32_t q = 0; q < Q; ++q) {
    for (uint32_t j = 0; j < kBlocks; ++j) {
      float* out = tile.out[q] + first_d + 4 * (2 * kHalf + j);
      StoreQuarters(out, Mul(Load(sums[q][j]), Set(unit[q])), width);
    }
  }
}

// All blocks of up to 64 d: at once, or as many as there are registers for.
template <uint32_t Q, bool kWhole>
inline void SumBlocks(const QueryTile& tile, const ChunkPages& pages, size_t v_offset,
                      uint32_t head_dim, uint32_t first_d, NextKeys next, const float* unit) {
  if constexpr (Q <= 3) {
    SumBytes<Q, 0, 4, kWhole>(tile, pages, v_offset, head_dim, first_d, next, unit);
  } else {
    SumBytes<Q, 0, 2, kWhole>(tile, pages, v_offset, head_dim, first_d, next, unit);
    SumBytes<Q, 1, 2, kWhole>(tile, pages, v_offset, head_dim, first_d, {nullptr, 0}, unit);
  }
}

// (m, l, o) of one chunk, as FloatChunk.
template <uint32_t Q>
inline void Int8Chunk(const AttentionArgs& args, const ChunkPages& pages, uint32_t kv_head,
                      bool first, NextKeys next, QueryTile& tile) {
  constexpr uint32_t kPages = Q <= 3 ? 4 : 2;
  const size_t k_offset = KeyOffset<KvFormat::kInt8>(args, kv_head);
  const size_t v_scales = k_offset + PlaneBytes<KvFormat::kInt8>(args) + kPageTokens * 2;
  const size_t v_offset = ValueOffset<KvFormat::kInt8>(args, kv_head);
  ScoreBytesOfPages<Q, kPages>(tile, pages, k_offset, args.head_dim, first);
  for (uint32_t q = 0; q < Q; ++q) {
    tile.m[q] = FinishScores(1.0f, args.soft_cap, tile.scores[q], tile.visible[q]);
  }
  for (uint32_t q = 0; q < Q; ++q) {
    tile.l[q] = ScaleWeights(pages, v_scales, tile.visible[q], tile.scores[q], tile.m[q]);
  }
  float unit[Q];
  for (uint32_t q = 0; q < Q; ++q) {
    unit[q] = RoundWeights(pages, tile.visible[q], tile.scores[q], tile.weights[q]);
  }
  for (uint32_t d = 0; d < args.head_dim; d += 64, next.pages = nullptr) {
    if (d + 64 <= args.head_dim) {
      SumBlocks<Q, true>(tile, pages, v_offset, args.head_dim, d, next, unit);
    } else {
      SumBlocks<Q, false>(tile, pages, v_offset, args.head_dim, d, next, unit);
    }
  }
}

}  // namespace kvrm::ops::KVRM_LANES_NS
