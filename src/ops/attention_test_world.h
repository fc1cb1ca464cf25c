// A KV cache of one layer and the rows that read it, for attention_test.cc. Test code only.
//
// Every byte of the pool is NaN unless a token lives there, as freed pages are in the pager's
// tests: a kernel that reads a place it must not see gives NaN (num-1, rule 8).
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "base/kv_view.h"
#include "ops/kernel_test_support.h"
#include "ops/op_args.h"
#include "ops/reference.h"
#include "tensor/kv_tile.h"

namespace kvrm::ops::testing {

struct Shape {
  KvFormat format = KvFormat::kF16;
  uint32_t group = 3;  // query heads of a KV head
  uint32_t num_kv_heads = 2;
  uint32_t head_dim = 64;
  uint32_t window = 0;
  float soft_cap = 0.0f;
  ActivationKind kind = ActivationKind::kFloat;
};

// One slot with `num_rows` rows at the end of a context of `num_tokens`.
class World {
 public:
  World(const Shape& shape, uint32_t num_tokens, uint32_t num_rows, uint32_t seed)
      : shape_(shape), num_tokens_(num_tokens), rng(seed) {
    const uint32_t num_pages = (num_tokens + kPageTokens - 1) / kPageTokens;
    num_pool_pages_ = 2 * num_pages + 3;
    pool_.assign(kPartOffset + num_pool_pages_ * PageBytes(), std::byte{0xFF});  // NaN either way
    PlacePages(num_pages);
    const size_t width = size_t{shape.num_kv_heads} * shape.head_dim;
    keys = RandomFloats(num_tokens * width, -1.5f, 1.5f, rng);
    values = RandomFloats(num_tokens * width, -2.0f, 2.0f, rng);
    Fill();
    for (uint32_t r = 0; r < num_rows; ++r) {
      Row row{};
      row.slot = kSlot;
      row.kv_index = num_tokens - num_rows + r;
      rows.push_back(row);
    }
    queries = RandomFloats(num_rows * QueryStride(), -1.0f, 1.0f, rng);
  }

  static constexpr uint32_t kSlot = 1;  // slot 0 is empty
  static constexpr size_t kPartOffset = 320;
  static constexpr uint32_t kSpareRows = 1;

  uint32_t NumHeads() const { return shape_.group * shape_.num_kv_heads; }
  uint32_t Width() const { return NumHeads() * shape_.head_dim; }
  size_t QueryStride() const { return Width() + 7; }
  size_t PageBytes() const {
    return KvTileOf(shape_.format, shape_.head_dim).head_bytes * shape_.num_kv_heads;
  }
  size_t OutStride() const {
    return (shape_.kind == ActivationKind::kFloat ? Width() * sizeof(float)
                                                  : ActivationLayout{Width()}.row_bytes()) +
           64;
  }
  uint32_t NumChunks() const { return (num_tokens_ + kChunkTokens - 1) / kChunkTokens; }

  float& Key(uint32_t token, uint32_t kv_head, uint32_t d) {
    return keys[(size_t{token} * shape_.num_kv_heads + kv_head) * shape_.head_dim + d];
  }
  float& Value(uint32_t token, uint32_t kv_head, uint32_t d) {
    return values[(size_t{token} * shape_.num_kv_heads + kv_head) * shape_.head_dim + d];
  }

  // Encodes keys and values into their pages as the reference does, and rounds them to what the
  // page holds.
  void Fill() {
    for (uint32_t t = 0; t < num_tokens_; ++t) {
      WriteToken(t);
      for (uint32_t h = 0; h < shape_.num_kv_heads; ++h) {
        for (uint32_t d = 0; d < shape_.head_dim; ++d) {
          Key(t, h, d) =
              HeldValue(shape_.format, shape_.head_dim, PageOf(t), h, t % kPageTokens, 0, d);
          Value(t, h, d) =
              HeldValue(shape_.format, shape_.head_dim, PageOf(t), h, t % kPageTokens, 1, d);
        }
      }
    }
  }

  // Pages of tokens that came before the window are given back: NaN, and gone from the table.
  void DropPagesBefore(uint32_t token) {
    while (!segments.empty() && segments.front().first_token + kPageTokens <= token) {
      Segment& front = segments.front();
      std::memset(pool_.data() + kPartOffset + front.offset_bytes, 0xFF, PageBytes());
      if (--front.num_pages == 0) {
        segments.erase(segments.begin());
      } else {
        front.first_token += kPageTokens;
        front.offset_bytes += PageBytes();
      }
    }
  }

  // Cuts every segment into single pages; the pages stay where they are.
  void CutSegments() {
    std::vector<Segment> cut;
    for (const Segment& s : segments) {
      for (uint32_t p = 0; p < s.num_pages; ++p) {
        Segment one = s;
        one.num_pages = 1;
        one.first_token += p * kPageTokens;
        one.offset_bytes += p * PageBytes();
        cut.push_back(one);
      }
    }
    segments = cut;
  }

  AttentionTask WholeTask(uint32_t row_begin, uint32_t num_rows) const {
    return {row_begin,
            static_cast<uint16_t>(num_rows),
            kSlot,
            0,
            static_cast<uint16_t>(shape_.num_kv_heads),
            0,
            NumChunks(),
            kNone32,
            row_begin};
  }
  // One task for all rows (at most kMaxTaskRows).
  std::vector<AttentionTask> Whole() const {
    return {WholeTask(0, static_cast<uint32_t>(rows.size()))};
  }

  // Runs the tasks in the given order. Output bytes that no task writes stay kUntouched.
  std::vector<std::byte> Run(const KernelTable& machine, const std::vector<AttentionTask>& tasks,
                             const std::vector<SplitRow>& splits = {}) {
    std::vector<Segment> table(2 * num_pool_pages_);
    std::copy(segments.begin(), segments.end(), table.begin() + num_pool_pages_);
    const uint32_t num_segments[2] = {0, static_cast<uint32_t>(segments.size())};
    std::vector<std::atomic<uint32_t>> done(splits.size());
    const size_t partial_floats = size_t{NumHeads()} * (shape_.head_dim + 2);
    std::vector<float> partials((rows.size() + 1) * NumChunks() * partial_floats, kNaN);
    std::vector<std::byte> out((rows.size() + kSpareRows) * OutStride(), kUntouched);
    AttentionArgs args{};
    args.q = queries.data();
    args.q_stride = QueryStride();
    args.rows = rows.data();
    args.tasks = tasks.data();
    args.split_rows = splits.data();
    args.split_done = done.data();
    args.partials = partials.data();
    args.segments = table.data();
    args.num_segments = num_segments;
    args.max_pages = num_pool_pages_;
    args.kv_base = pool_.data();
    args.part_offset = kPartOffset;
    args.page_bytes = PageBytes();
    args.format = shape_.format;
    args.num_heads = NumHeads();
    args.num_kv_heads = shape_.num_kv_heads;
    args.head_dim = shape_.head_dim;
    args.scale = scale;
    args.soft_cap = shape_.soft_cap;
    args.window = shape_.window;
    args.width = read_width;
    args.kind = shape_.kind;
    args.out = out.data();
    args.out_stride = OutStride();
    TestScratch scratch(NumHeads(), shape_.num_kv_heads, shape_.head_dim);
    for (uint32_t i = 0; i < tasks.size(); ++i) machine.attention(args, i, scratch.get());
    for (auto& count : done) EXPECT_EQ(count.load(), 0u) << "the last task resets its count";
    return out;
  }

  // The float output of one row and head. Requires: kFloat.
  std::vector<float> HeadOf(const std::vector<std::byte>& out, uint32_t row, uint32_t head) const {
    std::vector<float> y(shape_.head_dim);
    std::memcpy(y.data(), out.data() + row * OutStride() + size_t{head} * y.size() * sizeof(float),
                y.size() * sizeof(float));
    return y;
  }

  // Softmax attention in double over the values that the pages hold; over int8 pages, of the query
  // as it is rounded there.
  std::vector<double> Oracle(uint32_t row, uint32_t head) {
    const uint32_t kv_head = head / shape_.group;
    const uint32_t end = rows[row].kv_index + 1;
    const uint32_t first = shape_.window != 0 && end > shape_.window ? end - shape_.window : 0;
    const float* q = queries.data() + row * QueryStride() + size_t{head} * shape_.head_dim;
    std::vector<float> query(q, q + shape_.head_dim);
    if (shape_.format == KvFormat::kInt8) {
      const reference::Bytes bytes = reference::EncodeQuery(q, shape_.head_dim);
      for (uint32_t d = 0; d < query.size(); ++d) query[d] = bytes.codes[d] * bytes.scale;
    }
    std::vector<double> scores;
    for (uint32_t t = first; t < end; ++t) {
      double s = 0;
      for (uint32_t d = 0; d < shape_.head_dim; ++d) {
        s += double{query[d]} * Key(t, kv_head, d);
      }
      s *= scale;
      if (shape_.soft_cap != 0.0f) s = shape_.soft_cap * std::tanh(s / shape_.soft_cap);
      scores.push_back(s);
    }
    const double max = *std::max_element(scores.begin(), scores.end());
    double l = 0;
    std::vector<double> y(shape_.head_dim, 0.0);
    for (uint32_t t = first; t < end; ++t) {
      const double p = std::exp(scores[t - first] - max);
      l += p;
      for (uint32_t d = 0; d < shape_.head_dim; ++d) y[d] += p * Value(t, kv_head, d);
    }
    for (double& v : y) v /= l;
    return y;
  }

 private:
  // Runs of random lengths at random places of the pool, never overlapping.
  void PlacePages(uint32_t num_pages) {
    std::vector<uint32_t> lengths;
    for (uint32_t left = num_pages; left > 0; left -= lengths.back()) {
      lengths.push_back(1 + rng() % std::min<uint32_t>(left, 6));
    }
    std::vector<uint32_t> order(lengths.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), rng);
    std::vector<uint32_t> place(lengths.size());
    uint32_t page = 0;
    for (uint32_t i : order) {
      page += rng() % 2;
      place[i] = page;
      page += lengths[i];
    }
    uint32_t token = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
      segments.push_back({.offset_bytes = place[i] * PageBytes(),
                          .first_token = token,
                          .num_pages = lengths[i],
                          .row_mask = ~uint64_t{0}});
      token += lengths[i] * kPageTokens;
    }
  }

  std::byte* PageOf(uint32_t token) {
    for (const Segment& s : segments) {
      const uint32_t page = (token - s.first_token) / kPageTokens;
      if (token >= s.first_token && page < s.num_pages) {
        return pool_.data() + kPartOffset + s.offset_bytes + page * PageBytes();
      }
    }
    ADD_FAILURE() << "token " << token << " has no page";
    return pool_.data();
  }
  // Through the op itself, at position 0: cos 1, sin 0.
  void WriteToken(uint32_t token) {
    const size_t width = size_t{shape_.num_kv_heads} * shape_.head_dim;
    std::vector<float> qkv(keys.begin() + static_cast<ptrdiff_t>(token * width),
                           keys.begin() + static_cast<ptrdiff_t>((token + 1) * width));
    qkv.insert(qkv.end(), values.begin() + static_cast<ptrdiff_t>(token * width),
               values.begin() + static_cast<ptrdiff_t>((token + 1) * width));
    Row row{};
    row.kv_index = token;
    const auto offset = static_cast<uint64_t>(PageOf(token) - pool_.data() - kPartOffset);
    uint8_t status = 0;
    RopeWriteArgs args{};
    args.qkv = qkv.data();
    args.stride = qkv.size();
    args.rows = &row;
    args.write_offset = &offset;
    args.num_rows = 1;
    args.num_kv_heads = shape_.num_kv_heads;
    args.head_dim = shape_.head_dim;
    args.kv_base = pool_.data();
    args.part_offset = kPartOffset;
    args.format = shape_.format;
    args.row_status = &status;
    ReferenceKernels().rope_write(args, 0);
  }

  const Shape shape_;
  const uint32_t num_tokens_;
  uint32_t num_pool_pages_ = 0;
  std::vector<std::byte> pool_;

 public:
  std::mt19937 rng;
  std::vector<Segment> segments;
  std::vector<Row> rows;
  std::vector<float> keys, values, queries;
  float scale = 0.25f;
  uint32_t read_width = 0;
};

}  // namespace kvrm::ops::testing
