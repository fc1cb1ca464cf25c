// Attention of a prompt's rows over int8 pages on the matrix unit. Included once per machine after
// attention_kernel.h.
//
// The contract is rule 12's: both sums of products are integers, so who adds them up does not show.
// Per chunk and KV head V's bytes are interleaved by fours once; then sixteen queries (rows times
// the query heads of the KV head) at a time:
//   scores   a page is one product: 16 queries x 16 tokens x 64 d; the tile begins as what K's
//            codes + 128 add too much
//   weights  softmax and rounding (attention_amx_weights.h), step by step for all queries, 28
//            vector instructions per 16 tokens and query
//   values   64 tokens x 16 d a product, for the upper and the lower seven bits; folded into the
//            outputs as they come out of the tiles
// Half of the time is the weights', a sixth each the products (docs/decisions/004).
#pragma once

#include "ops/amx_tiles.h"
#include "ops/attention_amx_weights.h"
#include "ops/attention_kernel.h"

namespace kvrm::ops::KVRM_LANES_NS {

inline constexpr uint32_t kLeastMatrixQueries = 8;  // dots are as fast with fewer
inline constexpr uint32_t kSteps = kChunkTokens / kStepTokens;
inline constexpr uint32_t kDepth = 64;  // d of a product of scores
inline constexpr size_t kTileBytes = size_t{kTileSide} * 64;

// What a worker keeps of a task. `o` holds blocks of sixteen d in the order that Interleave makes.
struct MatrixScratch {
  int32_t* scores;   // [16][kChunkTokens]; floats later
  uint8_t* upper;    // [16][kChunkTokens] weights, their upper seven bits
  uint8_t* lower;    // and their lower
  uint8_t* values;   // [head_dim / 16][kSteps][16 quads][64]
  int32_t* sums;     // [4][16][16]
  int32_t* offsets;  // [16][16]
  float* k_scales;   // [kChunkTokens]
  float* v_scales;   // [kChunkTokens]
  float* o;          // [queries][head_dim]
  float* heads;      // [group][head_dim], of the row that is written out
  QueryState* states;
  QueryCodes codes;
};

inline bool SuitsMatrixUnit(const AttentionArgs& args, const AttentionTask& task) {
  const uint32_t group = args.num_heads / args.num_kv_heads;
  return args.format == KvFormat::kInt8 && task.split == kNone32 &&
         task.num_rows * group >= kLeastMatrixQueries && args.head_dim % kDepth == 0 &&
         args.soft_cap == 0.0f && args.width == 0;
}

inline MatrixScratch MatrixScratchOf(const AttentionArgs& args, Scratch scratch) {
  const size_t queries = size_t{kMaxTaskRows} * args.num_heads;
  MatrixScratch s;
  s.scores = reinterpret_cast<int32_t*>(scratch.data);
  s.upper = reinterpret_cast<uint8_t*>(s.scores + kTileSide * kChunkTokens);
  s.lower = s.upper + kTileSide * kChunkTokens;
  s.values = s.lower + kTileSide * kChunkTokens;
  s.sums = reinterpret_cast<int32_t*>(s.values + size_t{kChunkTokens} * args.head_dim);
  s.offsets = s.sums + 4 * kTileSide * kLanes;
  s.k_scales = reinterpret_cast<float*>(s.offsets + kTileSide * kLanes);
  s.v_scales = s.k_scales + kChunkTokens;
  s.codes.codes = reinterpret_cast<int8_t*>(s.v_scales + kChunkTokens);
  // A tile of queries is read whole, also where it holds fewer.
  s.o = reinterpret_cast<float*>(s.codes.codes + (queries + kTileSide) * args.head_dim);
  s.heads = s.o + queries * args.head_dim;
  s.states = reinterpret_cast<QueryState*>(s.heads + args.num_heads * size_t{args.head_dim});
  s.codes.scales = reinterpret_cast<float*>(s.states + queries);
  s.codes.offsets = reinterpret_cast<int32_t*>(s.codes.scales + queries);
  return s;
}

// V, four tokens side by side, and the scales of both planes, as floats.
inline void PrepareChunk(const MatrixChunk& chunk, uint32_t head_dim, const MatrixScratch& s) {
  const size_t scales = chunk.k_offset + size_t{kPageTokens} * head_dim;
  for (uint32_t page = chunk.pages.begin; page < chunk.pages.end; ++page) {
    const std::byte* base = chunk.pages.page[page];
    const auto* halves = reinterpret_cast<const uint16_t*>(base + scales);
    Store(s.k_scales + page * kPageTokens, LoadHalf(halves));
    Store(s.v_scales + page * kPageTokens, LoadHalf(halves + kPageTokens));
    const auto* v = reinterpret_cast<const uint8_t*>(base + chunk.v_offset);
    for (uint32_t d = 0; d < head_dim; d += kDepth) {
      uint8_t* out = s.values + d * kChunkTokens + page / kStepPages * kTileBytes +
                     page % kStepPages * (kTileBytes / kStepPages);
      for (uint32_t t = 0; t < kPageTokens; t += 4, out += 64) {
        B rows[4];
        B blocks[4];
        for (uint32_t i = 0; i < 4; ++i) rows[i] = LoadBytes(v + size_t{t + i} * head_dim + d);
        Interleave<0>(rows, blocks);
        Interleave<1>(rows, blocks + 2);
        for (uint32_t j = 0; j < 4; ++j) StoreBytes(out + j * kSteps * kTileBytes, blocks[j]);
      }
    }
  }
}

#define KVRM_SCORE_PAGE(C, K)                                           \
  do {                                                                  \
    const std::byte* k = chunk.pages.page[page + (C)] + chunk.k_offset; \
    _tile_loadd(C, s.offsets, 64);                                      \
    for (uint32_t d = 0; d < head_dim; d += kDepth) {                   \
      if (head_dim != kDepth) _tile_loadd(4, codes + d, head_dim);      \
      _tile_loadd(K, k + size_t{d} * kPageTokens, 64);                  \
      _tile_dpbsud(C, 4, K);                                            \
    }                                                                   \
  } while (false)
#define KVRM_STORE_SCORES(C) _tile_stored(C, s.scores + (page + (C)) * kPageTokens, kStride)

// scores[i][token] = exact dot product of query i of the tile and K. Four pages at a time: a
// product takes three times as long as the next one has to wait.
inline void ScoreTile(const MatrixChunk& chunk, uint32_t head_dim, const int8_t* codes,
                      const MatrixScratch& s) {
  constexpr size_t kStride = kChunkTokens * sizeof(int32_t);
  if (head_dim == kDepth) _tile_loadd(4, codes, kDepth);
  uint32_t page = chunk.pages.begin;
  for (; page + 4 <= chunk.pages.end; page += 4) {
    KVRM_SCORE_PAGE(0, 6);
    KVRM_SCORE_PAGE(1, 7);
    KVRM_SCORE_PAGE(2, 6);
    KVRM_SCORE_PAGE(3, 7);
    KVRM_STORE_SCORES(0);
    KVRM_STORE_SCORES(1);
    KVRM_STORE_SCORES(2);
    KVRM_STORE_SCORES(3);
  }
  for (; page < chunk.pages.end; ++page) {
    KVRM_SCORE_PAGE(0, 6);
    KVRM_STORE_SCORES(0);
  }
}
#undef KVRM_SCORE_PAGE
#undef KVRM_STORE_SCORES

// Two blocks of sixteen d of the outputs, from `values` on, of all queries of a tile.
inline void ValueTiles(const MatrixChunk& chunk, const MatrixScratch& s, const uint8_t* values,
                       const FoldFactors& f, uint32_t count, float* o, uint32_t head_dim) {
  constexpr size_t kBlockBytes = kSteps * kTileBytes;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (uint32_t step = chunk.first_step; step < chunk.end_step; ++step) {
    _tile_loadd(4, s.upper + step * kStepTokens, kChunkTokens);
    _tile_loadd(5, s.lower + step * kStepTokens, kChunkTokens);
    _tile_loadd(6, values + step * kTileBytes, 64);
    _tile_loadd(7, values + kBlockBytes + step * kTileBytes, 64);
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 5, 6);
    _tile_dpbssd(2, 4, 7);
    _tile_dpbssd(3, 5, 7);
  }
  constexpr size_t kSums = size_t{kTileSide} * kLanes;
  _tile_stored(0, s.sums, 64);
  _tile_stored(1, s.sums + kSums, 64);
  _tile_stored(2, s.sums + 2 * kSums, 64);
  _tile_stored(3, s.sums + 3 * kSums, 64);
  for (uint32_t i = 0; i < count; ++i, o += head_dim) {
    if (!f.seen[i]) continue;
    for (uint32_t j = 0; j < 2; ++j) {
      const int32_t* sums = s.sums + 2 * j * kSums + i * kLanes;
      const I joined = JoinSevens(LoadInts(sums), LoadInts(sums + kSums));
      const F out = Mul(ToFloat(joined), Set(f.unit[i]));
      float* at = o + j * kLanes;
      Store(at, f.first[i] ? out : Fma(Load(at), Set(f.keep[i]), Mul(out, Set(f.add[i]))));
    }
  }
}

// Queries [first, first + count) of a KV head, of those of the task from `query` on.
inline void QueryTileOnMatrix(const MatrixChunk& chunk, const ChunkView& view, uint32_t group,
                              uint32_t head_dim, uint32_t first, uint32_t count,
                              const MatrixScratch& s) {
  for (uint32_t i = 0; i < kTileSide; ++i) {
    StoreInt(s.offsets + i * kLanes, SetInt(i < count ? s.codes.offsets[i] : 0));
  }
  TileFence();
  ScoreTile(chunk, head_dim, s.codes.codes, s);
  FoldFactors f;
  Visible visible[kTileSide];
  float m[kTileSide] = {};
  float l[kTileSide] = {};
  F greatest[kTileSide];
  // Step by step for all queries, so that one's long chains hide another's.
  const auto each_seen = [&](auto&& step) {
    for (uint32_t i = 0; i < count; ++i) {
      if (f.seen[i]) step(i, s.scores + i * kChunkTokens);
    }
  };
  for (uint32_t i = 0; i < count; ++i) {
    visible[i] = view.seen[(first + i) / group];
    f.seen[i] = visible[i].end != 0;
  }
  each_seen([&](uint32_t i, int32_t* scores) {
    m[i] = MatrixScores(scores, s.k_scales, s.codes.scales[i], visible[i]);
  });
  each_seen([&](uint32_t i, int32_t* scores) {
    l[i] = MatrixExponentials(reinterpret_cast<float*>(scores), s.v_scales, m[i], visible[i],
                              &greatest[i]);
  });
  each_seen([&](uint32_t i, int32_t* scores) {
    const size_t at = size_t{i} * kChunkTokens;
    f.unit[i] = MatrixWeights(chunk, reinterpret_cast<float*>(scores), visible[i], greatest[i],
                              s.upper + at, s.lower + at);
  });
  FoldStates(count, m, l, s.states, f);
  TileFence();
  for (uint32_t d = 0; d < head_dim; d += 2 * kLanes) {
    ValueTiles(chunk, s, s.values + d * kChunkTokens, f, count, s.o + d, head_dim);
  }
}

// The outputs of one row and KV head, in the order of d.
inline void EmitMatrixRow(const AttentionArgs& args, uint32_t out_row, uint32_t kv_head,
                          const MatrixScratch& s, size_t query) {
  const uint32_t group = args.num_heads / args.num_kv_heads;
  for (uint32_t h = 0; h < group; ++h) {
    const float* o = s.o + (query + h) * args.head_dim;
    float* out = s.heads + size_t{h} * args.head_dim;
    for (uint32_t d = 0; d < args.head_dim; d += kDepth) {
      for (uint32_t j = 0; j < 4; ++j)
        StoreQuarters(out + d + 4 * j, Load(o + d + j * kLanes), kDepth);
    }
  }
  EmitHeads(args, out_row, kv_head, s.heads, s.states + query);
}

// All chunks of a task's rows (attention_kernel.h, WholeTask).
inline void MatrixTask(const AttentionArgs& args, const AttentionTask& task, Scratch scratch) {
  const MatrixScratch s = MatrixScratchOf(args, scratch);
  const uint32_t group = args.num_heads / args.num_kv_heads;
  const uint32_t kv_heads = task.kv_head_end - task.kv_head_begin;
  const uint32_t head_queries = task.num_rows * group;
  for (uint32_t i = 0; i < kv_heads * head_queries; ++i) s.states[i] = {0.0f, 0.0f, true};
  EncodeQueries(args, task, s.codes);
  const TileUse tiles(kDepth, head_queries < kTileSide ? head_queries : kTileSide);
  for (uint32_t chunk = task.chunk_begin; chunk < task.chunk_end; ++chunk) {
    const ChunkView view = ViewChunk(args, task, 2 * chunk);
    if (view.num_queries == 0) continue;
    for (uint32_t head = 0; head < kv_heads; ++head) {
      const uint32_t kv_head = task.kv_head_begin + head;
      const MatrixChunk part = {view.pages, KeyOffset<KvFormat::kInt8>(args, kv_head),
                                ValueOffset<KvFormat::kInt8>(args, kv_head),
                                view.pages.begin / kStepPages,
                                (view.pages.end + kStepPages - 1) / kStepPages};
      PrepareChunk(part, args.head_dim, s);
      for (uint32_t first = 0; first < head_queries; first += kTileSide) {
        const uint32_t left = head_queries - first;
        const size_t query = size_t{head} * head_queries + first;
        MatrixScratch tile = s;
        tile.o += query * args.head_dim;
        tile.states += query;
        tile.codes.codes += query * args.head_dim;
        tile.codes.scales += query;
        tile.codes.offsets += query;
        QueryTileOnMatrix(part, view, group, args.head_dim, first,
                          left < kTileSide ? left : kTileSide, tile);
      }
    }
  }
  for (uint32_t r = 0; r < task.num_rows; ++r) {
    for (uint32_t h = 0; h < kv_heads; ++h) {
      EmitMatrixRow(args, task.out_begin + r, task.kv_head_begin + h, s,
                    size_t{h} * head_queries + r * group);
    }
  }
}

}  // namespace kvrm::ops::KVRM_LANES_NS
