// Who gets a step's prompt rows, and how many there are: turns, priorities, the gap budget.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "sched/scheduler_testing.h"

namespace kvrm {
namespace {

using testing::Config;
using testing::Driver;
using testing::MakePager;

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

TEST(B017, AStreamHasARowInEachStepOfAPromptOfTwentyThousandTokens) {
  SchedulerConfig config = Config(4, 512);
  config.chunk_rows = 256;
  Driver driver(config, MakePager(2048, 4, 24'000));
  const RequestId stream = driver.Add(20, 600);
  driver.Step();
  const RequestId prompt = driver.Add(20'000, 1);
  uint32_t steps = 0;
  while (driver.scheduler().num_computed_tokens(prompt) < 20'000) {
    const StepPlan& plan = driver.Step();
    ASSERT_EQ(plan.rows.front().request, stream);
    ASSERT_TRUE(plan.rows.front().decode);
    ASSERT_LE(plan.num_prompt_rows, config.mixed_prompt_rows);
    ASSERT_LT(++steps, 400u);
  }
  EXPECT_GE(steps, 20'000u / config.mixed_prompt_rows);
}

// 2 ms a step, 0.25 ms a row.
std::vector<StepSample> Samples() { return {{1, 0, 2'250}, {64, 0, 18'000}, {256, 0, 66'000}}; }

TEST(GapBudget, PromptRowsBesideAStreamFillNineTenthsOfTheBudget) {
  SchedulerConfig config = Config(4, 512);
  config.prompt_rows = 400;
  config.step_samples = Samples();
  config.max_step_us = 30'000;
  Driver driver(config, MakePager(1024, 4, 4000));
  driver.Add(10, 500);
  driver.Step();
  const RequestId prompt = driver.Add(3900, 1);
  const uint32_t rows = RowsOf(driver.Step(), prompt);
  EXPECT_NEAR(rows, (27'000 - 2'000) / 250.0 - 1, 2);
  // A machine that turns out half as fast gets half the rows.
  for (int i = 0; i < 40; ++i) {
    const StepPlan& plan = driver.Step();
    driver.scheduler().OnStepTimed(2 * (2'000 + 250 * plan.num_rows));
  }
  const uint32_t fewer = RowsOf(driver.Step(), prompt);
  EXPECT_NEAR(fewer, (13'500 - 2'000) / 250.0 - 1, 4);
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
