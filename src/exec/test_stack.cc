#include "exec/test_stack.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kvrm::testing {
namespace {

template <class T>
T Must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return std::move(result).value();
}

}  // namespace

RandomModelSpec SmallSpec() {
  RandomModelSpec spec;
  spec.hidden = 128;
  spec.heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = 32;
  spec.ffn = 160;
  spec.context = 1024;
  return spec;
}

TestStack::TestStack(const TestStackConfig& config) {
  if (config.model_path.empty()) {
    file_bytes_ = WriteRandomModel(config.spec);
    file_ = Must(GgufFile::Parse(file_bytes_, "random"));
  } else {
    file_ = Must(GgufFile::Open(config.model_path));
  }
  model_ = Must(Model::Load(*file_, config.load));
  pool_ = std::make_unique<WorkerPool>(config.num_threads);
  PagerConfig pager;
  pager.geometry = Must(KvGeometryOf(model_->config(), config.kv_format));
  pager.kv_bytes = config.kv_bytes;
  pager.max_slots = config.max_slots;
  pager.max_seq_tokens = config.spec.context;
  pager.poison_freed = config.poison_freed;
  pager_ = Must(Pager::Create(pager));
  CpuExecutorConfig exec;
  exec.max_slots = config.max_slots;
  exec.max_seq_tokens = config.spec.context;
  exec.geometry = pager_->geometry();
  for (uint32_t g = 0; g < exec.geometry.groups.size(); ++g) exec.kv_base[g] = pager_->base(g);
  exec.simd = config.simd;
  exec.protect_program = config.protect_program;
  exec.mutant = config.mutant;
  exec.mutant_op = config.mutant_op;
  executor_ = Must(CreateCpuExecutor(*model_, exec, *pool_));
  executor_->WarmUp();
  FrameCapacity capacity;
  capacity.max_slots = config.max_slots;
  capacity.max_rows = executor_->info().max_rows[kNumPrograms - 1];
  capacity.max_pages = (config.spec.context + 15) / 16;
  frames_ = Must(FrameBuilder::Create(pager_->geometry(), capacity));
}

SeqId TestStack::Open() {
  if (!in_step_) pager_->BeginStep();
  in_step_ = true;
  const SeqId seq = pager_->Open().value();
  open_.push_back(seq);
  return seq;
}

void TestStack::Close(SeqId seq) {
  if (!in_step_) pager_->BeginStep();
  in_step_ = true;
  pager_->Close(seq);
  std::erase(open_, seq);
}

FrameView TestStack::Publish(const std::vector<Feed>& feeds) {
  if (!in_step_) pager_->BeginStep();
  in_step_ = false;
  std::vector<Row> rows;
  std::vector<SlotHead> slots;
  uint32_t num_logits = 0;
  for (const Feed& feed : feeds) {
    const uint32_t first = pager_->num_tokens(feed.seq);
    const uint32_t end = first + static_cast<uint32_t>(feed.tokens.size());
    EXPECT_EQ(pager_->Reserve(feed.seq, end).status, ReserveStatus::kOk);
    SlotHead slot{};
    slot.slot = pager_->slot(feed.seq).value;
    slot.seq_id = feed.seq.value;
    slot.row_begin = static_cast<uint32_t>(rows.size());
    slot.num_rows = static_cast<uint32_t>(feed.tokens.size());
    for (uint32_t g = 0; g < geometry().groups.size(); ++g) slot.num_tokens[g] = end;
    for (uint32_t i = 0; i < feed.tokens.size(); ++i) {
      Row row{};
      row.token = feed.tokens[i];
      row.slot = slot.slot;
      row.position = row.kv_index = first + i;
      row.mask_id = kNone32;
      row.lse_target = -1;
      const bool wanted = feed.all_logits || i + 1 == feed.tokens.size();
      row.flags = wanted ? kRowWantLogits : 0;
      row.logits_idx = wanted ? num_logits++ : kNone32;
      rows.push_back(row);
    }
    slots.push_back(slot);
  }
  std::sort(slots.begin(), slots.end(),
            [](const SlotHead& a, const SlotHead& b) { return a.slot < b.slot; });
  ++epoch_;
  const FrameView view = frames_->Publish(epoch_, rows, slots, pager_->Commit(epoch_));
  const std::vector<std::string> violations = ValidateFrame(geometry(), view, nullptr);
  EXPECT_TRUE(violations.empty()) << violations.front();
  return view;
}

StepResult TestStack::Replay(const FrameView& view) {
  const StepResult result = executor_->Replay(view);
  Done();
  return result;
}

void TestStack::Done() { pager_->StepDone(epoch_); }

StepResult TestStack::Step(const std::vector<Feed>& feeds) { return Replay(Publish(feeds)); }

std::vector<float> TestStack::Logits(const StepResult& result, uint32_t index) const {
  const float* row = result.logits + size_t{index} * result.logits_stride;
  return {row, row + model_->config().vocab};
}

}  // namespace kvrm::testing
