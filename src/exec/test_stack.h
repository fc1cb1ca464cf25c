// Model, pager, frames and executor without an engine: what executor tests drive by hand.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exec/cpu_executor.h"
#include "frame/frame.h"
#include "model/random_model.h"
#include "pager/pager.h"

namespace kvrm::testing {

struct TestStackConfig {
  RandomModelSpec spec;    // of the random model ...
  std::string model_path;  // ... unless a file is named; then spec.context bounds a sequence
  LoadOptions load;
  KvFormat kv_format = KvFormat::kF16;
  uint32_t max_slots = 8;
  uint32_t num_threads = 2;
  uint64_t kv_bytes = uint64_t{16} << 20;
  SimdLevel simd = SimdLevel::kAuto;
  bool protect_program = false;
  bool poison_freed = true;
  ReplayMutant mutant = ReplayMutant::kNone;
  uint32_t mutant_op = 1;
};

// A random model that every kernel takes: int8 groups of 32, two KV heads.
RandomModelSpec SmallSpec();

class TestStack {
 public:
  explicit TestStack(
      const TestStackConfig& config);  // fails the test when something cannot be made

  // Tokens that one sequence computes in a step; the logits of the last, or of all, are wanted.
  struct Feed {
    SeqId seq;
    std::vector<TokenId> tokens;
    bool all_logits = false;
  };
  SeqId Open();
  void Close(SeqId seq);
  // One whole step: reserve, commit, publish, replay. `view` is left for dumps.
  StepResult Step(const std::vector<Feed>& feeds);
  // The parts of Step.
  FrameView Publish(const std::vector<Feed>& feeds);
  StepResult Replay(const FrameView& view);
  void Done();  // the replay of the last published step has finished
  std::vector<float> Logits(const StepResult& result, uint32_t index) const;

  Executor& executor() { return *executor_; }
  Pager& pager() { return *pager_; }
  const Model& model() const { return *model_; }
  const KvGeometry& geometry() const { return pager_->geometry(); }
  const std::vector<std::byte>& file_bytes() const { return file_bytes_; }

 private:
  std::vector<std::byte> file_bytes_;
  std::unique_ptr<const GgufFile> file_;
  std::unique_ptr<const Model> model_;
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<Pager> pager_;
  std::unique_ptr<FrameBuilder> frames_;
  std::unique_ptr<Executor> executor_;
  std::vector<SeqId> open_;
  uint64_t epoch_ = 0;
  bool in_step_ = false;
};

}  // namespace kvrm::testing
