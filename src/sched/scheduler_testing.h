// What the scheduler's tests share: a small pager, and a driver that does what the engine does,
// without tokens, and checks each plan. Test code only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "sched/scheduler.h"

namespace kvrm::testing {

inline constexpr uint32_t kPageTokens = 16;
inline constexpr uint64_t kPageBytes = 1024;
inline constexpr uint32_t kPagesPerSuperblock = 8;

inline std::unique_ptr<Pager> MakePager(uint32_t num_pages, uint32_t max_slots,
                                        uint32_t max_seq_tokens) {
  PagerConfig config;
  config.geometry.groups.push_back({.page_tokens = kPageTokens,
                                    .num_parts = 2,
                                    .part_page_bytes = kPageBytes / 2,
                                    .pages_per_superblock = kPagesPerSuperblock,
                                    .superblock_bytes = kPageBytes * kPagesPerSuperblock});
  config.geometry.layer_group = {0, 0};
  config.geometry.layer_part = {0, 1};
  config.kv_bytes = num_pages * kPageBytes;
  config.max_slots = max_slots;
  config.max_seq_tokens = max_seq_tokens;
  auto pager = Pager::Create(config);
  EXPECT_TRUE(pager.ok());
  return std::move(pager).value();
}

// Drives scheduler and pager as the engine does, without tokens, and checks each plan.
class Driver {
 public:
  Driver(const SchedulerConfig& config, std::unique_ptr<Pager> pager)
      : config_(config), scheduler_(config), pager_(std::move(pager)) {}

  RequestId Add(uint32_t prompt_tokens, uint32_t output_tokens, int32_t priority = 0) {
    const RequestId id{++last_id_};
    requests_[id] = {prompt_tokens, output_tokens, 0, 0};
    scheduler_.Add(id, prompt_tokens, priority);
    return id;
  }
  void Remove(RequestId id) {
    requests_.erase(id);
    to_remove_.push_back(id);
  }

  const StepPlan& Plan() {
    pager_->BeginStep();
    for (const RequestId id : to_remove_) scheduler_.Remove(id, *pager_);
    to_remove_.clear();
    const StepPlan& plan = scheduler_.Plan(*pager_);
    CheckPlan(plan);
    return plan;
  }
  void RollBack() {
    pager_->RollbackStep();
    scheduler_.OnStepRolledBack();
  }
  void Finish(const StepPlan& plan) {
    pager_->Commit(++epoch_);
    for (const RequestId id : plan.unserviceable) {
      unserviceable_.push_back(id);
      requests_.erase(id);
    }
    for (const RequestId id : plan.preempted) ++requests_.at(id).preemptions;
    scheduler_.OnStepDone();
    pager_->StepDone(epoch_);
    for (const PlannedRows& rows : plan.rows) {
      if (!rows.want_logits) continue;
      auto& request = requests_.at(rows.request);
      scheduler_.OnToken(rows.request);
      if (++request.done == request.output_tokens) {
        finished_.push_back(rows.request);
        Remove(rows.request);
      }
    }
    const auto violations = Validate(pager_->Snapshot());
    ASSERT_TRUE(violations.empty()) << violations.front();
  }
  const StepPlan& Step() {
    const StepPlan& plan = Plan();
    Finish(plan);
    return plan;
  }
  // Steps until nothing is left; `bound` steps at most.
  void Drain(uint32_t bound) {
    for (uint32_t i = 0; i < bound; ++i) {
      if (scheduler_.idle() && to_remove_.empty()) return;
      Step();
    }
    FAIL() << "not idle after " << bound << " steps";
  }

  Scheduler& scheduler() { return scheduler_; }
  Pager& pager() { return *pager_; }
  const std::vector<RequestId>& finished() const { return finished_; }
  const std::vector<RequestId>& unserviceable() const { return unserviceable_; }
  uint32_t preemptions(RequestId id) const { return requests_.at(id).preemptions; }
  uint32_t known(RequestId id) const {
    return requests_.at(id).prompt_tokens + requests_.at(id).done;
  }
  uint32_t most_idle_steps() const { return most_idle_steps_; }

 private:
  struct Request {
    uint32_t prompt_tokens, output_tokens, done, preemptions;
  };

  void CheckPlan(const StepPlan& plan) {
    uint32_t rows = 0, prompt_rows = 0, logits = 0;
    bool prompt_seen = false;
    std::set<RequestId> seen;
    for (const PlannedRows& planned : plan.rows) {
      ASSERT_TRUE(seen.insert(planned.request).second) << "SCHED-3";
      ASSERT_EQ(scheduler_.sequence(planned.request), planned.seq);
      ASSERT_EQ(planned.first, scheduler_.num_computed_tokens(planned.request));
      ASSERT_GE(planned.count, 1u);
      ASSERT_LE(planned.first + planned.count, known(planned.request));
      ASSERT_EQ(planned.want_logits, planned.first + planned.count == known(planned.request));
      ASSERT_GE(pager_->num_tokens(planned.seq), planned.first + planned.count);
      prompt_seen |= !planned.decode;
      if (planned.decode) {
        ASSERT_FALSE(prompt_seen) << "decode rows come first";
        ASSERT_EQ(planned.count, 1u);
      } else if (config_.chunk_rows > 0) {
        ASSERT_LE(planned.count, config_.chunk_rows);
      }
      rows += planned.count;
      prompt_rows += planned.decode ? 0 : planned.count;
      logits += planned.first + planned.count - planned.logits_from;
    }
    ASSERT_EQ(rows, plan.num_rows);
    ASSERT_EQ(prompt_rows, plan.num_prompt_rows);
    ASSERT_EQ(logits, plan.num_logits);
    ASSERT_LE(logits, std::max(config_.max_logits, config_.max_slots));
    ASSERT_LE(rows, config_.max_rows);
    const bool mixed = rows > prompt_rows && config_.max_step_us == 0;
    ASSERT_LE(prompt_rows, mixed ? config_.mixed_prompt_rows : config_.prompt_rows);
    ASSERT_LE(scheduler_.counters().running, config_.max_slots) << "SCHED-2";
    const bool work = scheduler_.counters().running + scheduler_.counters().queued > 0;
    idle_steps_ = work && rows == 0 ? idle_steps_ + 1 : 0;
    most_idle_steps_ = std::max(most_idle_steps_, idle_steps_);
  }

  const SchedulerConfig config_;
  Scheduler scheduler_;
  std::unique_ptr<Pager> pager_;
  uint64_t epoch_ = 0, last_id_ = 0;
  std::map<RequestId, Request> requests_;
  std::vector<RequestId> to_remove_, finished_, unserviceable_;
  uint32_t idle_steps_ = 0, most_idle_steps_ = 0;
};

inline SchedulerConfig Config(uint32_t slots, uint32_t prompt_rows = 512) {
  return {.max_slots = slots, .max_rows = slots + prompt_rows, .prompt_rows = prompt_rows};
}

}  // namespace kvrm::testing
