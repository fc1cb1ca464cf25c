#include "bench/heart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "bench/heart_churn.h"
#include "bench/heart_report.h"

namespace kvrm::cli {
namespace {

constexpr int kWalkingChecks = 3;  // the sizes that any build can bear

std::vector<PageId> Pages(const std::vector<uint32_t>& values) {
  std::vector<PageId> pages;
  for (uint32_t value : values) pages.push_back(PageId{value});
  return pages;
}

// Tokens of their own for each first token.
std::vector<TokenId> Prompt(uint32_t num_tokens, TokenId first = 0) {
  std::vector<TokenId> tokens(num_tokens);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(HeartRuns, AdjacentPagesOfOneSuperblockAreOneRun) {
  const RunCounts one = CountRuns(Pages({3, 4, 5, 6}));
  EXPECT_EQ(one.runs, 1u);
  EXPECT_EQ(one.good_share(), 1);
  EXPECT_EQ(one.mean_run_bytes(), 4.0 * kHeartPartPageBytes);
  // Pages 16 and 17 lie in different superblocks of 17.
  EXPECT_EQ(CountRuns(Pages({15, 16, 17, 18})).runs, 2u);
  EXPECT_EQ(CountRuns(Pages({6, 5, 4})).runs, 3u);
}

TEST(HeartRuns, OnePageOfTwelveKibIsNoGoodRunAndTwoAre) {
  EXPECT_EQ(CountRuns(Pages({8})).good_share(), 0);
  const RunCounts counts = CountRuns(Pages({8, 9, 30, 40}));
  EXPECT_EQ(counts.good_share(), 0.5);
  EXPECT_EQ(counts.mean_run_bytes(), (2 * 2 + 1 + 1) / 4.0 * kHeartPartPageBytes);
}

TEST(HeartRuns, CountsOfSeveralSequencesAdd) {
  RunCounts sum = CountRuns(Pages({8, 9}));
  sum += CountRuns(Pages({30, 40}));
  EXPECT_EQ(sum.runs, 3u);
  EXPECT_EQ(sum.pages, 4u);
  EXPECT_EQ(sum.good_share(), 0.5);
}

TEST(HeartRuns, TheFewestRunsAreTheLongestOfWhatWasThere) {
  // Page 1, and pages 17 .. 19 of the second superblock, beside what was taken.
  const std::vector<uint64_t> free_maps = {0b10, 0b111};
  EXPECT_EQ(FewestRuns(Pages({3}), free_maps), 1u);
  EXPECT_EQ(FewestRuns(Pages({3, 4, 5, 6, 7}), free_maps), 1u);
  EXPECT_EQ(FewestRuns(Pages({3, 5, 7, 9}), free_maps), 2u);
  EXPECT_EQ(FewestRuns(Pages({2, 18}), {0b10, 0b101}), 1u);  // a hole is filled again
}

class HeartDesign
    : public ::testing::TestWithParam<std::unique_ptr<KvDesign> (*)(const KvDesign::Limits&)> {
 protected:
  std::unique_ptr<KvDesign> design =
      GetParam()({.pages = 33, .max_seqs = 4, .max_seq_tokens = 256});

  template <class Edits>
  void InStep(Edits&& edits) {
    design->BeginStep();
    edits();
    design->EndStep();
    EXPECT_EQ(design->Violations(), std::vector<std::string>());
  }
};

TEST_P(HeartDesign, AForkSharesAllPagesAndItsFirstWriteCopiesTheLast) {
  uint32_t source = 0, fork = 0;
  InStep([&] { source = design->Join(Prompt(20)); });
  InStep([&] { fork = design->Fork(source); });
  EXPECT_EQ(design->pages_in_use(), 2u);
  InStep([&] { design->Grow(fork, 21); });
  EXPECT_EQ(design->pages_in_use(), 3u);
  EXPECT_EQ(design->copies(), 1u);
  EXPECT_EQ(design->pages(fork)[0], design->pages(source)[0]);
  EXPECT_NE(design->pages(fork)[1], design->pages(source)[1]);
  InStep([&] { design->Grow(source, 21); });  // its last page is its own again
  EXPECT_EQ(design->copies(), 1u);
}

TEST_P(HeartDesign, AFullPageIsFollowedByANewOne) {
  uint32_t seq = 0;
  InStep([&] { seq = design->Join(Prompt(16)); });
  InStep([&] { design->Grow(seq, 17); });
  EXPECT_EQ(design->pages(seq).size(), 2u);
  InStep([&] { design->Grow(seq, 18); });
  EXPECT_EQ(design->pages_in_use(), 2u);
}

TEST_P(HeartDesign, EndedSequencesLeaveAllTheirPages) {
  for (int round = 0; round < 5; ++round) {
    uint32_t seqs[4] = {};
    InStep([&] {
      for (uint32_t& seq : seqs) seq = design->Join(Prompt(8 * kHeartPageTokens));
    });
    EXPECT_EQ(design->pages_in_use(), 32u);
    InStep([&] {
      for (uint32_t seq : seqs) design->End(seq);
    });
    EXPECT_EQ(design->pages_in_use(), 0u);
  }
}

TEST_P(HeartDesign, ARememberedPromptIsFoundWhenItsSequenceHasEnded) {
  design = GetParam()({.pages = 33, .max_seqs = 4, .max_seq_tokens = 256, .shares_prefixes = true});
  const std::vector<TokenId> prompt = Prompt(40), other = Prompt(40, /*first=*/1000);
  uint32_t seq = 0;
  InStep([&] { seq = design->Join(prompt); });
  design->Remember(seq, prompt);
  const std::vector<PageId> pages(design->pages(seq).begin(), design->pages(seq).end());
  InStep([&] { design->End(seq); });
  EXPECT_EQ(design->pages_in_use(), 0u);
  InStep([&] { design->Join(other); });
  EXPECT_EQ(design->found_tokens(), 0u);
  InStep([&] { seq = design->Join(prompt); });
  EXPECT_EQ(design->found_tokens(), 32u);
  EXPECT_EQ(design->pages(seq)[1], pages[1]);
}

TEST_P(HeartDesign, WhatNobodyNamesIsForgottenBeforeRoomRunsOut) {
  design = GetParam()({.pages = 33, .max_seqs = 4, .max_seq_tokens = 256, .shares_prefixes = true});
  for (TokenId first = 0; first < 20'000; first += 1000) {
    const std::vector<TokenId> prompt = Prompt(8 * kHeartPageTokens, first);
    uint32_t seq = 0;
    InStep([&] { seq = design->Join(prompt); });
    design->Remember(seq, prompt);
    InStep([&] { design->End(seq); });
  }
  EXPECT_EQ(design->found_tokens(), 0u);
  InStep([&] { design->Join(Prompt(8 * kHeartPageTokens, 19'000)); });
  EXPECT_GT(design->found_tokens(), 0u);  // how much of it stays is the design's own affair
}

INSTANTIATE_TEST_SUITE_P(All, HeartDesign,
                         ::testing::Values(MakePagerDesign, MakeSinglePageDesign));

TEST(HeartChurn, EachDesignRunsTheSameScriptInAPoolThatIsNinetyPercentFull) {
  const HeartSizes sizes = SizesFor(/*quick=*/true, kWalkingChecks);
  const std::vector<ChurnRow> rows = MeasureChurn(sizes);  // checks books and the script's hash
  ASSERT_EQ(rows.size(), 4u);
  for (const ChurnRow& row : rows) {
    EXPECT_GE(row.joins + row.forks + row.endings, sizes.churn_operations);
    EXPECT_EQ(row.joins + row.forks - row.endings, row.live_seqs);
    EXPECT_GT(row.forks, 0u);
    EXPECT_GT(row.copies, 0u);
    EXPECT_LE(row.fresh_within_bound, row.joins);
    EXPECT_LE(row.examined, row.joins - row.fresh_within_bound);
    EXPECT_EQ(row.call.cpu_ns.size(), 20u);
  }
  for (size_t i : {0u, 2u}) {
    EXPECT_EQ(rows[i].script_hash, rows[i + 1].script_hash);
    EXPECT_EQ(rows[i].runs.pages, rows[i + 1].runs.pages);
    EXPECT_LT(rows[i].runs.runs, rows[i + 1].runs.runs) << rows[i].design;
  }
  for (size_t i : {0u, 1u}) {
    EXPECT_NEAR(rows[i].full_share, 0.85, 0.07);  // it starts empty
    EXPECT_EQ(rows[i].found_tokens, 0u);
    EXPECT_GT(rows[i + 2].found_tokens, 0u);
  }
}

TEST(HeartSteps, EachCombinationIsTimedOrNamedAsSkipped) {
  HeartSizes sizes = SizesFor(/*quick=*/true, kWalkingChecks);
  sizes.num_seqs = {1, 4};
  sizes.contexts = {256, 1024};
  sizes.max_pages = 200;
  const StepGrid grid = MeasureSteps(sizes);
  ASSERT_EQ(grid.rows.size(), 3u);
  for (const StepRow& row : grid.rows) EXPECT_EQ(row.commit.cpu_ns.size(), sizes.repeats);
  ASSERT_EQ(grid.skipped.size(), 1u);
  EXPECT_EQ(grid.skipped[0].num_seqs, 4u);
  EXPECT_EQ(grid.skipped[0].context, 1024u);
  EXPECT_GT(grid.skipped[0].pages, sizes.max_pages);
}

TEST(HeartSteps, GrowthIsTheLargestMedianOverTheSmallestOfOneNumberOfSequences) {
  StepGrid grid;
  for (const auto& [num_seqs, ns] : {std::pair{1u, 10.0}, {1u, 30.0}, {1u, 20.0}, {4u, 90.0}}) {
    StepRow& row = grid.rows.emplace_back();
    row.num_seqs = num_seqs;
    row.commit.cpu_ns = {ns};
  }
  EXPECT_EQ(GrowthWithContext(grid, 1), 3.0);
  EXPECT_EQ(GrowthWithContext(grid, 4), std::nullopt);
}

TEST(HeartVerbs, EachVerbHasASampleARepeat) {
  const HeartSizes sizes = SizesFor(/*quick=*/true, kWalkingChecks);
  const std::vector<VerbRow> rows = MeasureVerbs(sizes);
  for (const VerbRow& row : rows) EXPECT_EQ(row.call.cpu_ns.size(), sizes.repeats) << row.of;
  for (const char* verb : {"Reserve", "Trim", "Alias", "AdoptPrefix", "Commit", "Publish"}) {
    EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [&](const VerbRow& row) {
      return row.verb == verb;
    })) << verb;
  }
}

TEST(HeartSizes, TheFullRunIsTheOneThatTheGoalsAreOf) {
  const HeartSizes sizes = SizesFor(/*quick=*/false, /*check_tier=*/1);
  EXPECT_EQ(sizes.churn_operations, 1'000'000u);
  EXPECT_EQ(sizes.max_pages, 1u << 20);
  EXPECT_TRUE(std::count(sizes.num_seqs.begin(), sizes.num_seqs.end(), 64u));
  EXPECT_TRUE(std::count(sizes.match_tokens.begin(), sizes.match_tokens.end(), 8192u));
}

TEST(HeartGoals, AGoalIsMetMissedOrNotMeasured) {
  HeartGoal below{"g", "us", 5, /*at_least=*/false, /*inclusive=*/false, std::nullopt};
  EXPECT_EQ(below.Verdict(), "not measured");
  below.measured = 5;
  EXPECT_EQ(below.Verdict(), "MISSED");
  below.measured = 4.9;
  EXPECT_EQ(below.Verdict(), "met");
  HeartGoal at_most{"g", "runs", 0, /*at_least=*/false, /*inclusive=*/true, 0.0};
  EXPECT_TRUE(at_most.met());
  HeartGoal at_least{"g", "%", 90, /*at_least=*/true, /*inclusive=*/false, 89.9};
  EXPECT_FALSE(at_least.met());
  at_least.measured = 90;
  EXPECT_TRUE(at_least.met());
}

TEST(HeartGoals, TheSlowestContextAndTheWorstFreshSequenceCount) {
  HeartReport report;
  for (const HeartGoal& goal : GoalsOf(report)) EXPECT_EQ(goal.measured, std::nullopt) << goal.name;
  for (double ns : {1000.0, 7000.0, 2000.0}) {
    StepRow& row = report.steps.rows.emplace_back();
    row.num_seqs = 64;
    row.commit.cpu_ns = {ns};
  }
  report.steps.rows.emplace_back().num_seqs = 256;  // another goal's business
  report.churn.emplace_back().fresh_worst_excess = 2;
  report.churn.emplace_back().fresh_worst_excess = 9;  // the usual design's
  const std::vector<HeartGoal> goals = GoalsOf(report);
  EXPECT_EQ(goals[0].measured, 7.0);
  EXPECT_FALSE(goals[0].met());
  EXPECT_EQ(goals[5].measured, 2.0);
}

}  // namespace
}  // namespace kvrm::cli
