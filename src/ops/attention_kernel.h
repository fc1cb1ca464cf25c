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

// Scratch of a task: scores [queries][256], chunk o and running o [queries][head_dim]; for int8
// pages the queries' codes [queries][head_dim] with what goes with them, and weights
// [queries][256][2].
struct AttentionScratch {
  float* scores;
  float* chunk_o;
  float* o;
  QueryState* states;
  QueryCodes codes;
  int8_t* weights;
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
  const uint32_t queries = kMaxTaskRows * (args.num_heads / args.num_kv_heads);
  AttentionScratch s;
  s.scores = reinterpret_cast<float*>(scratch.data);
  s.chunk_o = s.scores + size_t{queries} * kChunkTokens;
  s.o = s.chunk_o + size_t{queries} * args.head_dim;
  s.states = reinterpret_cast<QueryState*>(s.o + size_t{queries} * args.head_dim);
  s.codes.scales = reinterpret_cast<float*>(s.states + queries);
  s.codes.offsets = reinterpret_cast<int32_t*>(s.codes.scales + queries);
  s.weights = reinterpret_cast<int8_t*>(s.codes.offsets + queries);
  s.codes.codes = s.weights + size_t{queries} * kWeightBytes;
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
    if constexpr (kFormat == KvFormat::kInt8) {
      tile.codes[tile.count] = scratch.codes.codes + size_t{i} * args.head_dim;
      tile.code_scale[tile.count] = scratch.codes.scales[i];
      tile.code_offset[tile.count] = scratch.codes.offsets[i];
      tile.weights[tile.count] = scratch.weights + size_t{i} * kWeightBytes;
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

// Runs all chunks of `task` for one KV head. While one chunk is computed the next one's keys are
// fetched; after the last, those of the next KV head.
template <KvFormat kFormat, class Sink>
inline void RunChunks(const AttentionArgs& args, const AttentionTask& task, uint32_t kv_head,
                      const AttentionScratch& scratch, Sink&& sink) {
  if (task.chunk_begin >= task.chunk_end) return;
  ChunkView views[2];
  views[0] = ViewChunk(args, task, task.chunk_begin);
  if (kv_head == task.kv_head_begin) FetchKeys<kFormat>(args, views[0].pages, kv_head);
  if constexpr (kFormat == KvFormat::kInt8) EncodeQueries(args, task, kv_head, scratch.codes);
  for (uint32_t chunk = task.chunk_begin; chunk < task.chunk_end; ++chunk) {
    const ChunkView& view = views[(chunk - task.chunk_begin) % 2];
    ChunkView& next = views[(chunk - task.chunk_begin + 1) % 2];
    const bool last = chunk + 1 == task.chunk_end;
    next = ViewChunk(args, task, last ? task.chunk_begin : chunk + 1);
    const bool fetch = !last || kv_head + 1 < task.kv_head_end;
    const NextKeys keys = {fetch ? &next.pages : nullptr,
                           KeyOffset<kFormat>(args, last ? kv_head + 1 : kv_head)};
    RunChunk<kFormat>(
        args, task, kv_head, view, keys, scratch,
        [&](uint32_t i, float m, float l, const float* o) { sink(chunk, i, m, l, o); });
  }
}

// A task that holds all chunks of its rows: folds on the fly.
template <KvFormat kFormat>
inline void WholeTask(const AttentionArgs& args, const AttentionTask& task, uint32_t kv_head,
                      const AttentionScratch& scratch) {
  const uint32_t group = args.num_heads / args.num_kv_heads;
  QueryState* const states = scratch.states;
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
    EmitHeads(args, split.row, kv_head, scratch.o, states);
  }
}

template <KvFormat kFormat>
inline void RunTask(const AttentionArgs& args, const AttentionTask& task,
                    const AttentionScratch& scratch) {
  for (uint32_t kv_head = task.kv_head_begin; kv_head < task.kv_head_end; ++kv_head) {
    if (task.split == kNone32) {
      WholeTask<kFormat>(args, task, kv_head, scratch);
    } else {
      SplitTask<kFormat>(args, task, kv_head, scratch);
    }
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
