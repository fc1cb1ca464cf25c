// Paged grouped-query attention. Included once per machine after lanes.h and row_kernels.h.
//
// Contract (num-1, rule 6): chunks of 256 tokens at absolute indices. Within a chunk two passes:
// all scores (an fma chain over d ascending, times scale), the exact maximum m, p = Exp(s - m),
// l = halves of 128 tokens, each 16 lanes and the fixed tree; o = an fma chain over tokens
// ascending. Chunks are folded left to right. K and V of a page are read once for all
// query heads that share them, and once for all rows of a task.
#pragma once

#include "ops/attention_pages.h"
#include "ops/lanes.h"
#include "ops/op_args.h"
#include "ops/row_kernels.h"

namespace kvrm::ops::KVRM_LANES_NS {

inline constexpr uint32_t kHalfTiles = 128 / kLanes;
inline constexpr uint32_t kChunkHalves = kChunkTokens / 128;
inline constexpr uint32_t kTileQueries = 6;

// Distance of K's or V's tile from the beginning of a page.
template <KvFormat kFormat>
inline size_t TileOffset(const AttentionArgs& args, uint32_t kv_head, uint32_t plane) {
  const size_t tile_bytes =
      size_t{kPageTokens} * args.head_dim * (kFormat == KvFormat::kF32 ? 4 : 2);
  return (2 * kv_head + plane) * tile_bytes;
}

template <KvFormat kFormat>
inline F LoadKv(const std::byte* base, size_t value) {
  if constexpr (kFormat == KvFormat::kF32) {
    return Load(reinterpret_cast<const float*>(base) + value);
  } else {
    return LoadHalf(reinterpret_cast<const uint16_t*>(base) + value);
  }
}

// scores[q][16 pages ..] = chain over d of query[q][d] * K[d], for Q queries and PG pages at once:
// Q * PG independent chains hide the fma latency. `fetch`: the V tiles, which lie behind the K
// tiles, are brought near meanwhile.
template <KvFormat kFormat, uint32_t Q, uint32_t PG>
inline void ScoreTile(const float* const* query, const std::byte* const* k_tile, uint32_t head_dim,
                      bool fetch, float* const* scores, uint32_t first_page) {
  constexpr size_t kRowBytes = kPageTokens * (kFormat == KvFormat::kF32 ? 4 : 2);
  const size_t tile_bytes = head_dim * kRowBytes;
  F acc[Q][PG];
  for (uint32_t q = 0; q < Q; ++q) {
    for (uint32_t g = 0; g < PG; ++g) acc[q][g] = Zero();
  }
  for (uint32_t d = 0; d < head_dim; ++d) {
    F k[PG];
    for (uint32_t g = 0; g < PG; ++g) k[g] = LoadKv<kFormat>(k_tile[g], size_t{d} * kPageTokens);
    if (fetch && d % (64 / kRowBytes) == 0) {
      for (uint32_t g = 0; g < PG; ++g) PrefetchNear(k_tile[g] + tile_bytes + d * kRowBytes);
    }
    for (uint32_t q = 0; q < Q; ++q) {
      const F x = Set(query[q][d]);
      for (uint32_t g = 0; g < PG; ++g) acc[q][g] = Fma(x, k[g], acc[q][g]);
    }
  }
  for (uint32_t q = 0; q < Q; ++q) {
    for (uint32_t g = 0; g < PG; ++g) Store(scores[q] + (first_page + g) * kPageTokens, acc[q][g]);
  }
}

template <KvFormat kFormat, uint32_t Q, uint32_t PG>
inline void ScorePages(const float* const* query, const ChunkPages& pages, size_t k_offset,
                       uint32_t head_dim, bool fetch, float* const* scores) {
  const std::byte* tiles[PG];
  uint32_t page = pages.begin;
  for (; page + PG <= pages.end; page += PG) {
    for (uint32_t g = 0; g < PG; ++g) tiles[g] = pages.page[page + g] + k_offset;
    ScoreTile<kFormat, Q, PG>(query, tiles, head_dim, fetch, scores, page);
  }
  for (; page < pages.end; ++page) {
    tiles[0] = pages.page[page] + k_offset;
    ScoreTile<kFormat, Q, 1>(query, tiles, head_dim, fetch, scores, page);
  }
}

// The K tiles that are read after the V tiles at hand: brought near meanwhile.
struct NextKeys {
  const ChunkPages* pages;  // nullptr: none
  size_t k_offset;
};

// out[q][d..] continues its chain over tokens [begin, end) ascending: += p[q][t] * V[t][d..], for Q
// queries x D blocks of 16. Storing and loading a chain between ranges does not change it.
template <KvFormat kFormat, uint32_t Q, uint32_t D>
inline void ValueTile(const float* const* p, const ChunkPages& pages, size_t v_offset,
                      uint32_t head_dim, uint32_t first_d, uint32_t begin, uint32_t end,
                      NextKeys next, float* const* out) {
  constexpr size_t kValueBytes = kFormat == KvFormat::kF32 ? 4 : 2;
  const size_t row_bytes = head_dim * kValueBytes;
  F acc[Q][D];
  for (uint32_t q = 0; q < Q; ++q) {
    for (uint32_t d = 0; d < D; ++d) acc[q][d] = Load(out[q] + first_d + d * kLanes);
  }
  for (uint32_t t = begin; t < end;) {
    const uint32_t page = t / kPageTokens;
    const std::byte* tile = pages.page[page] + v_offset;
    const bool fetch = next.pages != nullptr && page >= next.pages->begin && page < next.pages->end;
    const std::byte* next_tile = fetch ? next.pages->page[page] + next.k_offset : tile;
    const uint32_t stop = (page + 1) * kPageTokens < end ? (page + 1) * kPageTokens : end;
    for (; t < stop; ++t) {
      const size_t row = t % kPageTokens * row_bytes;
      F value[D];
      for (uint32_t d = 0; d < D; ++d) {
        value[d] = LoadKv<kFormat>(tile + row, first_d + d * kLanes);
      }
      for (size_t line = 0; fetch && line < row_bytes; line += 64) {
        PrefetchNear(next_tile + row + line);
      }
      for (uint32_t q = 0; q < Q; ++q) {
        const F x = Set(p[q][t]);
        for (uint32_t d = 0; d < D; ++d) acc[q][d] = Fma(x, value[d], acc[q][d]);
      }
    }
  }
  for (uint32_t q = 0; q < Q; ++q) {
    for (uint32_t d = 0; d < D; ++d) Store(out[q] + first_d + d * kLanes, acc[q][d]);
  }
}

template <KvFormat kFormat, uint32_t Q>
inline void ValuePages(const float* const* p, const ChunkPages& pages, size_t v_offset,
                       uint32_t head_dim, uint32_t begin, uint32_t end, NextKeys next,
                       float* const* out) {
  if (begin >= end) return;
  uint32_t d = 0;
  for (; d + 64 <= head_dim; d += 64, next.pages = nullptr) {
    ValueTile<kFormat, Q, 4>(p, pages, v_offset, head_dim, d, begin, end, next, out);
  }
  for (; d < head_dim; d += kLanes) {
    ValueTile<kFormat, Q, 1>(p, pages, v_offset, head_dim, d, begin, end, {nullptr, 0}, out);
  }
}

// From scores to p and l, in place. Tokens [first, live) count; the others of their tiles become
// exactly 0, whatever their scores were.
inline void Softmax(const AttentionArgs& args, float* scores, uint32_t first, uint32_t live,
                    float* m_out, float* l_out) {
  const F scale = Set(args.scale);
  const F low = Set(-__builtin_inff());
  const uint32_t tiles = (live + kLanes - 1) / kLanes;
  F m = low;
  for (uint32_t t = first / kLanes; t < tiles; ++t) {
    F s = Mul(Load(scores + t * kLanes), scale);
    if (args.soft_cap != 0.0f) {  // cap * tanh(s / cap), tanh(x) = 1 - 2 / (exp(2x) + 1)
      const F e = Exp(Mul(s, Set(2.0f / args.soft_cap)));
      const F tanh = Sub(Set(1.0f), Div(Set(2.0f), Add(e, Set(1.0f))));
      s = Mul(tanh, Set(args.soft_cap));
    }
    if (t * kLanes < first) s = SelectFirst(first - t * kLanes, low, s);
    if (live - t * kLanes < kLanes) s = SelectFirst(live - t * kLanes, s, low);
    Store(scores + t * kLanes, s);
    m = Max(s, m);
  }
  const float max = MaxLane(m);
  F half[kChunkHalves];
  for (F& h : half) h = Zero();
  for (uint32_t t = first / kLanes; t < tiles; ++t) {
    const F p = Exp(Sub(Load(scores + t * kLanes), Set(max)));
    Store(scores + t * kLanes, p);
    half[t / kHalfTiles] = Add(half[t / kHalfTiles], p);
  }
  *m_out = max;
  float l = TreeSum(half[0]);
  for (uint32_t h = 1; h < kChunkHalves; ++h) l += TreeSum(half[h]);
  *l_out = l;
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

// Normalises and encodes the query heads of KV head `kv_head` of one row: o [group, head_dim].
inline void EmitHeads(const AttentionArgs& args, uint32_t row, uint32_t kv_head, float* o,
                      const QueryState* states) {
  const uint32_t group = args.num_heads / args.num_kv_heads;
  const uint32_t width = group * args.head_dim;
  for (uint32_t h = 0; h < group; ++h) {
    const float inverse = 1.0f / states[h].l;  // l >= 1 unless empty; a NaN must stay one
    float* x = o + size_t{h} * args.head_dim;
    for (uint32_t d = 0; d < args.head_dim; d += kLanes) {
      Store(x + d, states[h].empty ? Zero() : Mul(Load(x + d), Set(inverse)));
    }
  }
  std::byte* out = args.out + row * args.out_stride;
  const uint32_t first = kv_head * width;
  if (args.kind == ActivationKind::kFloat) {
    float* y = reinterpret_cast<float*>(out) + first;
    for (uint32_t i = 0; i < width; i += kLanes) Store(y + i, Load(o + i));
    return;
  }
  for (uint32_t i = 0; i < width; i += kGroup) {
    EncodeGroup(Load(o + i), Load(o + i + kLanes), out, args.num_heads * args.head_dim,
                (first + i) / kGroup);
  }
}

// Scratch of a task: scores [queries][256], chunk o and running o [queries][head_dim].
struct AttentionScratch {
  float* scores;
  float* chunk_o;
  float* o;
};

// What up to kTileQueries queries of one KV head read and write in one chunk.
struct QueryTile {
  uint32_t count;
  const float* query[kTileQueries];
  Visible visible[kTileQueries];
  float* scores[kTileQueries];
  float* out[kTileQueries];
  uint32_t index[kTileQueries];  // of the task's queries
  float m[kTileQueries];
  float l[kTileQueries];
};

// (m, l, o) of one chunk. `first`: no other tile has passed over these pages, so they are fetched.
template <KvFormat kFormat, uint32_t Q>
inline void ChunkQueries(const AttentionArgs& args, const ChunkPages& pages, uint32_t kv_head,
                         bool first, NextKeys next, QueryTile& tile) {
  constexpr uint32_t kPages = Q <= 3 ? 4 : 2;
  const size_t v_offset = TileOffset<kFormat>(args, kv_head, 1);
  ScorePages<kFormat, Q, kPages>(tile.query, pages, TileOffset<kFormat>(args, kv_head, 0),
                                 args.head_dim, first, tile.scores);
  for (uint32_t q = 0; q < Q; ++q) {
    Softmax(args, tile.scores[q], tile.visible[q].first, tile.visible[q].end, &tile.m[q],
            &tile.l[q]);
  }
  // What all queries see runs as one tile; a query's own head and tail run alone, in order. A place
  // that a query does not see must not be read: 0 * NaN of a recycled place is NaN (num-1, rule 8).
  uint32_t begin = tile.visible[0].first;
  uint32_t end = tile.visible[0].end;
  for (uint32_t q = 0; q < Q; ++q) {
    begin = tile.visible[q].first > begin ? tile.visible[q].first : begin;
    end = tile.visible[q].end < end ? tile.visible[q].end : end;
    for (uint32_t d = 0; d < args.head_dim; d += kLanes) Store(tile.out[q] + d, Zero());
  }
  if (end < begin) end = begin;
  const auto alone = [&](uint32_t q, uint32_t from, uint32_t to) {
    ValuePages<kFormat, 1>(tile.scores + q, pages, v_offset, args.head_dim, from, to, {nullptr, 0},
                           tile.out + q);
  };
  for (uint32_t q = 0; q < Q; ++q) {
    alone(q, tile.visible[q].first, tile.visible[q].end < begin ? tile.visible[q].end : begin);
  }
  ValuePages<kFormat, Q>(tile.scores, pages, v_offset, args.head_dim, begin, end, next, tile.out);
  for (uint32_t q = 0; q < Q; ++q) {
    alone(q, tile.visible[q].first > end ? tile.visible[q].first : end, tile.visible[q].end);
  }
}

template <KvFormat kFormat>
inline void ChunkTile(const AttentionArgs& args, const ChunkPages& pages, uint32_t kv_head,
                      bool first, NextKeys next, QueryTile& tile) {
  switch (tile.count) {
    case 1:
      return ChunkQueries<kFormat, 1>(args, pages, kv_head, first, next, tile);
    case 2:
      return ChunkQueries<kFormat, 2>(args, pages, kv_head, first, next, tile);
    case 3:
      return ChunkQueries<kFormat, 3>(args, pages, kv_head, first, next, tile);
    case 4:
      return ChunkQueries<kFormat, 4>(args, pages, kv_head, first, next, tile);
    case 5:
      return ChunkQueries<kFormat, 5>(args, pages, kv_head, first, next, tile);
    case 6:
      return ChunkQueries<kFormat, 6>(args, pages, kv_head, first, next, tile);
    default:
      return;
  }
}

inline AttentionScratch ScratchOf(const AttentionArgs& args, Scratch scratch) {
  const uint32_t queries = kMaxTaskRows * (args.num_heads / args.num_kv_heads);
  AttentionScratch s;
  s.scores = reinterpret_cast<float*>(scratch.data);
  s.chunk_o = s.scores + size_t{queries} * kChunkTokens;
  s.o = s.chunk_o + size_t{queries} * args.head_dim;
  return s;
}

// Computes one chunk for all rows of `task` and one KV head, and hands (query, m, l, o) of every
// query that sees any of it to `sink`. Tiles are of nearly equal sizes: 8 queries are 4 + 4.
template <KvFormat kFormat, class Sink>
inline void RunChunk(const AttentionArgs& args, const AttentionTask& task, uint32_t kv_head,
                     const ChunkView& view, NextKeys next, const AttentionScratch& scratch,
                     Sink&& sink) {
  const uint32_t group = args.num_heads / args.num_kv_heads;
  uint32_t tiles = (view.num_queries + kTileQueries - 1) / kTileQueries;
  uint32_t left = view.num_queries;
  bool first = true;
  QueryTile tile;
  tile.count = 0;
  for (uint32_t i = 0; left != 0; ++i) {
    const uint32_t row = i / group;
    if (view.seen[row].end == 0) continue;
    tile.query[tile.count] = args.q + (task.row_begin + row) * args.q_stride +
                             size_t{kv_head * group + i % group} * args.head_dim;
    tile.visible[tile.count] = view.seen[row];
    tile.scores[tile.count] = scratch.scores + size_t{i} * kChunkTokens;
    tile.out[tile.count] = scratch.chunk_o + size_t{i} * args.head_dim;
    tile.index[tile.count++] = i;
    if (tile.count < (left + tiles - 1) / tiles) continue;
    ChunkTile<kFormat>(args, view.pages, kv_head, first, tiles == 1 ? next : NextKeys{nullptr, 0},
                       tile);
    for (uint32_t q = 0; q < tile.count; ++q) {
      sink(tile.index[q], tile.m[q], tile.l[q], tile.out[q]);
    }
    left -= tile.count;
    --tiles;
    tile.count = 0;
    first = false;
  }
}

// Brings the K tiles of a task's first chunk near: no work came before it that could have.
template <KvFormat kFormat>
inline void FetchKeys(const AttentionArgs& args, const ChunkPages& pages, uint32_t kv_head) {
  const size_t k_offset = TileOffset<kFormat>(args, kv_head, 0);
  const size_t tile_bytes = TileOffset<kFormat>(args, 0, 1);
  for (uint32_t page = pages.begin; page < pages.end; ++page) {
    for (size_t line = 0; line < tile_bytes; line += 64) {
      PrefetchNear(pages.page[page] + k_offset + line);
    }
  }
}

// Runs all chunks of `task` for one KV head. While one chunk is computed the next one's keys are
// fetched; after the last, those of the next KV head.
template <KvFormat kFormat, class Sink>
inline void RunChunks(const AttentionArgs& args, const AttentionTask& task, uint32_t kv_head,
                      const AttentionScratch& scratch, Sink&& sink) {
  if (task.chunk_begin >= task.chunk_end) return;
  ChunkView views[2];
  views[0] = ViewChunk(args, task, task.chunk_begin);
  if (kv_head == task.kv_head_begin) FetchKeys<kFormat>(args, views[0].pages, kv_head);
  for (uint32_t chunk = task.chunk_begin; chunk < task.chunk_end; ++chunk) {
    const ChunkView& view = views[(chunk - task.chunk_begin) % 2];
    ChunkView& next = views[(chunk - task.chunk_begin + 1) % 2];
    const bool last = chunk + 1 == task.chunk_end;
    next = ViewChunk(args, task, last ? task.chunk_begin : chunk + 1);
    const bool fetch = !last || kv_head + 1 < task.kv_head_end;
    const NextKeys keys = {fetch ? &next.pages : nullptr,
                           TileOffset<kFormat>(args, last ? kv_head + 1 : kv_head, 0)};
    RunChunk<kFormat>(
        args, task, kv_head, view, keys, scratch,
        [&](uint32_t i, float m, float l, const float* o) { sink(chunk, i, m, l, o); });
  }
}

// A task that holds all chunks of its rows: folds on the fly.
template <KvFormat kFormat>
inline void WholeTask(const AttentionArgs& args, const AttentionTask& task, uint32_t kv_head,
                      const AttentionScratch& scratch, QueryState* states) {
  const uint32_t group = args.num_heads / args.num_kv_heads;
  for (uint32_t i = 0; i < task.num_rows * group; ++i) states[i] = {0.0f, 0.0f, true};
  RunChunks<kFormat>(
      args, task, kv_head, scratch, [&](uint32_t, uint32_t i, float m, float l, const float* o) {
        Fold(states[i], scratch.o + size_t{i} * args.head_dim, m, l, o, args.head_dim);
      });
  for (uint32_t r = 0; r < task.num_rows; ++r) {
    EmitHeads(args, task.row_begin + r, kv_head, scratch.o + size_t{r} * group * args.head_dim,
              states + r * group);
  }
}

inline float* PartialOf(const AttentionArgs& args, const SplitRow& split, uint32_t chunk,
                        uint32_t head) {
  const size_t partial = size_t{split.partial_begin} + chunk;
  return args.partials + (partial * args.num_heads + head) * (args.head_dim + 2);
}

// A task that holds some chunks of one row: stores a partial state for each that the row sees.
template <KvFormat kFormat>
inline void SplitTask(const AttentionArgs& args, const AttentionTask& task, uint32_t kv_head,
                      const AttentionScratch& scratch) {
  const uint32_t group = args.num_heads / args.num_kv_heads;
  const SplitRow& split = args.split_rows[task.split];
  RunChunks<kFormat>(args, task, kv_head, scratch,
                     [&](uint32_t chunk, uint32_t i, float m, float l, const float* o) {
                       float* partial = PartialOf(args, split, chunk, kv_head * group + i);
                       for (uint32_t d = 0; d < args.head_dim; d += kLanes) {
                         Store(partial + d, Load(o + d));
                       }
                       partial[args.head_dim] = m;
                       partial[args.head_dim + 1] = l;
                     });
}

// Folds the stored partials of a row in chunk order: the same chain as WholeTask.
inline void FoldSplit(const AttentionArgs& args, const SplitRow& split,
                      const AttentionScratch& scratch, QueryState* states) {
  const uint32_t group = args.num_heads / args.num_kv_heads;
  for (uint32_t kv_head = 0; kv_head < args.num_kv_heads; ++kv_head) {
    for (uint32_t h = 0; h < group; ++h) {
      states[h] = {0.0f, 0.0f, true};
      float* o = scratch.o + size_t{h} * args.head_dim;
      for (uint32_t chunk = 0; chunk < split.num_chunks; ++chunk) {
        if (VisibleIn(args, args.rows[split.row], chunk).end == 0) continue;
        const float* partial = PartialOf(args, split, chunk, kv_head * group + h);
        Fold(states[h], o, partial[args.head_dim], partial[args.head_dim + 1], partial,
             args.head_dim);
      }
    }
    EmitHeads(args, split.row, kv_head, scratch.o, states);
  }
}

inline void Attention(const AttentionArgs& args, uint32_t task_idx, Scratch worker_scratch) {
  const AttentionTask& task = args.tasks[task_idx];
  const AttentionScratch scratch = ScratchOf(args, worker_scratch);
  QueryState* states = reinterpret_cast<QueryState*>(
      scratch.o + size_t{kMaxTaskRows} * (args.num_heads / args.num_kv_heads) * args.head_dim);
  const bool f32 = args.format == KvFormat::kF32;
  for (uint32_t kv_head = task.kv_head_begin; kv_head < task.kv_head_end; ++kv_head) {
    if (task.split == kNone32) {
      f32 ? WholeTask<KvFormat::kF32>(args, task, kv_head, scratch, states)
          : WholeTask<KvFormat::kF16>(args, task, kv_head, scratch, states);
    } else {
      f32 ? SplitTask<KvFormat::kF32>(args, task, kv_head, scratch)
          : SplitTask<KvFormat::kF16>(args, task, kv_head, scratch);
    }
  }
  if (task.split == kNone32) return;
  const SplitRow& split = args.split_rows[task.split];
  if (args.split_done[task.split].fetch_add(1, std::memory_order_acq_rel) + 1 == split.num_tasks) {
    args.split_done[task.split].store(0, std::memory_order_relaxed);
    FoldSplit(args, split, scratch, states);
  }
}

}  // namespace kvrm::ops::KVRM_LANES_NS
