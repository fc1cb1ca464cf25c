// The CPU executor: static programs over one arena, kernels chosen at start by what the CPU can do.
// Invariance class kFull: law I5 whole.
#pragma once

#include <memory>

#include "base/kv_view.h"
#include "base/worker_pool.h"
#include "exec/executor.h"
#include "exec/kv_width.h"
#include "exec/op_times.h"
#include "model/model.h"

namespace kvrm {

enum class SimdLevel : uint8_t { kAuto, kPortable, kAvx2, kAvx512, kAmx };  // --simd

// Tests only: what a broken executor would do in its replays (never in warm-up). Each must turn law
// I1 red: hash_mismatches, or the allocation hook.
enum class ReplayMutant : uint8_t {
  kNone,
  kDropOp,
  kMoveInput,
  kMoveOutput,
  kMoveWeights,
  kMovePart,  // another layer's part of the pages
  kAllocate,
};

struct CpuExecutorConfig {
  uint32_t max_slots = 32;
  uint32_t max_seq_tokens = 0;
  uint32_t mixed_rows = 64;     // prompt rows of program `mixed`
  uint32_t prefill_rows = 512;  // prompt rows of program `prefill`
  KvGeometry geometry;
  std::byte* kv_base[kMaxKvGroups] = {};  // base addresses of the pager's ranges
  SimdLevel simd = SimdLevel::kAuto;
  KvWidth kv_width = KvWidth::kLive;
  // Each replay plans a program of exactly its rows and logits, in the same memory. Law I1 does not
  // hold then: nothing is hashed against warm-up.
  bool exact_shapes = false;
  // Each replay computes all rows and logits of its program: those that are not live read place 0
  // of a live slot (where windows left it, what a live row reads), and nobody reads what comes of
  // them. Not with exact_shapes.
  bool strict_shape = false;
  bool protect_program = false;  // program memory read-only after warm-up (tests)
  ReplayMutant mutant = ReplayMutant::kNone;
  uint32_t mutant_op = 1;  // index of the op that it breaks
  // Measuring only: if given, the ops stand in it after creation, and every replay adds its times.
  // Outlives the executor.
  OpTimes* op_times = nullptr;
};

// `model` and `pool` outlive the executor. Errors: SIMD level not offered by this CPU, model shapes
// that no kernel covers.
Result<std::unique_ptr<Executor>> CreateCpuExecutor(const Model& model,
                                                    const CpuExecutorConfig& config,
                                                    WorkerPool& pool);

}  // namespace kvrm
