// Law I7: each gap over the budget is counted under one cause. Every cause is made here, on a clock
// that moves only where the test says, and nearly all of the excess has to land under it.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "engine/gap_ledger.h"
#include "engine/paced_executor.h"
#include "engine/test_rig.h"

namespace kvrm {
namespace {

using testing::Greedy;
using testing::PacedExecutor;
using testing::RandomPrompt;
using testing::Rig;
using testing::RigOptions;

constexpr int64_t kBudgetUs = 10'000;
constexpr int64_t kHoldUpUs = 60'000;

// Holds up chosen phases, and every n-th step only, so that there are gaps within the budget, too.
class HoldUp final : public StepObserver {
 public:
  HoldUp(ManualClock& clock, StepPhase phase) : clock_(clock), phase_(phase) {}
  void OnStep(const StepPlan&, const FrameView&, const StepResult&) override { ++steps_; }
  void OnPhase(StepPhase phase) override {
    if (phase == phase_ && steps_ % 4 == 2) clock_.AdvanceUs(kHoldUpUs);
  }

 private:
  ManualClock& clock_;
  const StepPhase phase_;
  uint32_t steps_ = 0;
};

class GapCauses : public ::testing::Test {
 protected:
  void Make(RigOptions options, PacedExecutor::ExtraUs extra_us = nullptr) {
    options.max_itl_us = kBudgetUs;
    rig_ =
        std::make_unique<Rig>(options, [&](std::unique_ptr<Executor> executor, ManualClock& clock) {
          return std::make_unique<PacedExecutor>(std::move(executor), clock, extra_us);
        });
  }
  // Streams that decode for a while.
  void Decode(uint32_t streams = 4, uint32_t tokens = 40) {
    for (uint32_t i = 0; i < streams; ++i) rig_->Submit(Greedy(RandomPrompt(6, i), tokens));
    Drain();
  }
  // Rig::Drain without the millisecond that it puts between two steps.
  void Drain() {
    for (int i = 0; i < 10'000; ++i) {
      if (!rig_->engine().Step()) return;
    }
    FAIL() << "not idle";
  }
  GapCounters Counted() { return rig_->engine().Metrics().gaps; }

  void ExpectNearlyAllUnder(GapCause cause) {
    const GapCounters counted = Counted();
    const uint32_t index = static_cast<uint32_t>(cause);
    const int64_t all =
        std::accumulate(std::begin(counted.excess_us), std::end(counted.excess_us), int64_t{0});
    EXPECT_GT(counted.over_budget[index], 0u) << GapCauseName(cause);
    EXPECT_GE(100 * counted.excess_us[index], 95 * all) << GapCauseName(cause);
    EXPECT_GE(all, kHoldUpUs - kBudgetUs);
  }

  std::unique_ptr<Rig> rig_;
};

TEST_F(GapCauses, StepsWithinTheBudgetCountGapsAndNoCause) {
  Make({.slots = 4});
  Decode(4, 40);
  const GapCounters counted = Counted();
  EXPECT_EQ(counted.gaps, 4u * 39u);
  for (uint32_t c = 0; c < kNumGapCauses; ++c) {
    EXPECT_EQ(counted.over_budget[c], 0u) << GapCauseName(static_cast<GapCause>(c));
    EXPECT_EQ(counted.excess_us[c], 0);
  }
}

TEST_F(GapCauses, ASlowOpOfADecodeStepIsDecode) {
  uint32_t steps = 0;
  Make({.slots = 4}, [&](const FrameView&) { return ++steps % 5 == 0 ? kHoldUpUs : 0; });
  Decode();
  ExpectNearlyAllUnder(GapCause::kDecode);
}

TEST_F(GapCauses, APromptThatTakesLongerThanItsShareIsPrefill) {
  Make({.slots = 4, .max_seq_tokens = 400}, [&](const FrameView& frame) {
    return frame.head->num_rows > frame.head->num_slots ? kHoldUpUs : 0;
  });
  rig_->Submit(Greedy(RandomPrompt(6, 1), 60));
  for (int i = 0; i < 5; ++i) rig_->engine().Step();
  rig_->Submit(Greedy(RandomPrompt(300, 2), 4));
  Drain();
  ExpectNearlyAllUnder(GapCause::kPrefill);
}

TEST_F(GapCauses, CopiesThatTakeLongAreTransport) {
  Make({.slots = 4});
  HoldUp hold_up(rig_->clock(), StepPhase::kMoved);
  rig_->engine().SetObserver(&hold_up);
  Decode();
  ExpectNearlyAllUnder(GapCause::kTransport);
}

TEST_F(GapCauses, ASamplerThatSleepsIsSampling) {
  Make({.slots = 4});
  HoldUp hold_up(rig_->clock(), StepPhase::kSampled);
  rig_->engine().SetObserver(&hold_up);
  Decode();
  ExpectNearlyAllUnder(GapCause::kSampling);
}

TEST_F(GapCauses, PlanningThatTakesLongIsOther) {
  Make({.slots = 4});
  HoldUp hold_up(rig_->clock(), StepPhase::kPlanned);
  rig_->engine().SetObserver(&hold_up);
  Decode();
  ExpectNearlyAllUnder(GapCause::kOther);
}

// A sink that does not return holds up all streams until the next token.
class BlockedSink final : public EventSink {
 public:
  explicit BlockedSink(ManualClock& clock, int64_t* stolen_us = nullptr)
      : clock_(clock), stolen_us_(stolen_us) {}
  void OnToken(RequestId, const TokenEvent& event) override {
    if (event.index % 5 != 2) return;
    clock_.AdvanceUs(kHoldUpUs);
    if (stolen_us_ != nullptr) *stolen_us_ += kHoldUpUs;  // and others had the CPU all the while
  }
  void OnFinish(RequestId, const FinishEvent&) override {}

 private:
  ManualClock& clock_;
  int64_t* const stolen_us_;
};

TEST_F(GapCauses, ASinkThatBlocksIsOutput) {
  Make({.slots = 4});
  BlockedSink sink(rig_->clock());
  GenerateRequest blocked = Greedy(RandomPrompt(9, 7), 30);
  blocked.sink = &sink;
  ASSERT_TRUE(rig_->engine().Submit(std::move(blocked)).ok());
  Decode(3, 30);
  ExpectNearlyAllUnder(GapCause::kOutput);
}

// The pool holds half of what the streams grow to: some lose their pages and are computed anew,
// which takes many steps within the budget.
TEST_F(GapCauses, AStreamThatLostItsPagesIsPreemption) {
  Make({.slots = 8, .pool_pages = 40, .max_seq_tokens = 200, .prefix_cache = false});
  for (uint32_t i = 0; i < 8; ++i) rig_->Submit(Greedy(RandomPrompt(20, i), 120));
  Drain();
  ASSERT_GT(rig_->engine().Metrics().sched.preempted, 0u);
  ExpectNearlyAllUnder(GapCause::kPreemption);
}

// A spinner on a worker's core: an op takes longer, and the kernel says that the worker stood ready
// all the while. The source is asked now and then, not in every step.
TEST_F(GapCauses, TimeThatOthersTookIsStolenAndSeldomAskedFor) {
  int64_t stolen_us = 0;
  uint32_t steps = 0, asked = 0;
  Make({.slots = 4,
        .stolen_us =
            [&] {
              ++asked;
              return stolen_us;
            }},
       [&](const FrameView&) -> int64_t {
         if (++steps % 20 != 0) return 0;
         stolen_us += kHoldUpUs;
         return kHoldUpUs;
       });
  Decode(4, 200);
  ExpectNearlyAllUnder(GapCause::kStolen);
  EXPECT_LE(asked, steps / 2);
}

// Sinks run between the stamp of the tokens and the end of the step.
TEST_F(GapCauses, TimeThatOthersTookWhileTokensWereToldIsStolen) {
  int64_t stolen_us = 0;
  Make({.slots = 4, .stolen_us = [&] { return stolen_us; }});
  BlockedSink sink(rig_->clock(), &stolen_us);
  GenerateRequest robbed = Greedy(RandomPrompt(9, 7), 30);
  robbed.sink = &sink;
  ASSERT_TRUE(rig_->engine().Submit(std::move(robbed)).ok());
  Decode(3, 30);
  ExpectNearlyAllUnder(GapCause::kStolen);
}

// Nine tenths of what the excess would need, long before the gap or in it.
TEST_F(GapCauses, TimeThatOthersTookEarlierOrTooLittleOfItIsNotStolen) {
  int64_t stolen_us = 0;
  uint32_t steps = 0;
  Make({.slots = 4, .stolen_us = [&] { return stolen_us; }}, [&](const FrameView&) -> int64_t {
    ++steps;
    if (steps % 20 == 0) {
      stolen_us += static_cast<int64_t>(0.7 * (kHoldUpUs - kBudgetUs));
      return kHoldUpUs;
    }
    if (steps % 20 == 10) stolen_us += kHoldUpUs;  // taken from a step that did not need it
    return 0;
  });
  Decode(4, 200);
  ExpectNearlyAllUnder(GapCause::kDecode);
}

// Tells apart gaps over the budget by itself, from the times at which tokens come.
class GapSink final : public EventSink {
 public:
  explicit GapSink(ManualClock& clock) : clock_(clock) {}
  void OnToken(RequestId id, const TokenEvent& event) override {
    const int64_t now_us = clock_.NowUs();
    const int64_t gap_us = now_us - std::exchange(last_us_[id], now_us);
    if (event.index == 0) return;
    ++gaps;
    over += gap_us > kBudgetUs ? 1 : 0;
    excess_us += std::max<int64_t>(0, gap_us - kBudgetUs);
  }
  void OnFinish(RequestId, const FinishEvent&) override {}
  uint64_t gaps = 0, over = 0;
  int64_t excess_us = 0;

 private:
  ManualClock& clock_;
  std::map<RequestId, int64_t> last_us_;
};

// All causes at once: slow ops, slow sampling, streams that lose their pages.
TEST_F(GapCauses, EachGapOverTheBudgetIsCountedUnderExactlyOne) {
  uint32_t steps = 0;
  Make({.slots = 8, .pool_pages = 40, .max_seq_tokens = 200},
       [&](const FrameView&) { return ++steps % 7 == 0 ? kHoldUpUs : 0; });
  HoldUp hold_up(rig_->clock(), StepPhase::kSampled);
  rig_->engine().SetObserver(&hold_up);
  GapSink sink(rig_->clock());
  for (uint32_t i = 0; i < 8; ++i) {
    GenerateRequest request = Greedy(RandomPrompt(20, i), 120);
    request.sink = &sink;
    ASSERT_TRUE(rig_->engine().Submit(std::move(request)).ok());
  }
  Drain();
  const GapCounters counted = Counted();
  EXPECT_EQ(counted.gaps, sink.gaps);
  EXPECT_EQ(counted.gaps, 8u * 119u);
  EXPECT_EQ(
      std::accumulate(std::begin(counted.over_budget), std::end(counted.over_budget), uint64_t{0}),
      sink.over);
  EXPECT_EQ(std::accumulate(std::begin(counted.excess_us), std::end(counted.excess_us), int64_t{0}),
            sink.excess_us);
  EXPECT_GT(sink.over, 0u);
}

TEST(GapLedger, WithoutABudgetNothingIsOver) {
  GapLedger ledger(0, nullptr);
  ledger.Stamp(1000);
  ledger.Lap(500'000, GapCause::kOutput);
  ledger.Stamp(500'000);
  ledger.Count(1000, false);
  EXPECT_EQ(ledger.counters().gaps, 1u);
  for (const uint64_t over : ledger.counters().over_budget) EXPECT_EQ(over, 0u);
}

// Where no cost model tells what decoding takes, rows of one replay share its time.
TEST(GapLedger, WithoutAPredictionRowsShareAReplay) {
  GapLedger ledger(10'000, nullptr);
  ledger.Stamp(0);
  ledger.LapReplay(50'000, {.decode_rows = 4, .prompt_rows = 60, .decode_us = 0});
  ledger.Stamp(50'000);
  ledger.Count(0, false);
  EXPECT_EQ(ledger.counters().over_budget[static_cast<uint32_t>(GapCause::kPrefill)], 1u);
  EXPECT_EQ(ledger.counters().excess_us[static_cast<uint32_t>(GapCause::kPrefill)], 40'000);
}

}  // namespace
}  // namespace kvrm
