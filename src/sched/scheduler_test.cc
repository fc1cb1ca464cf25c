#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace kvrm {
namespace {

constexpr uint32_t kPageTokens = 16;
constexpr uint64_t kPageBytes = 1024;
constexpr uint32_t kPagesPerSuperblock = 8;

std::unique_ptr<Pager> MakePager(uint32_t num_pages, uint32_t max_slots, uint32_t max_seq_tokens) {
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
      logits += planned.want_logits ? 1 : 0;
    }
    ASSERT_EQ(rows, plan.num_rows);
    ASSERT_EQ(prompt_rows, plan.num_prompt_rows);
    ASSERT_EQ(logits, plan.num_logits);
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

SchedulerConfig Config(uint32_t slots, uint32_t prompt_rows = 512) {
  return {.max_slots = slots, .max_rows = slots + prompt_rows, .prompt_rows = prompt_rows};
}

TEST(Scheduler, DecodeRowsComeFirstAndPromptsShareTheRest) {
  SchedulerConfig config = Config(4, 64);
  config.mixed_prompt_rows = 10;
  Driver driver(config, MakePager(256, 4, 512));
  driver.Add(5, 20);
  EXPECT_EQ(driver.Step().num_prompt_rows, 5u);
  driver.Add(30, 5);
  driver.Add(30, 5);
  const StepPlan& mixed = driver.Step();
  ASSERT_EQ(mixed.rows.size(), 2u);
  EXPECT_TRUE(mixed.rows[0].decode);
  EXPECT_EQ(mixed.rows[1].count, 10u);
  EXPECT_EQ(mixed.admitted.size(), 2u);  // both take turns from now on
  driver.Drain(100);
  EXPECT_EQ(driver.finished().size(), 3u);
}

TEST(Scheduler, WithoutDecodingPromptsTakeTheWideProgramOldestFirst) {
  Driver driver(Config(4, 64), MakePager(256, 4, 512));
  driver.Add(50, 1);
  driver.Add(50, 1);
  const StepPlan& plan = driver.Step();
  ASSERT_EQ(plan.rows.size(), 2u);
  EXPECT_EQ(plan.rows[0].count, 50u);
  EXPECT_EQ(plan.rows[1].count, 14u);
  EXPECT_TRUE(plan.rows[0].want_logits);
  EXPECT_FALSE(plan.rows[1].want_logits);
  driver.Drain(10);
}

TEST(Scheduler, ChunkRowsBoundsOneSequenceNotTheStep) {
  SchedulerConfig config = Config(4, 64);
  config.chunk_rows = 7;
  Driver driver(config, MakePager(256, 4, 512));
  for (int i = 0; i < 4; ++i) driver.Add(20, 2);
  const StepPlan& plan = driver.Step();
  ASSERT_EQ(plan.rows.size(), 4u);
  for (const PlannedRows& rows : plan.rows) EXPECT_EQ(rows.count, 7u);
  driver.Drain(20);
}

TEST(Scheduler, EqualCallsGiveEqualPlans) {
  const auto trace = [] {
    std::mt19937 rng(17);
    Driver driver(Config(6, 48), MakePager(48, 6, 300));
    std::vector<uint32_t> out;
    for (int i = 0; i < 300; ++i) {
      if (rng() % 3 == 0) driver.Add(1 + rng() % 200, 1 + rng() % 60);
      for (const PlannedRows& rows : driver.Step().rows) {
        out.insert(out.end(), {static_cast<uint32_t>(rows.request.value), rows.seq.value,
                               rows.first, rows.count});
      }
    }
    return out;
  };
  EXPECT_EQ(trace(), trace());
}

TEST(Scheduler, TheYoungestIsPreemptedAndQueuesFirst) {
  // 15 usable pages; three sequences that want 8 pages each in the end.
  Driver driver(Config(3), MakePager(16, 3, 128));
  const RequestId first = driver.Add(16, 100);
  const RequestId second = driver.Add(16, 100);
  const RequestId third = driver.Add(16, 100);
  RequestId victim{};
  for (int i = 0; i < 100 && victim == RequestId{}; ++i) {
    const StepPlan& plan = driver.Step();
    if (!plan.preempted.empty()) victim = plan.preempted.front();
  }
  EXPECT_EQ(victim, third);
  EXPECT_EQ(driver.scheduler().num_computed_tokens(third), 0u);
  driver.Add(1, 1);  // a late newcomer stays behind the preempted one
  driver.Drain(1000);
  EXPECT_EQ(driver.finished()[0], first);
  EXPECT_EQ(driver.finished()[1], second);
  EXPECT_EQ(driver.finished().size(), 4u);
}

// B016: one request that is larger than the whole pool bars nobody and is told at once.
TEST(B016, WhatCanNeverFitIsToldByTheNextPlanWhereverItQueues) {
  Driver driver(Config(2), MakePager(16, 2, 4096));
  driver.Add(100, 50);
  driver.Add(100, 50);
  driver.Add(30, 5);  // waits for a slot
  const RequestId giant = driver.Add(2000, 5);
  for (int i = 0; i < 5; ++i) driver.Add(20, 5);
  driver.Step();
  EXPECT_EQ(driver.unserviceable(), std::vector<RequestId>{giant});
  driver.Drain(500);
  EXPECT_EQ(driver.finished().size(), 8u);
}

TEST(B016, ASequenceThatOutgrowsThePoolIsToldWhereThePoolEnds) {
  Driver driver(Config(2), MakePager(16, 2, 4096));  // 240 places
  const RequestId greedy = driver.Add(200, 500);
  driver.Add(20, 5);
  driver.Drain(500);
  EXPECT_EQ(driver.unserviceable(), std::vector<RequestId>{greedy});
  EXPECT_EQ(driver.finished().size(), 1u);
  EXPECT_EQ(driver.pager().books(0).in_use, 1u);  // the null page
}

// B019: pages of a victim come back after the step; no further victim falls meanwhile.
TEST(B019, UnderPressureOnlyNeededVictimsFallAndEachOnlyAFewTimes) {
  Driver driver(Config(8), MakePager(40, 8, 200));  // room for about 4 of 8 long decodes
  std::vector<RequestId> ids;
  for (int i = 0; i < 8; ++i) ids.push_back(driver.Add(20, 120));
  std::map<RequestId, uint32_t> preemptions;
  uint64_t computed = 0;
  for (int i = 0; i < 2000 && !driver.scheduler().idle(); ++i) {
    const StepPlan& plan = driver.Step();
    EXPECT_LE(plan.preempted.size(), 1u);
    for (const RequestId id : plan.preempted) ++preemptions[id];
    computed += plan.num_rows;
  }
  EXPECT_EQ(driver.finished().size(), 8u);
  for (const auto& [id, count] : preemptions) EXPECT_LE(count, 3u) << id.value;
  EXPECT_LT(computed, 2u * 8 * 140);  // recomputing costs less than the work itself
  EXPECT_LE(driver.most_idle_steps(), 1u);
}

TEST(Scheduler, ARolledBackStepLeavesEverythingAsBefore) {
  // Each step is planned, rolled back, and planned again: the second plan equals the first, and so
  // does the whole run that of a driver that never rolls back.
  std::mt19937 rng(23);
  Driver driver(Config(5, 40), MakePager(24, 5, 200));
  Driver plain(Config(5, 40), MakePager(24, 5, 200));
  uint32_t with_preemption = 0, with_unserviceable = 0;
  for (int step = 0; step < 600; ++step) {
    if (rng() % 4 == 0) {
      const uint32_t prompt = 1 + rng() % (rng() % 8 == 0 ? 600 : 120);
      const uint32_t output = 1 + rng() % 150;
      driver.Add(prompt, output);
      plain.Add(prompt, output);
    }
    const PagerSnapshot before = driver.pager().Snapshot();
    const SchedulerCounters counters = driver.scheduler().counters();
    const StepPlan planned = driver.Plan();
    driver.RollBack();
    ASSERT_EQ(driver.pager().Snapshot(), before);
    if (planned.admitted.empty() && planned.preempted.empty()) {
      // Removals of ended requests stay pending; else the counts are as before.
      ASSERT_LE(driver.scheduler().counters().running, counters.running);
    }
    const StepPlan& again = driver.Step();
    ASSERT_EQ(again.num_rows, planned.num_rows);
    ASSERT_EQ(again.admitted, planned.admitted);
    ASSERT_EQ(again.preempted, planned.preempted);
    ASSERT_EQ(again.unserviceable, planned.unserviceable);
    const StepPlan& reference = plain.Step();
    ASSERT_EQ(reference.num_rows, planned.num_rows);
    ASSERT_EQ(reference.admitted, planned.admitted);
    with_preemption += planned.preempted.empty() ? 0 : 1;
    with_unserviceable += planned.unserviceable.empty() ? 0 : 1;
  }
  EXPECT_GT(with_preemption, 0u);
  EXPECT_GT(with_unserviceable, 0u);
  driver.Drain(20000);
  plain.Drain(20000);
  EXPECT_EQ(driver.finished(), plain.finished());
}

TEST(Scheduler, RemovalBeforeARolledBackStepIsNotLost) {
  Driver driver(Config(2), MakePager(16, 2, 200));
  const RequestId id = driver.Add(50, 10);
  driver.Step();
  driver.Remove(id);
  driver.Plan();
  driver.RollBack();
  EXPECT_FALSE(driver.scheduler().idle());  // its pages are still to be given back
  driver.Plan();
  driver.RollBack();
  driver.Step();
  EXPECT_TRUE(driver.scheduler().idle());
  EXPECT_EQ(driver.pager().books(0).in_use, 1u);
}

// B021: never "running 0, waiting > 0, room".
TEST(B021, RandomLoadNeverStalls) {
  for (const uint32_t seed : {1u, 2u, 3u, 4u}) {
    std::mt19937 rng(seed);
    SchedulerConfig config = Config(1 + rng() % 8, 40);
    config.chunk_rows = rng() % 3 == 0 ? 5 : 0;
    Driver driver(config, MakePager(16 + 8 * (rng() % 8), config.max_slots, 300));
    std::vector<RequestId> added;
    for (int step = 0; step < 3000; ++step) {
      const bool burst = (step / 200) % 2 == 0;
      if (rng() % (burst ? 4 : 60) == 0)
        added.push_back(driver.Add(1 + rng() % 299, 1 + rng() % 80));
      if (rng() % 40 == 0 && !added.empty()) {
        const RequestId id = added[rng() % added.size()];
        if (driver.scheduler().sequence(id).has_value()) driver.Remove(id);
      }
      driver.Step();
      if (testing::Test::HasFatalFailure()) return;
    }
    driver.Drain(50000);
    EXPECT_LE(driver.most_idle_steps(), 1u) << "seed " << seed;
    EXPECT_EQ(driver.pager().books(0).in_use, 1u);
  }
}

// ---- turns, priorities, the gap budget

uint32_t RowsOf(const StepPlan& plan, RequestId id) {
  for (const PlannedRows& rows : plan.rows) {
    if (rows.request == id) return rows.count;
  }
  return 0;
}

TEST(Turns, AShortPromptIsNotStuckBehindALongOne) {
  SchedulerConfig config = Config(4, 64);
  config.prompt_rows = 64;
  config.prompt_quantum = 32;
  Driver driver(config, MakePager(512, 4, 4000));
  const RequestId longest = driver.Add(3000, 1);
  driver.Step();
  const RequestId short_one = driver.Add(30, 1);
  uint32_t steps = 0;
  while (driver.finished().empty() && steps < 100) {
    driver.Step();
    ++steps;
  }
  ASSERT_FALSE(driver.finished().empty());
  EXPECT_EQ(driver.finished().front(), short_one);
  EXPECT_LE(steps, 2u);
  driver.Drain(200);
  EXPECT_EQ(driver.finished().back(), longest);
}

TEST(Turns, ALonePromptTakesTheWholeStepWhateverTheQuantum) {
  SchedulerConfig config = Config(4, 64);
  config.prompt_rows = 64;
  config.prompt_quantum = 8;
  Driver driver(config, MakePager(512, 4, 4000));
  const RequestId id = driver.Add(1000, 1);
  EXPECT_EQ(RowsOf(driver.Step(), id), 64u);
}

TEST(Turns, PromptsOfOneLengthAreServedAlike) {
  SchedulerConfig config = Config(4, 64);
  config.prompt_rows = 48;
  config.prompt_quantum = 32;
  Driver driver(config, MakePager(512, 4, 4000));
  std::vector<RequestId> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(driver.Add(640, 1));
  for (int step = 0; step < 30; ++step) driver.Step();
  std::vector<uint32_t> computed;
  for (const RequestId id : ids) computed.push_back(driver.scheduler().num_computed_tokens(id));
  const auto [least, most] = std::minmax_element(computed.begin(), computed.end());
  EXPECT_LE(*most - *least, 32u);
  driver.Drain(200);
}

TEST(Turns, ARolledBackPlanIsPlannedAgainTheSameWay) {
  SchedulerConfig config = Config(4, 64);
  config.prompt_rows = 48;
  config.prompt_quantum = 20;
  Driver driver(config, MakePager(512, 4, 4000));
  for (uint32_t i = 0; i < 4; ++i) driver.Add(100 + 50 * i, 3);
  for (int step = 0; step < 12; ++step) {
    const StepPlan first = driver.Plan();
    driver.RollBack();
    const StepPlan again = driver.Plan();
    ASSERT_EQ(first.rows.size(), again.rows.size());
    for (size_t i = 0; i < first.rows.size(); ++i) {
      EXPECT_EQ(first.rows[i].request, again.rows[i].request);
      EXPECT_EQ(first.rows[i].count, again.rows[i].count);
    }
    driver.Finish(again);
  }
}

TEST(Priority, UrgentRequestsAreAdmittedFirstAndEqualsInTheirOrder) {
  SchedulerConfig config = Config(1, 64);
  Driver driver(config, MakePager(64, 1, 400));
  const RequestId running = driver.Add(10, 3);
  driver.Step();
  const RequestId low = driver.Add(10, 1, -1), first = driver.Add(10, 1),
                  second = driver.Add(10, 1);
  const RequestId urgent = driver.Add(10, 1, 5);
  driver.Drain(100);
  EXPECT_EQ(driver.finished(), (std::vector<RequestId>{running, urgent, first, second, low}));
}

TEST(Priority, TheLeastUrgentGivesItsPagesUp) {
  // 15 pages of 16 tokens; two that grow to 130 tokens each do not fit.
  SchedulerConfig config = Config(2, 64);
  Driver driver(config, MakePager(16, 2, 400));
  const RequestId urgent = driver.Add(30, 100, 1);
  const RequestId other = driver.Add(40, 100);
  std::set<RequestId> preempted;
  for (int step = 0; step < 400 && !driver.scheduler().idle(); ++step) {
    const StepPlan& plan = driver.Step();
    preempted.insert(plan.preempted.begin(), plan.preempted.end());
  }
  EXPECT_EQ(preempted, std::set<RequestId>{other});
  EXPECT_EQ(driver.finished(), (std::vector<RequestId>{urgent, other}));
}

// 2 ms a step, 0.25 ms a row.
std::vector<StepSample> Samples() { return {{1, 0, 2'250}, {64, 0, 18'000}, {256, 0, 66'000}}; }

TEST(GapBudget, PromptRowsBesideAStreamAreAsManyAsTheBudgetAllows) {
  SchedulerConfig config = Config(4, 512);
  config.prompt_rows = 400;
  config.step_samples = Samples();
  config.max_step_us = 30'000;
  Driver driver(config, MakePager(1024, 4, 4000));
  driver.Add(10, 500);
  driver.Step();
  const RequestId prompt = driver.Add(3900, 1);
  const uint32_t rows = RowsOf(driver.Step(), prompt);
  EXPECT_NEAR(rows, (30'000 - 2'000) / 250 - 1, 2);
  // A machine that turns out half as fast gets half the rows.
  for (int i = 0; i < 40; ++i) {
    const StepPlan& plan = driver.Step();
    driver.scheduler().OnStepTimed(2 * (2'000 + 250 * plan.num_rows));
  }
  const uint32_t fewer = RowsOf(driver.Step(), prompt);
  EXPECT_NEAR(fewer, (15'000 - 2'000) / 250 - 1, 4);
}

TEST(GapBudget, APromptAdvancesEvenWhereDecodingTakesTheWholeBudget) {
  SchedulerConfig config = Config(4, 512);
  config.step_samples = Samples();
  config.max_step_us = 1'000;  // less than any step takes
  Driver driver(config, MakePager(512, 4, 4000));
  driver.Add(10, 400);
  driver.Step();
  const RequestId prompt = driver.Add(100, 1);
  uint32_t computed = 0;
  for (int step = 0; step < 8; ++step) {
    driver.Step();
    if (driver.scheduler().sequence(prompt)) {
      const uint32_t now = driver.scheduler().num_computed_tokens(prompt);
      EXPECT_GT(now, computed);
      computed = now;
    }
  }
}

TEST(GapBudget, NobodyIsAdmittedWhoWouldPushDecodingOverTheBudget) {
  SchedulerConfig config = Config(8, 512);
  config.step_samples = Samples();
  config.max_step_us = 3'600;  // 0.8 of it holds (2.88 - 2) / 0.25 = 3 rows
  Driver driver(config, MakePager(512, 8, 4000));
  for (int i = 0; i < 8; ++i) driver.Add(4, 60);
  uint32_t most = 0;
  for (int step = 0; step < 40; ++step) {
    driver.Step();
    most = std::max(most, driver.scheduler().counters().running);
  }
  EXPECT_EQ(most, 3u);
  driver.Drain(2000);
  EXPECT_EQ(driver.finished().size(), 8u);
}

}  // namespace
}  // namespace kvrm
