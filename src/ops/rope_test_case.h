// Two rows that are rotated and written into a pool of pages, for row_ops_test.cc and
// kv_write_test.cc. Test code only.
#pragma once

#include <cmath>
#include <vector>

#include "ops/kernel_test_support.h"
#include "ops/op_args.h"

namespace kvrm::ops::testing {

struct RopeCase {
  static constexpr uint32_t kHeads = 3;
  static constexpr uint32_t kKvHeads = 2;
  static constexpr uint32_t kPositions = 70;
  static constexpr size_t kPageBytes = 1 << 16;
  static constexpr size_t kPart = 128;

  RopeCase(uint32_t dim, uint32_t dims, bool pairs, KvFormat kv_format, uint32_t seed)
      : head_dim(dim), rope_dims(dims), interleaved(pairs), format(kv_format) {
    std::mt19937 rng(seed);
    stride = (kHeads + 2 * kKvHeads) * head_dim + 3;
    qkv = RandomFloats(3 * stride, -2.0f, 2.0f, rng);
    for (uint32_t p = 0; p < kPositions; ++p) {
      for (uint32_t i = 0; i < rope_dims / 2; ++i) {
        const double angle = p * std::pow(10000.0, -2.0 * i / rope_dims);
        cos_table.push_back(static_cast<float>(std::cos(angle)));
        sin_table.push_back(static_cast<float>(std::sin(angle)));
      }
    }
    rows.resize(2);
    rows[0].position = 69;
    rows[0].kv_index = 35;  // place 3 of its page
    rows[1].position = 7;
    rows[1].kv_index = 15;
  }
  struct Result {
    std::vector<float> qkv;
    std::vector<std::byte> pages;
    std::vector<uint8_t> status;
  };
  Result Run(const KernelTable& machine) const {
    Result result = {qkv, std::vector<std::byte>(3 * kPageBytes, kUntouched), {0, 0, 0}};
    const uint64_t write_offset[] = {2 * kPageBytes, 0};
    RopeWriteArgs args{};
    args.qkv = result.qkv.data();
    args.stride = stride;
    args.rows = rows.data();
    args.write_offset = write_offset;
    args.num_rows = 2;
    args.num_heads = kHeads;
    args.num_kv_heads = kKvHeads;
    args.head_dim = head_dim;
    args.rope_dims = rope_dims;
    args.interleaved = interleaved;
    args.cos_table = cos_table.data();
    args.sin_table = sin_table.data();
    args.kv_base = result.pages.data();
    args.part_offset = kPart;
    args.format = format;
    args.row_status = result.status.data();
    for (uint32_t r = 0; r < 2; ++r) machine.rope_write(args, r);
    return result;
  }
  // K (0) or V (1) of a written row as its page holds it.
  float Held(const Result& result, uint32_t row, uint32_t kv_head, uint32_t plane,
             uint32_t d) const {
    const size_t page = row == 0 ? 2 * kPageBytes : 0;
    return HeldValue(format, head_dim, result.pages.data() + page + kPart, kv_head,
                     rows[row].kv_index % kPageTokens, plane, d);
  }
  size_t KeyAt(uint32_t row, uint32_t kv_head) const {
    return row * stride + (kHeads + kv_head) * head_dim;
  }
  size_t ValueAt(uint32_t row, uint32_t kv_head) const {
    return KeyAt(row, kv_head) + kKvHeads * head_dim;
  }

  uint32_t head_dim;
  uint32_t rope_dims;
  bool interleaved;
  KvFormat format;
  size_t stride;
  std::vector<float> qkv, cos_table, sin_table;
  std::vector<Row> rows;
};

}  // namespace kvrm::ops::testing
