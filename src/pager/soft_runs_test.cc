// The laws of soft runs: pages that are kept for a decoding sequence's growth until somebody needs
// them more.
#include "pager/soft_runs.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "pager/pager.h"
#include "pager/pager_testing.h"

namespace kvrm {
namespace {

using testing::CommitAndComplete;
using testing::ExpectSound;
using testing::MakePager;
using testing::OpenWith;
using testing::PagesOf;
using testing::TinyConfig;

using Pages = std::vector<uint32_t>;

// The soft pages of `seq`.
Pages SoftOf(const Pager& pager, SeqId seq) {
  Pages pages;
  const PagerSnapshot snapshot = pager.Snapshot();
  for (const auto& sequence : snapshot.groups[0].sequences) {
    if (sequence.seq_id != seq.value) continue;
    for (uint32_t i = 0; i < sequence.soft_pages; ++i) pages.push_back(sequence.soft_page + i);
  }
  return pages;
}

void ReserveOk(Pager& pager, SeqId seq, uint32_t tokens) {
  ASSERT_EQ(pager.Reserve(seq, tokens).status, ReserveStatus::kOk);
}

// ---- what they are for

TEST(SoftRuns, SequencesThatGrowTokenByTokenTogetherHaveRunsOfFourPages) {
  PagerConfig config = TinyConfig(0);
  config.geometry.groups[0].pages_per_superblock = 16;
  config.geometry.groups[0].superblock_bytes = 4096;
  config.kv_bytes = 64 * 4096;
  config.max_slots = 16;
  const auto pager = MakePager(config);
  std::vector<SeqId> seqs;
  pager->BeginStep();
  for (int i = 0; i < 16; ++i) seqs.push_back(OpenWith(*pager, 16));
  CommitAndComplete(*pager);
  EXPECT_EQ(pager->counters().read_runs, 16u);
  for (uint32_t tokens = 17; tokens <= 16 * 41; ++tokens) {
    pager->BeginStep();
    for (SeqId seq : seqs) ReserveOk(*pager, seq, tokens);
    CommitAndComplete(*pager);
  }
  // Pages 2 to 41 of each, and one run more where a superblock holds no whole number of fours. One
  // page after the other, in turns, they would be 16 * 40 runs.
  EXPECT_LE(pager->counters().read_runs, 16u * (1 + 40 / 4 + 1));
  EXPECT_EQ(pager->counters().soft_stolen, 0u);
  ExpectSound(*pager);
}

TEST(SoftRuns, ASequenceAloneGrowsInOneRunAndUsesWhatItKept) {
  const auto pager = MakePager(TinyConfig(4));
  pager->BeginStep();
  const SeqId seq = OpenWith(*pager, 16);
  CommitAndComplete(*pager);
  EXPECT_EQ(SoftOf(*pager, seq), Pages{});  // it may end within its first page
  pager->BeginStep();
  ReserveOk(*pager, seq, 17);
  EXPECT_EQ(SoftOf(*pager, seq), (Pages{3, 4, 5}));
  EXPECT_EQ(pager->books(0).soft, 3u);
  EXPECT_EQ(pager->books(0).free, 2u);
  EXPECT_EQ(pager->available_pages(false), 2u + 3 + 24);
  CommitAndComplete(*pager);
  pager->BeginStep();
  ReserveOk(*pager, seq, 33);
  EXPECT_EQ(SoftOf(*pager, seq), (Pages{4, 5}));
  ReserveOk(*pager, seq, 16 * 5);  // two more at once
  EXPECT_EQ(PagesOf(*pager, seq), (Pages{1, 2, 3, 4, 5}));
  EXPECT_EQ(SoftOf(*pager, seq), Pages{});
  ReserveOk(*pager, seq, 16 * 6);
  EXPECT_EQ(SoftOf(*pager, seq), (Pages{7}));  // a run ends with its superblock
  CommitAndComplete(*pager);
  EXPECT_EQ(pager->counters().read_runs, 1u);
  EXPECT_EQ(pager->counters().soft_taken, 4u);
  EXPECT_EQ(pager->counters().soft_used, 3u);
}

TEST(SoftRuns, TheLastSoftPageIsFollowedByTheNextRunAtCommit) {
  const auto pager = MakePager(TinyConfig(4));
  pager->BeginStep();
  const SeqId seq = OpenWith(*pager, 16);
  ReserveOk(*pager, seq, 32);
  CommitAndComplete(*pager);
  pager->BeginStep();
  for (uint32_t pages : {3u, 4u, 5u}) ReserveOk(*pager, seq, 16 * pages);
  EXPECT_EQ(SoftOf(*pager, seq), Pages{});
  CommitAndComplete(*pager);
  EXPECT_EQ(SoftOf(*pager, seq), (Pages{6, 7}));
}

TEST(SoftRuns, APromptWithAHintAndAScatteredPoolKeepNone) {
  PagerConfig config = TinyConfig(4);
  for (const uint64_t seed : {0u, 5u}) {
    config.scatter_seed = seed;
    const auto pager = MakePager(config);
    pager->BeginStep();
    const SeqId seq = OpenWith(*pager, 16, 16 * 7);
    for (uint32_t pages = 2; pages <= 5; ++pages) {
      const uint32_t hint = seed == 0 ? 16 * 7 : 0;
      EXPECT_EQ(pager->Reserve(seq, 16 * pages, hint).status, ReserveStatus::kOk);
    }
    CommitAndComplete(*pager);
    EXPECT_EQ(pager->counters().soft_taken, 0u);
  }
}

TEST(SoftRuns, NoLongerThanTheTableMayGrow) {
  PagerConfig config = TinyConfig(4);
  config.max_seq_tokens = 16 * 3;
  const auto pager = MakePager(config);
  pager->BeginStep();
  const SeqId seq = OpenWith(*pager, 16);
  ReserveOk(*pager, seq, 32);
  EXPECT_EQ(SoftOf(*pager, seq), (Pages{3}));
}

// ---- who takes them

// 15 pages: a has 1, 2 and keeps 3, 4, 5; b has 6, 8 and keeps 9, 10, 11. Free: 7, 12 to 15.
struct TwoThatDecode {
  std::unique_ptr<Pager> pager = MakePager(TinyConfig(2));
  SeqId a, b, c;
  TwoThatDecode() {
    pager->BeginStep();
    a = OpenWith(*pager, 16);
    ReserveOk(*pager, a, 32);
    b = OpenWith(*pager, 16);
    ReserveOk(*pager, b, 32);
    c = *pager->Open();
    CommitAndComplete(*pager);
    EXPECT_EQ(PagesOf(*pager, b), (Pages{6, 7}));
    EXPECT_EQ(SoftOf(*pager, a), (Pages{3, 4, 5}));
  }
};

TEST(SoftRuns, OthersTakeThemWholeTheOldestFirstWhenNothingElseFits) {
  const auto pager = MakePager(TinyConfig(2));
  pager->BeginStep();
  const SeqId a = OpenWith(*pager, 16);
  ReserveOk(*pager, a, 32);  // 1, 2, keeps 3 to 5
  const SeqId b = OpenWith(*pager, 16 * 3, 16 * 3);
  EXPECT_EQ(PagesOf(*pager, b), (Pages{8, 9, 10}));
  ReserveOk(*pager, b, 16 * 4);  // 11, keeps 12 to 14
  CommitAndComplete(*pager);
  EXPECT_EQ(SoftOf(*pager, b), (Pages{12, 13, 14}));
  EXPECT_EQ(pager->available_pages(false), 9u);

  pager->BeginStep();
  const SeqId c = OpenWith(*pager, 16);
  EXPECT_EQ(PagesOf(*pager, c), (Pages{15}));  // free pages first
  ReserveOk(*pager, c, 16 * 3);
  EXPECT_EQ(PagesOf(*pager, c), (Pages{15, 6, 7}));
  EXPECT_EQ(pager->counters().soft_stolen, 0u);
  ReserveOk(*pager, c, 16 * 4);
  EXPECT_EQ(PagesOf(*pager, c), (Pages{15, 6, 7, 3}));
  EXPECT_EQ(SoftOf(*pager, a), Pages{});
  EXPECT_EQ(SoftOf(*pager, b), (Pages{12, 13, 14}));
  EXPECT_EQ(SoftOf(*pager, c), (Pages{4, 5}));
  EXPECT_EQ(pager->counters().soft_stolen, 3u);
  const Reservation deferred = pager->Reserve(c, 16 * 10);
  EXPECT_EQ(deferred.status, ReserveStatus::kDeferred);
  EXPECT_EQ(deferred.missing_pages, 1u);
  ReserveOk(*pager, c, 16 * 9);  // its own, then b's
  EXPECT_EQ(pager->available_pages(false), 0u);
  EXPECT_EQ(pager->counters().soft_stolen, 6u);
  CommitAndComplete(*pager);
  EXPECT_EQ(pager->books(0).soft, 0u);
  ExpectSound(*pager);
}

TEST(SoftRuns, ASuperblockIsTakenBeforeTheyAreStolen) {
  const auto pager = MakePager(TinyConfig(3));
  pager->BeginStep();
  const SeqId a = OpenWith(*pager, 16 * 3);
  ReserveOk(*pager, a, 16 * 4);  // keeps 5 to 7
  const SeqId b = OpenWith(*pager, 16);
  EXPECT_EQ(PagesOf(*pager, b), (Pages{8}));
  EXPECT_EQ(SoftOf(*pager, a), (Pages{5, 6, 7}));
}

TEST(SoftRuns, AShortPromptDoesNotTakeThemForALongerRun) {
  const auto pager = MakePager(TinyConfig(1));  // 7 pages
  pager->BeginStep();
  const SeqId a = OpenWith(*pager, 16);
  ReserveOk(*pager, a, 32);  // 1, 2, keeps 3, 4, 5
  const SeqId b = OpenWith(*pager, 32);
  EXPECT_EQ(PagesOf(*pager, b), (Pages{6, 7}));
  EXPECT_EQ(SoftOf(*pager, a), (Pages{3, 4, 5}));
}

// ---- how they end

TEST(SoftRuns, TrimAndCloseGiveThemUpAtCommit) {
  for (const bool closes : {false, true}) {
    TwoThatDecode s;
    s.pager->BeginStep();
    if (closes) {
      s.pager->Close(s.a);
    } else {
      s.pager->Trim(s.a, 16);
    }
    EXPECT_EQ(s.pager->books(0).soft, 3u);
    ExpectSound(*s.pager);
    (void)s.pager->Commit(2);
    EXPECT_EQ(s.pager->books(0).soft, 0u);  // no limbo: nobody ever wrote to them
    EXPECT_EQ(s.pager->books(0).limbo, closes ? 2u : 1u);
    ExpectSound(*s.pager);
  }
}

TEST(SoftRuns, ATrimWithinTheLastPageKeepsThem) {
  TwoThatDecode s;
  s.pager->BeginStep();
  s.pager->Trim(s.a, 20);
  CommitAndComplete(*s.pager);
  EXPECT_EQ(SoftOf(*s.pager, s.a), (Pages{3, 4, 5}));
}

TEST(SoftRuns, TheyDoNotFollowACopyOfTheLastPage) {
  TwoThatDecode s;
  s.pager->BeginStep();
  s.pager->Trim(s.a, 20);
  CommitAndComplete(*s.pager);
  s.pager->BeginStep();
  (void)s.pager->Alias(s.c, s.a, 20);
  ReserveOk(*s.pager, s.a, 21);
  EXPECT_EQ(PagesOf(*s.pager, s.a), (Pages{1, 8}));
  CommitAndComplete(*s.pager);
  EXPECT_EQ(SoftOf(*s.pager, s.a), Pages{});
  ExpectSound(*s.pager);
}

TEST(SoftRuns, IdleReleasesThem) {
  TwoThatDecode s;
  while (s.pager->Maintain(Pager::Load::kIdle)) {
  }
  EXPECT_EQ(s.pager->books(0).soft, 0u);
  s.pager->BeginStep();
  ReserveOk(*s.pager, s.a, 33);
  EXPECT_EQ(PagesOf(*s.pager, s.a), (Pages{1, 2, 3}));  // still in place
}

// ---- rollback

TEST(SoftRunsRollback, ASavepointPutsBackWhatTheSequenceUsedOrLeft) {
  TwoThatDecode s;
  const PagerSnapshot before = s.pager->Snapshot();
  s.pager->BeginStep();
  const auto mark = s.pager->Mark(s.a);
  ReserveOk(*s.pager, s.a, 16 * 4);
  ReserveOk(*s.pager, s.a, 16 * 6);
  s.pager->Trim(s.a, 3);
  ReserveOk(*s.pager, s.a, 20);
  s.pager->Rollback(mark);
  EXPECT_EQ(s.pager->Snapshot(), before);
  s.pager->Trim(s.a, 0);
  s.pager->Rollback(mark);
  EXPECT_EQ(s.pager->Snapshot(), before);
}

// a used one of its pages, the others were stolen: what comes back to a has no successor.
TEST(SoftRunsRollback, WhatOthersStoleStaysTheirsAndTheStepIsStillUndoneWhole) {
  TwoThatDecode s;
  const PagerSnapshot before = s.pager->Snapshot();
  for (const bool grows_on : {false, true}) {
    s.pager->BeginStep();
    const auto mark = s.pager->Mark(s.a);
    ReserveOk(*s.pager, s.a, 16 * 3);   // uses 3
    ReserveOk(*s.pager, s.c, 16 * 10);  // 8 to 15 and both that a kept
    EXPECT_EQ(s.pager->available_pages(false), 0u);
    s.pager->Rollback(mark);
    EXPECT_EQ(PagesOf(*s.pager, s.a), (Pages{1, 2}));
    EXPECT_EQ(SoftOf(*s.pager, s.a), Pages{});
    EXPECT_EQ(s.pager->available_pages(false), 1u);
    ExpectSound(*s.pager);
    if (grows_on) ReserveOk(*s.pager, s.b, 16 * 3);  // takes page 3
    s.pager->RollbackStep();
    EXPECT_EQ(s.pager->Snapshot(), before);
  }
}

// Decoding sequences on a pool that is nearly full, so that runs are kept, used and stolen all the
// time. Check tier 3 validates after each call.
TEST(SoftRunsRollback, RandomStepsAreUndoneExactly) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto pager = MakePager(TinyConfig(4));
    pager->BeginStep();
    std::vector<SeqId> seqs;
    for (int i = 0; i < 5; ++i) seqs.push_back(OpenWith(*pager, 1 + random() % 40));
    CommitAndComplete(*pager);
    const auto edit = [&](SeqId seq) {
      const uint32_t tokens = pager->num_tokens(seq);
      if (random() % 6 == 0) return pager->Trim(seq, random() % (tokens + 1));
      (void)pager->Reserve(seq, tokens + (random() % 4 == 0 ? random() % 80 : 16));
    };
    for (int step = 0; step < 40; ++step) {
      const PagerSnapshot before = pager->Snapshot();
      pager->BeginStep();
      for (int i = 0; i < 6; ++i) {
        const SeqId seq = seqs[random() % seqs.size()];
        const PagerSnapshot at_mark = pager->Snapshot();
        const auto mark = pager->Mark(seq);
        bool alone = true;
        const uint64_t stolen = pager->counters().soft_stolen;
        for (uint32_t edits = random() % 4; edits > 0; --edits) {
          const SeqId other = seqs[random() % seqs.size()];
          const bool is_other = random() % 3 == 0 && other != seq;
          alone = alone && !is_other;
          edit(is_other ? other : seq);
        }
        if (random() % 2 == 0) continue;
        pager->Rollback(mark);
        if (alone && pager->counters().soft_stolen == stolen) {
          ASSERT_EQ(pager->Snapshot(), at_mark);
        }
      }
      if (random() % 3 == 0) {
        pager->RollbackStep();
        ASSERT_EQ(pager->Snapshot(), before);
      } else {
        CommitAndComplete(*pager);
      }
    }
    EXPECT_GT(pager->counters().soft_stolen, 0u);
    EXPECT_GT(pager->counters().soft_used, 0u);
  }
}

// ---- the order alone

TEST(SoftRunsDeathTest, ARunDoesNotFallInTwo) {
  SoftRuns runs(2);
  runs.Add(0, {PageId{4}, 2}, SoftRuns::Age::kYoungest);
  EXPECT_DEATH(runs.Add(0, {PageId{7}, 1}, SoftRuns::Age::kYoungest), "PAGER-8");
  EXPECT_DEATH(runs.RemoveFirst(0, 3), "PAGER-8");
  EXPECT_DEATH(runs.RemoveFirst(1, 1), "PAGER-8");
}

TEST(SoftRunsOrder, OldestFirstAndReturnedOnesInFront) {
  SoftRuns runs(3);
  runs.Add(2, {PageId{4}, 2}, SoftRuns::Age::kYoungest);
  runs.Add(0, {PageId{9}, 1}, SoftRuns::Age::kYoungest);
  EXPECT_EQ(runs.oldest(), 2u);
  runs.RemoveFirst(2, 2);
  EXPECT_EQ(runs.oldest(), 0u);
  runs.Add(2, {PageId{5}, 1}, SoftRuns::Age::kOldest);
  runs.Add(2, {PageId{4}, 1}, SoftRuns::Age::kOldest);
  EXPECT_EQ(runs.oldest(), 2u);
  EXPECT_EQ(runs.Of(2).page, PageId{4});
  EXPECT_EQ(runs.Of(2).count, 2u);
  EXPECT_EQ(runs.num_slots(), 2u);
}

// A savepoint's rollback leaves the superblock that it took: stolen pages of it come back when the
// whole step is rolled back.
TEST(SoftRuns, AStepIsRolledBackAfterASavepointThatTookASuperblockAndStoleItsOwnRun) {
  const auto pager = MakePager(TinyConfig(2));
  pager->BeginStep();
  const SeqId a = OpenWith(*pager, 16);
  (void)OpenWith(*pager, 16 * 6);  // superblock 0 is full
  CommitAndComplete(*pager);
  const PagerSnapshot before = pager->Snapshot();
  for (const bool commits : {false, true}) {
    pager->BeginStep();
    const auto savepoint = pager->Mark(a);
    ASSERT_EQ(pager->Reserve(a, 17).status, ReserveStatus::kOk);  // a superblock, three soft pages
    pager->Trim(a, 16);
    ASSERT_EQ(pager->Reserve(a, 16 * 8).status, ReserveStatus::kOk);  // which are stolen
    pager->Rollback(savepoint);
    if (commits) {
      CommitAndComplete(*pager);
      EXPECT_EQ(pager->num_tokens(a), 16u);
    } else {
      pager->RollbackStep();
      EXPECT_EQ(pager->Snapshot(), before);
    }
    ExpectSound(*pager);
  }
}

}  // namespace
}  // namespace kvrm
