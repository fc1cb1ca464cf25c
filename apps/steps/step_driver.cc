#include "steps/step_driver.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "engine/loader.h"
#include "model/config.h"

namespace kvrm::cli {
namespace {

// Room for every sequence at full length, its last page partly filled, beside the null page; whole
// superblocks.
uint64_t PoolBytes(const KvGeometry& geometry, const StepOptions& options) {
  uint64_t bytes = 0;
  for (const KvGroupGeometry& group : geometry.groups) {
    const uint64_t pages_per_seq =
        (uint64_t{options.max_seq_tokens} + group.page_tokens - 1) / group.page_tokens;
    const uint64_t pages = 1 + options.max_slots * pages_per_seq;
    const uint64_t superblocks =
        (pages + group.pages_per_superblock - 1) / group.pages_per_superblock;
    bytes += superblocks * group.superblock_bytes;
  }
  return bytes;
}

}  // namespace

Result<std::unique_ptr<StepDriver>> StepDriver::Open(const GgufFile& file,
                                                     const StepOptions& options) {
  std::unique_ptr<StepDriver> driver(new StepDriver());
  const uint32_t num_threads = options.num_threads != 0 ? options.num_threads : AllowedCpus();
  LoadOptions load;
  load.weights = options.weights;
  load.num_threads = num_threads;
  load.progress = options.progress;
  KVRM_ASSIGN_OR_RETURN(driver->model_, Model::Load(file, load));

  PagerConfig pager;
  KVRM_ASSIGN_OR_RETURN(pager.geometry, KvGeometryOf(driver->model_->config(), options.kv_format));
  pager.max_slots = options.max_slots;
  pager.max_seq_tokens = options.max_seq_tokens;
  pager.kv_bytes = PoolBytes(pager.geometry, options);
  if (pager.kv_bytes > MemoryLimitBytes()) {
    return NoRoom("keys and values of " + std::to_string(options.max_slots) + " x " +
                  std::to_string(options.max_seq_tokens) + " tokens take " +
                  std::to_string(pager.kv_bytes) + " bytes; the memory limit is " +
                  std::to_string(MemoryLimitBytes()));
  }
  KVRM_ASSIGN_OR_RETURN(driver->pager_, Pager::Create(pager));
  driver->pool_ = std::make_unique<WorkerPool>(num_threads);

  CpuExecutorConfig executor;
  executor.max_slots = options.max_slots;
  executor.max_seq_tokens = options.max_seq_tokens;
  executor.geometry = driver->pager_->geometry();
  executor.simd = options.simd;
  executor.op_times = options.op_times;
  for (uint32_t group = 0; group < executor.geometry.groups.size(); ++group) {
    executor.kv_base[group] = driver->pager_->base(group);
  }
  KVRM_ASSIGN_OR_RETURN(driver->executor_,
                        CreateCpuExecutor(*driver->model_, executor, *driver->pool_));
  driver->executor_->WarmUp();

  FrameCapacity capacity;
  capacity.max_slots = options.max_slots;
  capacity.max_rows = driver->max_rows();
  for (const KvGroupGeometry& group : executor.geometry.groups) {
    const uint32_t pages = (options.max_seq_tokens + group.page_tokens - 1) / group.page_tokens;
    capacity.max_pages = std::max(capacity.max_pages, pages);
  }
  KVRM_ASSIGN_OR_RETURN(driver->builder_, FrameBuilder::Create(executor.geometry, capacity));
  return driver;
}

void StepDriver::Edit(const std::function<void(Pager&)>& edits) {
  pager_->BeginStep();
  edits(*pager_);
  rows_.clear();
  slots_.clear();
  Publish();
  pager_->StepDone(epoch_);
}

FrameView StepDriver::Publish() {
  const std::span<const Delta> deltas = pager_->Commit(++epoch_);
  KVRM_CHECK(pager_->page_copies().empty(), "no sequence of a step driver shares pages");
  return builder_->Publish(epoch_, rows_, slots_, deltas);
}

SeqId StepDriver::OpenSequence() {
  SeqId seq;
  Edit([&seq](Pager& pager) {
    const std::optional<SeqId> opened = pager.Open();
    KVRM_CHECK(opened.has_value(), "at most max_slots sequences are open");
    seq = *opened;
  });
  return seq;
}

void StepDriver::CloseSequence(SeqId seq) {
  Edit([seq](Pager& pager) { pager.Close(seq); });
}

void StepDriver::Trim(SeqId seq, uint32_t num_tokens) {
  Edit([=](Pager& pager) { pager.Trim(seq, num_tokens); });
}

StepResult StepDriver::Run(std::span<const TokenRun> runs) {
  by_slot_.assign(runs.begin(), runs.end());
  std::sort(by_slot_.begin(), by_slot_.end(),
            [this](const TokenRun& a, const TokenRun& b) { return slot(a.seq) < slot(b.seq); });
  pager_->BeginStep();
  rows_.clear();
  slots_.clear();
  uint32_t num_logits = 0;
  for (const TokenRun& run : by_slot_) {
    const uint32_t first = pager_->num_tokens(run.seq);
    const auto count = static_cast<uint32_t>(run.tokens.size());
    KVRM_CHECK(pager_->Reserve(run.seq, first + count).status == ReserveStatus::kOk,
               "the pool holds max_slots sequences of max_seq_tokens");
    SlotHead head{};
    head.slot = slot(run.seq).value;
    head.seq_id = run.seq.value;
    head.row_begin = static_cast<uint32_t>(rows_.size());
    head.num_rows = count;
    for (uint32_t group = 0; group < geometry().groups.size(); ++group) {
      head.num_tokens[group] = first + count;
    }
    slots_.push_back(head);
    for (uint32_t i = 0; i < count; ++i) {
      const bool wants_logits = i + run.num_logits >= count;
      Row row{};
      row.token = run.tokens[i];
      row.slot = head.slot;
      row.token_src = TokenSource::kImmediate;
      row.flags = wants_logits ? kRowWantLogits : 0;
      row.position = first + i;
      row.kv_index = first + i;
      row.mask_id = kNone32;
      row.lse_target = -1;
      row.logits_idx = wants_logits ? num_logits++ : kNone32;
      rows_.push_back(row);
    }
  }
  KVRM_CHECK(rows_.size() <= max_rows() && num_logits <= max_logits(),
             "a step fits the widest program");
  const FrameView frame = Publish();
  const StepResult result = executor_->Replay(frame);
  pager_->StepDone(epoch_);
  return result;
}

void StepDriver::FillSynthetic(SeqId seq, uint32_t num_tokens) {
  constexpr int kByte = 0x2e;  // 0.1 in two bytes as f16, next to nothing as f32, a code as int8
  Edit([=](Pager& pager) {
    KVRM_CHECK(pager.num_tokens(seq) == 0, "a synthetic cache begins with an empty sequence");
    KVRM_CHECK(pager.Reserve(seq, num_tokens).status == ReserveStatus::kOk,
               "the pool holds max_slots sequences of max_seq_tokens");
  });
  for (uint32_t group = 0; group < geometry().groups.size(); ++group) {
    const KvGroupGeometry& g = geometry().groups[group];
    for (const PageId page : pager_->pages(seq, group)) {
      std::byte* const first_part = pager_->base(group) + g.PageOffset(page);
      for (uint32_t part = 0; part < g.num_parts; ++part) {
        std::memset(first_part + part * g.part_stride_bytes(), kByte, g.part_page_bytes);
      }
    }
  }
}

StepResult StepDriver::Prefill(SeqId seq, std::span<const TokenId> tokens, bool want_last) {
  StepResult result;
  while (!tokens.empty()) {
    const size_t count = std::min<size_t>(tokens.size(), max_rows());
    const bool last = count == tokens.size();
    const TokenRun run{seq, tokens.first(count), last && want_last ? 1u : 0u};
    result = Run({&run, 1});
    tokens = tokens.subspan(count);
  }
  return result;
}

}  // namespace kvrm::cli
