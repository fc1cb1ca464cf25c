// Paged grouped-query attention. Included once per machine after lanes.h and row_kernels.h.
//
// Contract (num-1, rule 6): chunks of 256 tokens at absolute indices. Within a chunk two passes:
// all scores (an fma chain over d ascending, times scale), the exact maximum m, p = Exp(s - m),
// l = halves of 128 tokens, each 16 lanes and the fixed tree; o = an fma chain over tokens
// ascending. Chunks are folded left to right. K and V of a page are read once for all
// query heads that share them, and once for all rows of a task.
#pragma once

#include "ops/lanes.h"
#include "ops/op_args.h"
#include "ops/row_kernels.h"

namespace kvrm::ops::KVRM_LANES_NS {

inline constexpr uint32_t kChunkPages = kChunkTokens / kPageTokens;
inline constexpr uint32_t kHalfTiles = 128 / kLanes;
inline constexpr uint32_t kChunkHalves = kChunkTokens / 128;
inline constexpr uint32_t kTileQueries = 6;

// The pages [begin, end) of one chunk, found by walking a slot's segments. Pages that no row of the
// task sees are not looked up: a window's may be gone.
struct ChunkPages {
  const std::byte* page[kChunkPages];
  uint32_t begin;
  uint32_t end;
};

inline uint32_t SegmentOf(const Segment* segments, uint32_t num, uint32_t token) {
  uint32_t low = 0;
  uint32_t high = num;
  while (high - low > 1) {
    const uint32_t mid = (low + high) / 2;
    if (segments[mid].first_token <= token)
      low = mid;
    else
      high = mid;
  }
  return low;
}

// Pages that hold tokens [first, end) of the chunk.
inline ChunkPages FindPages(const AttentionArgs& args, uint32_t slot, uint32_t chunk,
                            uint32_t first, uint32_t end) {
  const Segment* segments = args.segments + size_t{slot} * args.max_pages;
  ChunkPages pages;
  pages.begin = first / kPageTokens;
  pages.end = (end + kPageTokens - 1) / kPageTokens;
  uint32_t token = chunk * kChunkTokens + pages.begin * kPageTokens;
  uint32_t segment = SegmentOf(segments, args.num_segments[slot], token);
  for (uint32_t page = pages.begin; page < pages.end; ++page, token += kPageTokens) {
    while ((token - segments[segment].first_token) / kPageTokens >= segments[segment].num_pages) {
      ++segment;
    }
    const Segment& s = segments[segment];
    const size_t at = (token - s.first_token) / kPageTokens;
    pages.page[page] = args.kv_base + s.offset_bytes + args.part_offset + at * args.page_bytes;
  }
  return pages;
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
// Q * PG independent chains hide the fma latency.
template <KvFormat kFormat, uint32_t Q, uint32_t PG>
inline void ScoreTile(const float* const* query, const std::byte* const* k_tile, uint32_t head_dim,
                      float* const* scores, uint32_t first_page) {
  F acc[Q][PG];
  for (uint32_t q = 0; q < Q; ++q) {
    for (uint32_t g = 0; g < PG; ++g) acc[q][g] = Zero();
  }
  for (uint32_t d = 0; d < head_dim; ++d) {
    F k[PG];
    for (uint32_t g = 0; g < PG; ++g) k[g] = LoadKv<kFormat>(k_tile[g], size_t{d} * kPageTokens);
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
                       uint32_t head_dim, float* const* scores) {
  const std::byte* tiles[PG];
  uint32_t page = pages.begin;
  for (; page + PG <= pages.end; page += PG) {
    for (uint32_t g = 0; g < PG; ++g) tiles[g] = pages.page[page + g] + k_offset;
    ScoreTile<kFormat, Q, PG>(query, tiles, head_dim, scores, page);
  }
  for (; page < pages.end; ++page) {
    tiles[0] = pages.page[page] + k_offset;
    ScoreTile<kFormat, Q, 1>(query, tiles, head_dim, scores, page);
  }
}

// out[q][d..] continues its chain over tokens [begin, end) ascending: += p[q][t] * V[t][d..], for Q
// queries x D blocks of 16. Storing and loading a chain between ranges does not change it.
template <KvFormat kFormat, uint32_t Q, uint32_t D>
inline void ValueTile(const float* const* p, const ChunkPages& pages, size_t v_offset,
                      uint32_t head_dim, uint32_t first_d, uint32_t begin, uint32_t end,
                      float* const* out) {
  F acc[Q][D];
  for (uint32_t q = 0; q < Q; ++q) {
    for (uint32_t d = 0; d < D; ++d) acc[q][d] = Load(out[q] + first_d + d * kLanes);
  }
  for (uint32_t t = begin; t < end; ++t) {
    const std::byte* v = pages.page[t / kPageTokens] + v_offset;
    const size_t row = size_t{t % kPageTokens} * head_dim + first_d;
    F value[D];
    for (uint32_t d = 0; d < D; ++d) value[d] = LoadKv<kFormat>(v, row + d * kLanes);
    for (uint32_t q = 0; q < Q; ++q) {
      const F x = Set(p[q][t]);
      for (uint32_t d = 0; d < D; ++d) acc[q][d] = Fma(x, value[d], acc[q][d]);
    }
  }
  for (uint32_t q = 0; q < Q; ++q) {
    for (uint32_t d = 0; d < D; ++d) Store(out[q] + first_d + d * kLanes, acc[q][d]);
  }
}

template <KvFormat kFormat, uint32_t Q>
inline void ValuePages(const float* const* p, const ChunkPages& pages, size_t v_offset,
                       uint32_t head_dim, uint32_t begin, uint32_t end, float* const* out) {
  if (begin >= end) return;
  uint32_t d = 0;
  for (; d + 64 <= head_dim; d += 64) {
    ValueTile<kFormat, Q, 4>(p, pages, v_offset, head_dim, d, begin, end, out);
  }
  for (; d < head_dim; d += kLanes) {
    ValueTile<kFormat, Q, 1>(p, pages, v_offset, head_dim, d, begin, end, out);
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

// Visible range [first, end) of a row within a chunk; end == first when it sees nothing.
struct Visible {
  uint32_t first;
  uint32_t end;
};
inline Visible VisibleIn(const AttentionArgs& args, const Row& row, uint32_t chunk) {
  const uint32_t begin = chunk * kChunkTokens;
  const uint32_t end = row.kv_index + 1;
  const uint32_t oldest = args.window != 0 && end > args.window ? end - args.window : 0;
  if (end <= begin || oldest >= begin + kChunkTokens) return {0, 0};
  const uint32_t live = end - begin < kChunkTokens ? end - begin : kChunkTokens;
  return {oldest > begin ? oldest - begin : 0, live};
}

// (m, l, o) of one chunk for up to kTileQueries queries that all see `common` pages.
template <KvFormat kFormat, uint32_t Q>
inline void ChunkQueries(const AttentionArgs& args, const float* const* query,
                         const Visible* visible, const ChunkPages& pages, uint32_t kv_head,
                         float* const* scores, float* const* out, float* m, float* l) {
  constexpr uint32_t kPages = Q <= 3 ? 4 : 2;
  constexpr size_t kValueBytes = kFormat == KvFormat::kF32 ? 4 : 2;
  const size_t head_values = size_t{2} * kPageTokens * args.head_dim;
  const size_t k_offset = kv_head * head_values * kValueBytes;
  const size_t v_offset = k_offset + head_values / 2 * kValueBytes;
  ScorePages<kFormat, Q, kPages>(query, pages, k_offset, args.head_dim, scores);
  for (uint32_t q = 0; q < Q; ++q) {
    Softmax(args, scores[q], visible[q].first, visible[q].end, &m[q], &l[q]);
  }
  // What all queries see runs as one tile; a query's own head and tail run alone, in order. A place
  // that a query does not see must not be read: 0 * NaN of a recycled place is NaN (num-1, rule 8).
  uint32_t begin = visible[0].first;
  uint32_t end = visible[0].end;
  for (uint32_t q = 0; q < Q; ++q) {
    begin = visible[q].first > begin ? visible[q].first : begin;
    end = visible[q].end < end ? visible[q].end : end;
    for (uint32_t d = 0; d < args.head_dim; d += kLanes) Store(out[q] + d, Zero());
  }
  if (end < begin) end = begin;
  for (uint32_t q = 0; q < Q; ++q) {
    const uint32_t stop = visible[q].end < begin ? visible[q].end : begin;
    ValuePages<kFormat, 1>(scores + q, pages, v_offset, args.head_dim, visible[q].first, stop,
                           out + q);
  }
  ValuePages<kFormat, Q>(scores, pages, v_offset, args.head_dim, begin, end, out);
  for (uint32_t q = 0; q < Q; ++q) {
    const uint32_t from = visible[q].first > end ? visible[q].first : end;
    ValuePages<kFormat, 1>(scores + q, pages, v_offset, args.head_dim, from, visible[q].end,
                           out + q);
  }
}

template <KvFormat kFormat>
inline void ChunkTile(const AttentionArgs& args, uint32_t count, const float* const* query,
                      const Visible* visible, const ChunkPages& pages, uint32_t kv_head,
                      float* const* scores, float* const* out, float* m, float* l) {
  switch (count) {
    case 1:
      return ChunkQueries<kFormat, 1>(args, query, visible, pages, kv_head, scores, out, m, l);
    case 2:
      return ChunkQueries<kFormat, 2>(args, query, visible, pages, kv_head, scores, out, m, l);
    case 3:
      return ChunkQueries<kFormat, 3>(args, query, visible, pages, kv_head, scores, out, m, l);
    case 4:
      return ChunkQueries<kFormat, 4>(args, query, visible, pages, kv_head, scores, out, m, l);
    case 5:
      return ChunkQueries<kFormat, 5>(args, query, visible, pages, kv_head, scores, out, m, l);
    case 6:
      return ChunkQueries<kFormat, 6>(args, query, visible, pages, kv_head, scores, out, m, l);
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

// Computes chunk `chunk` for all rows of `task` and one KV head, and hands (query, m, l, o) of
// every query that sees any of it to `sink`.
template <KvFormat kFormat, class Sink>
inline void RunChunk(const AttentionArgs& args, const AttentionTask& task, uint32_t kv_head,
                     uint32_t chunk, const AttentionScratch& scratch, Sink&& sink) {
  const uint32_t group = args.num_heads / args.num_kv_heads;
  const uint32_t num_queries = task.num_rows * group;
  uint32_t least = kChunkTokens;
  uint32_t most = 0;
  Visible seen[kMaxTaskRows];
  for (uint32_t r = 0; r < task.num_rows; ++r) {
    seen[r] = VisibleIn(args, args.rows[task.row_begin + r], chunk);
    if (seen[r].end == 0) continue;
    least = seen[r].first < least ? seen[r].first : least;
    most = seen[r].end > most ? seen[r].end : most;
  }
  if (most == 0) return;
  const ChunkPages pages = FindPages(args, task.slot, chunk, least, most);
  const float* query[kTileQueries];
  Visible visible[kTileQueries];
  float* scores[kTileQueries];
  float* out[kTileQueries];
  uint32_t index[kTileQueries];
  float m[kTileQueries];
  float l[kTileQueries];
  uint32_t count = 0;
  for (uint32_t i = 0; i < num_queries; ++i) {
    const uint32_t row = i / group;
    if (seen[row].end != 0) {
      query[count] = args.q + (task.row_begin + row) * args.q_stride +
                     size_t{kv_head * group + i % group} * args.head_dim;
      visible[count] = seen[row];
      scores[count] = scratch.scores + size_t{i} * kChunkTokens;
      out[count] = scratch.chunk_o + size_t{i} * args.head_dim;
      index[count++] = i;
    }
    if (count == kTileQueries || (count != 0 && i + 1 == num_queries)) {
      ChunkTile<kFormat>(args, count, query, visible, pages, kv_head, scores, out, m, l);
      for (uint32_t q = 0; q < count; ++q) sink(index[q], m[q], l[q], out[q]);
      count = 0;
    }
  }
}

// A task that holds all chunks of its rows: folds on the fly.
template <KvFormat kFormat>
inline void WholeTask(const AttentionArgs& args, const AttentionTask& task, uint32_t kv_head,
                      const AttentionScratch& scratch, QueryState* states) {
  const uint32_t group = args.num_heads / args.num_kv_heads;
  for (uint32_t i = 0; i < task.num_rows * group; ++i) states[i] = {0.0f, 0.0f, true};
  for (uint32_t chunk = task.chunk_begin; chunk < task.chunk_end; ++chunk) {
    RunChunk<kFormat>(
        args, task, kv_head, chunk, scratch, [&](uint32_t i, float m, float l, const float* o) {
          Fold(states[i], scratch.o + size_t{i} * args.head_dim, m, l, o, args.head_dim);
        });
  }
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
  for (uint32_t chunk = task.chunk_begin; chunk < task.chunk_end; ++chunk) {
    RunChunk<kFormat>(args, task, kv_head, chunk, scratch,
                      [&](uint32_t i, float m, float l, const float* o) {
                        float* partial = PartialOf(args, split, chunk, kv_head * group + i);
                        for (uint32_t d = 0; d < args.head_dim; d += kLanes) {
                          Store(partial + d, Load(o + d));
                        }
                        partial[args.head_dim] = m;
                        partial[args.head_dim + 1] = l;
                      });
  }
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
