// Attention of the reference: one query and one token at a time. See reference.h.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "ops/op_args.h"
#include "ops/reference.h"
#include "tensor/dtype.h"
#include "tensor/kv_tile.h"

namespace kvrm::ops::reference {
namespace {

// The state of a softmax over some tokens: their greatest score, the sum of exp(score - m), and
// the values weighted by them. num_seen == 0: no token was visible, and nothing else counts.
struct State {
  uint32_t num_seen = 0;
  float m = 0.0f;
  float l = 0.0f;
  std::vector<float> o;  // [head_dim]
};

// K and V of one KV head, found through the slot's segments (tensor/kv_tile.h).
class Cache {
 public:
  Cache(const AttentionArgs& args, uint32_t slot, uint32_t kv_head)
      : args_(args), slot_(slot), kv_head_(kv_head), tile_(KvTileOf(args.format, args.head_dim)) {}

  // f32 and f16 pages.
  float Key(uint32_t token, uint32_t d) const {
    return Value(Head(token), size_t{d} * kPageTokens + token % kPageTokens);
  }
  float Val(uint32_t token, uint32_t d) const {
    return Value(Head(token) + tile_.v_begin, size_t{token % kPageTokens} * args_.head_dim + d);
  }
  // int8 pages.
  int32_t KeyCode(uint32_t token, uint32_t d) const {
    return Read<uint8_t>(Head(token), size_t{d / 4} * 64 + token % kPageTokens * 4 + d % 4) - 128;
  }
  int32_t ValCode(uint32_t token, uint32_t d) const {
    return Read<int8_t>(Head(token) + tile_.v_begin,
                        size_t{token % kPageTokens} * args_.head_dim + d);
  }
  float KeyScale(uint32_t token) const { return Scale(token, token % kPageTokens); }
  float ValScale(uint32_t token) const { return Scale(token, kPageTokens + token % kPageTokens); }

 private:
  float Value(const std::byte* values, size_t index) const {
    if (args_.format == KvFormat::kF32) return Read<float>(values, index);
    return HalfToFloat(Read<uint16_t>(values, index));
  }
  float Scale(uint32_t token, size_t index) const {
    return HalfToFloat(Read<uint16_t>(Head(token) + tile_.scales_begin, index));
  }
  const std::byte* Head(uint32_t token) const {
    const Segment* segments = args_.segments + size_t{slot_} * args_.max_pages;
    for (uint32_t i = 0; i < args_.num_segments[slot_]; ++i) {
      const Segment& s = segments[i];
      if (token < s.first_token) continue;
      const uint32_t page = (token - s.first_token) / kPageTokens;
      if (page < s.num_pages) {
        return args_.kv_base + s.offset_bytes + args_.part_offset + page * args_.page_bytes +
               kv_head_ * tile_.head_bytes;
      }
    }
    KVRM_CHECK(false, "a visible token lies in a segment of its slot");
  }

  const AttentionArgs& args_;
  const uint32_t slot_;
  const uint32_t kv_head_;
  const KvTile tile_;
};

// Rule 6: q . K[token], one fma chain, times the scale of attention. Rule 12: exact over bytes,
// then K's scale, then the query's, which holds that of attention.
float Dot(const AttentionArgs& args, const Cache& cache, const float* q, uint32_t token) {
  if (args.format == KvFormat::kInt8) {
    const Bytes query = EncodeQuery(q, args.head_dim);
    int32_t sum = 0;
    for (uint32_t d = 0; d < args.head_dim; ++d) sum += query.codes[d] * cache.KeyCode(token, d);
    return static_cast<float>(sum) * cache.KeyScale(token) * (query.scale * args.scale);
  }
  float dot = 0.0f;
  for (uint32_t d = 0; d < args.head_dim; ++d) dot = std::fma(q[d], cache.Key(token, d), dot);
  return dot * args.scale;
}

float Score(const AttentionArgs& args, const Cache& cache, const float* q, uint32_t token) {
  const float s = Dot(args, cache, q, token);
  return args.soft_cap == 0.0f ? s : SoftCap(s, args.soft_cap);
}

// o of the tokens from `first` on, which weigh p.
std::vector<float> WeighFloats(const AttentionArgs& args, const Cache& cache, uint32_t first,
                               const std::vector<float>& p) {
  std::vector<float> o(args.head_dim, 0.0f);
  for (uint32_t t = 0; t < p.size(); ++t) {
    for (uint32_t d = 0; d < args.head_dim; ++d) {
      o[d] = std::fma(p[t], cache.Val(first + t, d), o[d]);
    }
  }
  return o;
}

// Rule 12: p times V's scale as 14 bits of the greatest, then exact.
std::vector<float> WeighBytes(const AttentionArgs& args, const Cache& cache, uint32_t first,
                              const std::vector<float>& p) {
  std::vector<float> w;
  for (uint32_t t = 0; t < p.size(); ++t) w.push_back(p[t] * cache.ValScale(first + t));
  const float greatest = GreatestMagnitude(w.data(), static_cast<uint32_t>(w.size()));
  const float inverse = greatest > 0x1p-100f ? 16383.0f / greatest : 0.0f;
  const float unit = greatest * (1.0f / 16383.0f);
  std::vector<float> o;
  for (uint32_t d = 0; d < args.head_dim; ++d) {
    int32_t sum = 0;
    for (uint32_t t = 0; t < w.size(); ++t) {
      const float code = w[t] * inverse;
      sum += (std::isfinite(code) ? static_cast<int32_t>(std::rint(code)) : 0) *
             cache.ValCode(first + t, d);
    }
    o.push_back(static_cast<float>(sum) * unit);
  }
  return o;
}

// Tokens [first, last) of a chunk that a row sees: its own, the last, and those before it, as far
// back as the window goes.
struct Range {
  uint32_t first;
  uint32_t last;
};
Range Visible(const AttentionArgs& args, uint32_t row, uint32_t chunk) {
  const uint32_t end = args.rows[row].kv_index + 1;
  const uint32_t oldest = args.window != 0 && end > args.window ? end - args.window : 0;
  const uint32_t begin = chunk * kChunkTokens;
  return {std::max(oldest, begin), std::min(end, begin + kChunkTokens)};
}

// Rule 6, inside a chunk.
State ChunkState(const AttentionArgs& args, uint32_t row, uint32_t head, uint32_t chunk) {
  const uint32_t kv_head = head / (args.num_heads / args.num_kv_heads);
  const Cache cache(args, args.rows[row].slot, kv_head);
  const float* q = args.q + row * args.q_stride + size_t{head} * args.head_dim;
  const auto [first, last] = Visible(args, row, chunk);
  const uint32_t chunk_begin = chunk * kChunkTokens;
  State state;
  if (first >= last) return state;
  state.num_seen = last - first;
  std::vector<float> p(state.num_seen);
  state.m = -std::numeric_limits<float>::infinity();
  for (uint32_t t = first; t < last; ++t) {
    p[t - first] = Score(args, cache, q, t);
    if (p[t - first] > state.m) state.m = p[t - first];
  }
  Lanes halves[kChunkTokens / 128] = {};
  for (uint32_t t = first; t < last; ++t) {
    p[t - first] = Exp(p[t - first] - state.m);
    const uint32_t place = t - chunk_begin;
    halves[place / 128][place % kNumLanes] += p[t - first];
  }
  state.o = args.format == KvFormat::kInt8 ? WeighBytes(args, cache, first, p)
                                           : WeighFloats(args, cache, first, p);
  state.l = TreeSum(halves[0]);
  for (uint32_t h = 1; h < kChunkTokens / 128; ++h) state.l += TreeSum(halves[h]);
  return state;
}

// Rule 6, across chunks: `state` takes in the next chunk's.
void Fold(State& state, const State& chunk) {
  if (chunk.num_seen == 0) return;
  if (state.num_seen == 0) {
    state = chunk;
    return;
  }
  const float top = chunk.m > state.m ? chunk.m : state.m;
  const float a = Exp(state.m - top);
  const float b = Exp(chunk.m - top);
  for (size_t d = 0; d < state.o.size(); ++d) {
    state.o[d] = std::fma(state.o[d], a, chunk.o[d] * b);
  }
  state.l = std::fma(state.l, a, chunk.l * b);
  state.m = top;
  state.num_seen += chunk.num_seen;
}

// Divides by l and encodes the group of query heads of one KV head. A head that saw nothing gives
// zeros.
void Emit(const AttentionArgs& args, uint32_t row, uint32_t kv_head,
          const std::vector<State>& heads) {
  std::vector<float> y;
  for (const State& state : heads) {
    const float inverse = 1.0f / state.l;
    for (uint32_t d = 0; d < args.head_dim; ++d) {
      y.push_back(state.num_seen == 0 ? 0.0f : state.o[d] * inverse);
    }
  }
  const auto width = static_cast<uint32_t>(y.size());
  EncodePart(args.kind, y.data(), kv_head * width, width, args.num_heads * args.head_dim,
             args.out + row * args.out_stride);
}

// A stored state: o [head_dim], m, l.
float* PartialOf(const AttentionArgs& args, const SplitRow& split, uint32_t chunk, uint32_t head) {
  const size_t partial = size_t{split.partial_begin} + chunk;
  return args.partials + (partial * args.num_heads + head) * (args.head_dim + 2);
}

void StorePartial(const AttentionArgs& args, const State& state, float* partial) {
  if (state.num_seen == 0) return;
  std::copy(state.o.begin(), state.o.end(), partial);
  partial[args.head_dim] = state.m;
  partial[args.head_dim + 1] = state.l;
}

State LoadPartial(const AttentionArgs& args, const SplitRow& split, uint32_t chunk, uint32_t head) {
  State state;
  const auto [first, last] = Visible(args, split.row, chunk);
  if (first >= last) return state;
  const float* partial = PartialOf(args, split, chunk, head);
  state.num_seen = last - first;
  state.m = partial[args.head_dim];
  state.l = partial[args.head_dim + 1];
  state.o.assign(partial, partial + args.head_dim);
  return state;
}

void WholeRow(const AttentionArgs& args, const AttentionTask& task, uint32_t row,
              uint32_t out_row) {
  const uint32_t group = args.num_heads / args.num_kv_heads;
  for (uint32_t kv_head = task.kv_head_begin; kv_head < task.kv_head_end; ++kv_head) {
    std::vector<State> heads(group);
    for (uint32_t h = 0; h < group; ++h) {
      for (uint32_t chunk = task.chunk_begin; chunk < task.chunk_end; ++chunk) {
        Fold(heads[h], ChunkState(args, row, kv_head * group + h, chunk));
      }
    }
    Emit(args, out_row, kv_head, heads);
  }
}

void SplitRowTask(const AttentionArgs& args, const AttentionTask& task) {
  const SplitRow& split = args.split_rows[task.split];
  const uint32_t group = args.num_heads / args.num_kv_heads;
  for (uint32_t head = task.kv_head_begin * group; head < task.kv_head_end * group; ++head) {
    for (uint32_t chunk = task.chunk_begin; chunk < task.chunk_end; ++chunk) {
      StorePartial(args, ChunkState(args, task.row_begin, head, chunk),
                   PartialOf(args, split, chunk, head));
    }
  }
  const uint32_t done = args.split_done[task.split].fetch_add(1, std::memory_order_acq_rel) + 1;
  if (done != split.num_tasks) return;
  args.split_done[task.split].store(0, std::memory_order_relaxed);
  for (uint32_t kv_head = 0; kv_head < args.num_kv_heads; ++kv_head) {
    std::vector<State> heads(group);
    for (uint32_t h = 0; h < group; ++h) {
      for (uint32_t chunk = 0; chunk < split.num_chunks; ++chunk) {
        Fold(heads[h], LoadPartial(args, split, chunk, kv_head * group + h));
      }
    }
    Emit(args, split.out_row, kv_head, heads);
  }
}

}  // namespace

void Attention(const AttentionArgs& args, uint32_t task_idx, Scratch) {
  const AttentionTask& task = args.tasks[task_idx];
  if (task.split != kNone32) return SplitRowTask(args, task);
  for (uint32_t r = 0; r < task.num_rows; ++r) {
    WholeRow(args, task, task.row_begin + r, task.out_begin + r);
  }
}

}  // namespace kvrm::ops::reference
