#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "sched/scheduler_testing.h"

namespace kvrm {
namespace {

using testing::Config;
using testing::Driver;
using testing::MakePager;

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
      if (::testing::Test::HasFatalFailure()) return;
    }
    driver.Drain(50000);
    EXPECT_LE(driver.most_idle_steps(), 1u) << "seed " << seed;
    EXPECT_EQ(driver.pager().books(0).in_use, 1u);
  }
}

// An adopted page that is written to needs a copy: a page more than its tokens say.
TEST(Scheduler, APromptThatAdoptedPartOfAPageAdvancesInAPoolThatJustHoldsIt) {
  PagerConfig config;
  config.geometry.groups.push_back({.page_tokens = 16,
                                    .num_parts = 1,
                                    .part_page_bytes = 64,
                                    .pages_per_superblock = 8,
                                    .superblock_bytes = 512});
  config.kv_bytes = 512;  // 7 pages
  config.max_slots = 4;
  config.max_seq_tokens = 256;
  const auto pager = std::move(Pager::Create(config)).value();
  std::vector<TokenId> first(32), second(112);
  for (int i = 0; i < 112; ++i) second[static_cast<size_t>(i)] = i < 20 ? i : 1000 + i;
  for (int i = 0; i < 32; ++i) first[static_cast<size_t>(i)] = i;
  pager->BeginStep();
  const SeqId indexed = *pager->Open();
  ASSERT_EQ(pager->Reserve(indexed, 32).status, ReserveStatus::kOk);
  (void)pager->Commit(1);
  pager->StepDone(1);
  ASSERT_EQ(pager->IndexPrefix(indexed, {}, first), 2u);
  pager->BeginStep();
  pager->Close(indexed);
  (void)pager->Commit(2);
  pager->StepDone(2);

  Scheduler scheduler(Config(4));
  scheduler.Add(RequestId{7}, 112);
  const PrefixAdopter adopt = [&](RequestId, SeqId seq) {
    const uint32_t cached = pager->MatchPrefix({}, second);
    EXPECT_EQ(pager->AdoptPrefix(seq, {}, second, cached).status, ReserveStatus::kOk);
    return cached;
  };
  uint32_t rows = 0;
  for (uint64_t epoch = 3; epoch < 40; ++epoch) {
    pager->BeginStep();
    rows += scheduler.Plan(*pager, adopt).num_rows;
    (void)pager->Commit(epoch);
    scheduler.OnStepDone();
    pager->StepDone(epoch);
  }
  EXPECT_EQ(rows, 112u - 20u);
}

}  // namespace
}  // namespace kvrm
