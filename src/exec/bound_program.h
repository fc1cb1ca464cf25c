// A program bound to memory: every op with the addresses and capacities that it will be given in
// every replay (law I1). Lives in pages of its own, which can be made read-only.
//
// Not thread-safe to build; immutable and shared by all workers afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/kv_view.h"
#include "base/result.h"
#include "graph/program.h"
#include "model/model.h"

namespace kvrm {

// Plain data, one per op. What Dispatch (dispatch.h) passes to kernels comes from here and from the
// step's live counts, from nowhere else.
struct BoundOp {
  OpKind kind;
  uint16_t layer;
  RowSet rows;
  uint8_t kv_group;
  uint8_t integer_activations;  // of what it writes, or of what a linear reads
  uint8_t gathers_in;           // `in` has every row, the op runs over those with logits
  uint8_t gathers_add;          // the same of `add`
  RopeKind rope;
  Gating gating;
  Encoding encoding;
  uint32_t max_rows;      // capacity
  uint32_t n, n_live, k;  // outputs and inputs, values
  std::byte* in;
  const float* add;
  const float* bias;  // [n], of a linear
  std::byte* out;
  uint64_t in_stride, out_stride;  // bytes
  const std::byte* weights;        // panels, or norm weights
  std::byte* kv_base;
  uint64_t part_offset;
  uint64_t page_bytes;  // b
  float scale;
  float soft_cap;
  uint32_t window;
};

// An arena of anonymous memory, 2 MiB aligned and huge-page advised, touched at creation.
class Arena {
 public:
  static Result<std::unique_ptr<Arena>> Create(uint64_t bytes);
  ~Arena();
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  void ProtectReadOnly();

 private:
  Arena() = default;
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

class BoundProgram {
 public:
  // Binds `program` to `arena` (at least program.arena_bytes), the model's weights and the KV
  // ranges. Errors: shapes that no kernel covers (named). `model` and `arena` outlive the result.
  static Result<std::unique_ptr<BoundProgram>> Create(const Program& program, const Model& model,
                                                      const KvGeometry& geometry,
                                                      std::byte* const* kv_base,
                                                      const Arena& arena);
  // Binds another plan of the same graph, in the same memory: what an executor without fixed shapes
  // does in every step. Not while a worker runs, nor once it is read-only.
  Status Bind(const Program& program, const Model& model, const KvGeometry& geometry,
              std::byte* const* kv_base, const Arena& arena);
  const BoundOp* ops() const { return reinterpret_cast<const BoundOp*>(memory_->data()); }
  uint32_t num_ops() const { return num_ops_; }
  const ProgramCapacity& capacity() const { return capacity_; }
  void ProtectReadOnly() { memory_->ProtectReadOnly(); }

 private:
  BoundProgram() = default;
  BoundOp* mutable_ops() { return reinterpret_cast<BoundOp*>(memory_->data()); }
  std::unique_ptr<Arena> memory_;
  uint32_t num_ops_ = 0;
  ProgramCapacity capacity_;
};

}  // namespace kvrm
