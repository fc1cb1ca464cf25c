// The one function through which every op of every replay is called. The replay hash (law I1) is
// taken here, from the op id, the addresses and the capacities that are really passed on.
#pragma once

#include <cstdint>

#include "base/worker_pool.h"
#include "exec/bound_program.h"
#include "exec/step_tables.h"
#include "ops/op_args.h"

namespace kvrm {

// Tables that live as long as the executor and are the same for all programs.
struct ExecConstants {
  const ops::KernelTable* kernels = nullptr;
  struct RopeTables {
    const float* cos = nullptr;  // [max_seq_tokens, rope_dims / 2]
    const float* sin = nullptr;
  };
  RopeTables global_rope, local_rope;  // local: null where no layer uses it
  float* panel_max = nullptr;          // [max_logits, num_panels]
  uint32_t num_panels = 0;             // blocks of 256 of the vocabulary
  uint32_t num_heads = 0, num_kv_heads = 0, head_dim = 0, rope_dims = 0;
  bool rope_interleaved = true;
  float norm_eps = 0;
  float attention_scale = 0;
  KvGeometry geometry;
  uint32_t num_threads = 1;
};

// What worker 0 notes of a replay: a running 64-bit hash (order matters), and how often a linear
// was called.
class ReplayTrace {
 public:
  void CountLinear() { ++linear_calls_; }
  uint64_t linear_calls() const { return linear_calls_; }
  void Add(uint64_t x) {
    state_ = (state_ ^ x) * 0x9E3779B97F4A7C15u;
    state_ ^= state_ >> 29;
  }
  void AddPointer(const void* p) { Add(reinterpret_cast<uint64_t>(p)); }
  uint64_t hash() const { return state_; }

 private:
  uint64_t linear_calls_ = 0;
  uint64_t state_ = 0x243F6A8885A308D3u;
};

// Runs this worker's share of one op. `trace` is given to worker 0 alone, nullptr to the others.
void Dispatch(const BoundOp& op, const ExecConstants& constants, StepTables& step,
              WorkCursor& cursor, ops::Scratch scratch, ReplayTrace* trace);

}  // namespace kvrm
