// The lowest level of the API, for programs that want logits and not requests: pager, frame builder
// and executor, driven step by step without scheduler or engine. `eval` and `bench` are its users,
// and it is the shortest complete example of one step:
//
//   pager.BeginStep -> Reserve -> Commit -> builder.Publish -> executor.Replay -> pager.StepDone
//
// Thread class: engine-thread-only. Ownership: it owns model, pool, pager, builder and executor.
// Errors: opening is a Result; the pool is sized for max_slots sequences of max_seq_tokens, so that
// running out of room is a bug (KVRM_CHECK).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/kv_view.h"
#include "base/result.h"
#include "base/worker_pool.h"
#include "exec/cpu_executor.h"
#include "exec/executor.h"
#include "frame/frame.h"
#include "model/model.h"
#include "pager/pager.h"

namespace kvrm::cli {

struct StepOptions {
  WeightChoice weights = WeightChoice::kAuto;
  KvFormat kv_format = KvFormat::kF16;
  SimdLevel simd = SimdLevel::kAuto;
  uint32_t num_threads = 0;  // 0 = CPUs allowed to this process
  uint32_t max_slots = 1;
  uint32_t max_seq_tokens = 0;
  OpTimes* op_times = nullptr;  // see CpuExecutorConfig
  std::function<void(double)> progress;
};

// The next tokens of one sequence, computed in one step.
struct TokenRun {
  SeqId seq;
  std::span<const TokenId> tokens;
  uint32_t num_logits = 0;  // logits of the last so many of them
};

class StepDriver {
 public:
  static Result<std::unique_ptr<StepDriver>> Open(const GgufFile& file, const StepOptions& options);

  // Edits, each a step of its own that computes nothing.
  SeqId OpenSequence();  // Requires: fewer than max_slots are open
  void CloseSequence(SeqId seq);
  void Trim(SeqId seq, uint32_t num_tokens);  // keeps the first num_tokens

  // One step. Logits come in the order of the slots of `runs`' sequences, then of tokens; their
  // first is logits row 0. The result is valid until the next Run.
  // Requires: distinct sequences; together at most max_rows() tokens and max_logits() logits.
  StepResult Run(std::span<const TokenRun> runs);

  // Gives `seq` num_tokens places that hold the same small numbers in all layers: a cache that was
  // not computed, for timing. Requires: `seq` is empty.
  void FillSynthetic(SeqId seq, uint32_t num_tokens);

  // Computes `tokens` of one sequence in steps of at most max_rows() rows, no logits but of the
  // last token when `want_last`.
  StepResult Prefill(SeqId seq, std::span<const TokenId> tokens, bool want_last);

  SlotId slot(SeqId seq) const { return pager_->slot(seq); }
  uint32_t max_rows() const { return executor_->info().max_rows[kNumPrograms - 1]; }
  uint32_t max_logits() const { return executor_->info().max_logits; }
  const Model& model() const { return *model_; }
  const Executor& executor() const { return *executor_; }
  const KvGeometry& geometry() const { return pager_->geometry(); }
  uint32_t num_threads() const { return pool_->num_threads(); }

 private:
  StepDriver() = default;
  void Edit(const std::function<void(Pager&)>& edits);
  // Ends the step that BeginStep began: commit and publish.
  FrameView Publish();

  std::unique_ptr<const Model> model_;
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<Pager> pager_;
  std::unique_ptr<FrameBuilder> builder_;
  std::unique_ptr<Executor> executor_;
  uint64_t epoch_ = 0;
  std::vector<TokenRun> by_slot_;  // of the step being built
  std::vector<Row> rows_;
  std::vector<SlotHead> slots_;  // ascending slot
};

}  // namespace kvrm::cli
