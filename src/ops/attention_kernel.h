// Paged grouped-query attention. Included once per machine after lanes.h and row_kernels.h.
//
// Contract (num-1, rule 6): chunks of 256 tokens at absolute indices. Within a chunk two passes:
// all scores (an fma chain over d ascending, times scale), the exact maximum m, p = Exp(s - m),
// l = halves of 128 tokens, each 16 lanes and the fixed tree; o = an fma chain over tokens
// ascending. Chunks are folded left to right. K and V of a page are read once for all
// query heads that share them, and once for all rows of a task. Over int8 pages both sums of
// products are integers (rule 12).
#pragma once

#include "ops/attention_float.h"
#include "ops/attention_int8.h"
#include "ops/attention_pages.h"
#include "ops/attention_tile.h"
#include "ops/lanes.h"
#include "ops/op_args.h"
#include "ops/row_kernels.h"

namespace kvrm::ops::KVRM_LANES_NS {

// Normalises and encodes the query heads of KV head `kv_head` of one output row: o [group,
// head_dim].
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

// Scratch of a task. Queries of all its KV heads: those of the first, then those of the next; of
// one head row r's h-th is r * group + h.
struct AttentionScratch {
  float* scores;       // [kTileQueries][kChunkTokens]
  float* chunk_o;      // [kTileQueries][head_dim]
  int8_t* weights;     // [kTileQueries][kWeightBytes], int8 pages alone
  float* o;            // [queries][head_dim]
  QueryState* states;  // [queries]
  QueryCodes codes;    // [queries], int8 pages alone
};

template <KvFormat kFormat, uint32_t Q>
inline void ChunkQueries(const AttentionArgs& args, const ChunkPages& pages, uint32_t kv_head,
                         bool first, NextKeys next, QueryTile& tile) {
  if constexpr (kFormat == KvFormat::kInt8) {
    Int8Chunk<Q>(args, pages, kv_head, first, next, tile);
  } else {
    FloatChunk<kFormat, Q>(args, pages, kv_head, first, next, tile);
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
  const size_t queries = size_t{kMaxTaskRows} * args.num_heads;
  AttentionScratch s;
  s.scores = reinterpret_cast<float*>(scratch.data);
  s.chunk_o = s.scores + kTileQueries * kChunkTokens;
  s.weights = reinterpret_cast<int8_t*>(s.chunk_o + kTileQueries * args.head_dim);
  s.o = reinterpret_cast<float*>(s.weights + kTileQueries * kWeightBytes);
  s.states = reinterpret_cast<QueryState*>(s.o + queries * args.head_dim);
  s.codes.scales = reinterpret_cast<float*>(s.states + queries);
  s.codes.offsets = reinterpret_cast<int32_t*>(s.codes.scales + queries);
  s.codes.codes = reinterpret_cast<int8_t*>(s.codes.offsets + queries);
  return s;
}

// Computes one chunk for all rows of `task` and one KV head, and hands (query of the KV head, m, l,
// o) of every query that sees any of it to `sink`. Tiles are of nearly equal sizes: 8 queries are
// 4 + 4.
template <KvFormat kFormat, class Sink>
inline void RunChunk(const AttentionArgs& args, const AttentionTask& task, uint32_t kv_head,
                     const ChunkView& view, NextKeys next, const AttentionScratch& scratch,
                     Sink&& sink) {
  const uint32_t group = args.num_heads / args.num_kv_heads;
  const size_t first_query = size_t{kv_head - task.kv_head_begin} * task.num_rows * group;
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
    tile.scores[tile.count] = scratch.scores + size_t{tile.count} * kChunkTokens;
    tile.out[tile.count] = scratch.chunk_o + size_t{tile.count} * args.head_dim;
    if constexpr (kFormat == KvFormat::kInt8) {
      tile.codes[tile.count] = scratch.codes.codes + (first_query + i) * args.head_dim;
      tile.code_scale[tile.count] = scratch.codes.scales[first_query + i];
      tile.code_offset[tile.count] = scratch.codes.offsets[first_query + i];
      tile.weights[tile.count] = scratch.weights + size_t{tile.count} * kWeightBytes;
    }
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
  const size_t begin = KeyOffset<kFormat>(args, kv_head);
  const size_t end = ValueOffset<kFormat>(args, kv_head);  // scales come along with K
  for (uint32_t page = pages.begin; page < pages.end; ++page) {
    for (size_t line = begin; line < end; line += 64) {
      PrefetchNear(pages.page[page] + line);
    }
  }
}

// Runs all chunks of `task`: all KV heads of one chunk, which lie side by side in its pages, then
// those of the next. While one is computed the keys of the one after it are fetched. With a width
// each chunk may have a second view, whose (m, l, o) no one is told: so a width changes no bit.
template <KvFormat kFormat, class Sink>
inline void RunChunks(const AttentionArgs& args, const AttentionTask& task,
                      const AttentionScratch& scratch, Sink&& sink) {
  if (task.chunk_begin >= task.chunk_end) return;
  ChunkView views[2];
  const uint32_t step = args.width == 0 ? 2 : 1;
  const uint32_t end = 2 * task.chunk_end;
  views[0] = ViewChunk(args, task, 2 * task.chunk_begin);
  FetchKeys<kFormat>(args, views[0].pages, task.kv_head_begin);
  if constexpr (kFormat == KvFormat::kInt8) EncodeQueries(args, task, scratch.codes);
  uint32_t turn = 0;
  for (uint32_t at = 2 * task.chunk_begin; at < end; at += step, turn ^= 1) {
    const ChunkView& view = views[turn];
    ChunkView& next = views[turn ^ 1];
    const bool last_view = at + step >= end;
    if (!last_view) next = ViewChunk(args, task, at + step);
    for (uint32_t kv_head = task.kv_head_begin; kv_head < task.kv_head_end; ++kv_head) {
      const bool last_head = kv_head + 1 == task.kv_head_end;
      const ChunkPages* after = !last_head ? &view.pages : !last_view ? &next.pages : nullptr;
      const uint32_t head_after = last_head ? task.kv_head_begin : kv_head + 1;
      RunChunk<kFormat>(args, task, kv_head, view, {after, KeyOffset<kFormat>(args, head_after)},
                        scratch, [&](uint32_t i, float m, float l, const float* o) {
                          if (!view.behind) sink(view.chunk, kv_head, i, m, l, o);
                        });
    }
  }
}

// A task that holds all chunks of its rows: folds on the fly.
template <KvFormat kFormat>
inline void WholeTask(const AttentionArgs& args, const AttentionTask& task,
                      const AttentionScratch& scratch) {
  const uint32_t group = args.num_heads / args.num_kv_heads;
  const uint32_t kv_heads = task.kv_head_end - task.kv_head_begin;
  const uint32_t head_queries = task.num_rows * group;
  for (uint32_t i = 0; i < kv_heads * head_queries; ++i) scratch.states[i] = {0.0f, 0.0f, true};
  RunChunks<kFormat>(args, task, scratch,
                     [&](uint32_t, uint32_t kv_head, uint32_t i, float m, float l, const float* o) {
                       const size_t query = (kv_head - task.kv_head_begin) * head_queries + i;
                       Fold(scratch.states[query], scratch.o + query * args.head_dim, m, l, o,
                            args.head_dim);
                     });
  for (uint32_t r = 0; r < task.num_rows; ++r) {
    for (uint32_t h = 0; h < kv_heads; ++h) {
      const size_t query = h * head_queries + r * group;
      EmitHeads(args, task.out_begin + r, task.kv_head_begin + h, scratch.o + query * args.head_dim,
                scratch.states + query);
    }
  }
}

inline float* PartialOf(const AttentionArgs& args, const SplitRow& split, uint32_t chunk,
                        uint32_t head) {
  const size_t partial = size_t{split.partial_begin} + chunk;
  return args.partials + (partial * args.num_heads + head) * (args.head_dim + 2);
}

// A task that holds some chunks of one row: stores a partial state for each that the row sees.
template <KvFormat kFormat>
inline void SplitTask(const AttentionArgs& args, const AttentionTask& task,
                      const AttentionScratch& scratch) {
  const uint32_t group = args.num_heads / args.num_kv_heads;
  const SplitRow& split = args.split_rows[task.split];
  RunChunks<kFormat>(
      args, task, scratch,
      [&](uint32_t chunk, uint32_t kv_head, uint32_t i, float m, float l, const float* o) {
        float* partial = PartialOf(args, split, chunk, kv_head * group + i);
        for (uint32_t d = 0; d < args.head_dim; d += kLanes) Store(partial + d, Load(o + d));
        partial[args.head_dim] = m;
        partial[args.head_dim + 1] = l;
      });
}

// Folds the stored partials of a row in chunk order: the same chain as WholeTask.
inline void FoldSplit(const AttentionArgs& args, const SplitRow& split,
                      const AttentionScratch& scratch) {
  const uint32_t group = args.num_heads / args.num_kv_heads;
  QueryState* const states = scratch.states;
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
    EmitHeads(args, split.out_row, kv_head, scratch.o, states);
  }
}

template <KvFormat kFormat>
inline void RunTask(const AttentionArgs& args, const AttentionTask& task,
                    const AttentionScratch& scratch) {
  if (task.split == kNone32) {
    WholeTask<kFormat>(args, task, scratch);
  } else {
    SplitTask<kFormat>(args, task, scratch);
  }
}

inline void Attention(const AttentionArgs& args, uint32_t task_idx, Scratch worker_scratch) {
  const AttentionTask& task = args.tasks[task_idx];
  const AttentionScratch scratch = ScratchOf(args, worker_scratch);
  switch (args.format) {
    case KvFormat::kF32:
      RunTask<KvFormat::kF32>(args, task, scratch);
      break;
    case KvFormat::kF16:
      RunTask<KvFormat::kF16>(args, task, scratch);
      break;
    case KvFormat::kInt8:
      RunTask<KvFormat::kInt8>(args, task, scratch);
      break;
  }
  if (task.split == kNone32) return;
  const SplitRow& split = args.split_rows[task.split];
  if (args.split_done[task.split].fetch_add(1, std::memory_order_acq_rel) + 1 == split.num_tasks) {
    args.split_done[task.split].store(0, std::memory_order_relaxed);
    FoldSplit(args, split, scratch);
  }
}

}  // namespace kvrm::ops::KVRM_LANES_NS
