#include "server/sent_gaps.h"

#include <gtest/gtest.h>

namespace kvrm {
namespace {

constexpr int64_t kBudgetUs = 50'000;

TEST(SentGaps, TextThatLeavesAsItIsMadeIsNeverLate) {
  SentGaps gaps(kBudgetUs);
  for (int64_t at = 1000; at < 10 * kBudgetUs; at += kBudgetUs) {
    gaps.Begin({at, at});
    EXPECT_EQ(gaps.End(at).excess_us, 0);
  }
}

TEST(SentGaps, WhatAReaderHoldsUpIsOverByItsTimeLessTheBudget) {
  SentGaps gaps(kBudgetUs);
  gaps.Begin({1000, 1000});
  EXPECT_EQ(gaps.End(1000).excess_us, 0);
  gaps.Begin({21'000, 21'000});
  const LateText late = gaps.End(901'000);
  EXPECT_EQ(late.gaps, 1u);
  EXPECT_EQ(late.excess_us, 850'000);
  gaps.Begin({41'000, 881'000});  // what waited behind it leaves at once
  EXPECT_EQ(gaps.End(901'500).excess_us, 0);
}

TEST(SentGaps, AGapOfTheEnginesIsNotCountedOnceMore) {
  SentGaps gaps(kBudgetUs);
  gaps.Begin({1000, 1000});
  gaps.End(1000);
  gaps.Begin({200'000, 200'000});
  EXPECT_EQ(gaps.End(200'000).excess_us, 0);
}

// Then the gap has its cause, and only what the sending made it longer is added.
TEST(SentGaps, AGapOfBothIsCountedByTheEngineAndItsExcessByBoth) {
  SentGaps gaps(kBudgetUs);
  gaps.Begin({1000, 1000});
  gaps.End(1000);
  gaps.Begin({201'000, 201'000});  // 150 ms over
  const LateText late = gaps.End(901'000);
  EXPECT_EQ(late.gaps, 0u);
  EXPECT_EQ(late.excess_us, 700'000);
}

// Two steps for one piece of text: neither gap is over, nor was the sending late.
TEST(SentGaps, TextThatTakesSeveralTokensIsNotLateForIt) {
  SentGaps gaps(kBudgetUs);
  gaps.Begin({1000, 1000});
  gaps.End(1000);
  gaps.Begin({81'000, 81'000});
  EXPECT_EQ(gaps.End(81'000).excess_us, 0);
}

TEST(SentGaps, TheFirstTextEndsNoGap) {
  SentGaps gaps(kBudgetUs);
  gaps.Begin({1000, 1000});
  EXPECT_EQ(gaps.End(5'000'000).excess_us, 0);
}

TEST(SentGaps, WhatHoldsNoTextBeginsAndEndsNone) {
  SentGaps gaps(kBudgetUs);
  gaps.Begin({1000, 1000});
  gaps.End(1000);
  gaps.Begin({});
  EXPECT_EQ(gaps.End(40'000).excess_us, 0);
  gaps.Begin({41'000, 41'000});
  EXPECT_EQ(gaps.End(61'000).excess_us, 10'000) << "since the text, not since the comment";
}

TEST(SentGaps, WithoutABudgetNothingIsLate) {
  SentGaps gaps;
  gaps.Begin({1000, 1000});
  gaps.End(1000);
  gaps.Begin({2000, 2000});
  EXPECT_EQ(gaps.End(9'000'000).excess_us, 0);
}

TEST(SentGaps, StampsAreThoseOfTheFirstAndTheLastToken) {
  TextStamps stamps;
  stamps.Add(5);
  EXPECT_EQ(stamps.first_us, 5);
  EXPECT_EQ(stamps.last_us, 5);
  stamps.Add(9);
  EXPECT_EQ(stamps.first_us, 5);
  EXPECT_EQ(stamps.last_us, 9);
}

}  // namespace
}  // namespace kvrm
