// Sliding groups and cold pages: what leaves from the front or the middle of a table.
#include <algorithm>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pager/pager.h"
#include "pager/pager_testing.h"

namespace kvrm {
namespace {

using testing::CommitAndComplete;
using ::testing::ElementsAre;
using testing::ExpectSound;
using testing::MakePager;
using testing::OpenWith;
using testing::TinyConfig;
using testing::TinyGroup;

constexpr uint32_t kWindow = 40;  // tokens: 2.5 pages

KvGroupGeometry SlidingGroup() {
  KvGroupGeometry group = TinyGroup();
  group.kind = KvGroupKind::kSliding;
  group.window_tokens = kWindow;
  return group;
}

// Group 0 full, group 1 sliding.
PagerConfig TwoGroups(uint32_t superblocks) {
  PagerConfig config = TinyConfig(superblocks);
  config.geometry.groups.push_back(SlidingGroup());
  config.max_step_tokens = 32;
  return config;
}

PagerConfig OneSliding(uint32_t superblocks) {
  PagerConfig config = TinyConfig(superblocks);
  config.geometry.groups = {SlidingGroup()};
  config.max_step_tokens = 32;
  return config;
}

// The first page that a row at `token` sees.
uint32_t FirstSeen(uint32_t token) { return token < kWindow ? 0 : (token + 1 - kWindow) / 16; }

void GrowTo(Pager& pager, SeqId seq, uint32_t tokens) {
  pager.BeginStep();
  ASSERT_EQ(pager.Reserve(seq, tokens).status, ReserveStatus::kOk);
  CommitAndComplete(pager);
}

TEST(SlidingGroup, HoldsTheWindowOfEachRowOfTheStepAndNoPageBeforeIt) {
  for (const uint32_t step : {1u, 5u, 16u, 31u}) {
    const auto pager = MakePager(TwoGroups(16));
    pager->BeginStep();
    const SeqId seq = *pager->Open();
    CommitAndComplete(*pager);
    for (uint32_t length = 0; length + step < 400; length += step) {
      GrowTo(*pager, seq, length + step);
      EXPECT_EQ(pager->first_page(seq, 1), FirstSeen(length)) << "row " << length;
      EXPECT_EQ(pager->first_page(seq, 0), 0u);
      EXPECT_EQ(pager->pages(seq, 1).size(), (length + step + 15) / 16 - FirstSeen(length));
    }
    EXPECT_EQ(pager->counters().slid_pages, pager->first_page(seq, 1));
  }
}

TEST(SlidingGroup, ASequenceOfAnyLengthRunsInABoundedPool) {
  // Window 40, steps of 32: at most (40 + 2 x 32) / 16 + 2 = 8 pages at once; 15 are there.
  const auto pager = MakePager(OneSliding(2));
  EXPECT_GE(pager->max_tokens(), 1024u);
  pager->BeginStep();
  const SeqId seq = *pager->Open();
  CommitAndComplete(*pager);
  for (uint32_t length = 32; length <= 1024; length += 32) GrowTo(*pager, seq, length);
  EXPECT_EQ(pager->num_tokens(seq), 1024u);
  EXPECT_LE(pager->books(0).in_use, 1u + 5u);
}

TEST(SlidingGroup, PagesThatSlideOutRestUntilTheirEpochHasCompleted) {
  const auto pager = MakePager(OneSliding(4));
  pager->BeginStep();
  const SeqId seq = OpenWith(*pager, 64);
  (void)pager->Commit(1);
  const std::vector<uint32_t> before = testing::PagesOf(*pager, seq);
  pager->BeginStep();
  ASSERT_EQ(pager->Reserve(seq, 65).status, ReserveStatus::kOk);
  const auto deltas = pager->Commit(2);
  ASSERT_EQ(deltas.size(), 2u);
  EXPECT_EQ(deltas[1].kind, DeltaKind::kHole);
  EXPECT_EQ(deltas[1].index, 0u);
  EXPECT_EQ(deltas[1].count, 1u);
  EXPECT_EQ(deltas[1].page, 0u);
  EXPECT_EQ(pager->books(0).limbo, 1u);
  pager->StepDone(1);  // epoch 2 may read it still
  EXPECT_EQ(pager->books(0).limbo, 1u);
  pager->StepDone(2);
  EXPECT_EQ(pager->books(0).limbo, 0u);
  EXPECT_EQ(testing::PagesOf(*pager, seq).front(), before[1]);
}

TEST(SlidingGroup, ARolledBackSlidePutsThePagesBack) {
  const auto pager = MakePager(TwoGroups(16));
  pager->BeginStep();
  const SeqId seq = OpenWith(*pager, 100);
  const SeqId other = OpenWith(*pager, 30);
  CommitAndComplete(*pager);
  const PagerSnapshot before = pager->Snapshot();
  pager->BeginStep();
  ASSERT_EQ(pager->Reserve(seq, 130).status, ReserveStatus::kOk);
  EXPECT_GT(pager->first_page(seq, 1), before.groups[1].sequences[0].first_page);
  pager->RollbackStep();
  EXPECT_EQ(pager->Snapshot(), before);

  pager->BeginStep();
  const auto savepoint = pager->Mark(seq);
  ASSERT_EQ(pager->Reserve(seq, 130).status, ReserveStatus::kOk);
  ASSERT_EQ(pager->Reserve(other, 60).status, ReserveStatus::kOk);
  pager->Rollback(savepoint);
  EXPECT_EQ(pager->first_page(seq, 1), before.groups[1].sequences[0].first_page);
  EXPECT_EQ(pager->num_tokens(seq), 100u);
  CommitAndComplete(*pager);
  ExpectSound(*pager);
}

TEST(SlidingGroup, RejectedTokensMayBeTrimmedButNotWhatTheirWindowNeeds) {
  const auto pager = MakePager(OneSliding(8));
  pager->BeginStep();
  const SeqId seq = OpenWith(*pager, 100);
  CommitAndComplete(*pager);
  GrowTo(*pager, seq, 110);  // ten proposed tokens: rows at 100..109
  EXPECT_TRUE(pager->CanTrim(seq, 100));
  EXPECT_TRUE(pager->CanTrim(seq, 104));
  EXPECT_FALSE(pager->CanTrim(seq, 40));
  EXPECT_TRUE(pager->CanTrim(seq, 0));
  pager->BeginStep();
  pager->Trim(seq, 103);
  ASSERT_EQ(pager->Reserve(seq, 104).status, ReserveStatus::kOk);
  EXPECT_EQ(pager->first_page(seq, 0), FirstSeen(103));
  CommitAndComplete(*pager);
  ExpectSound(*pager);
}

TEST(SlidingGroup, AForkSharesTheWindowAndRefusesWhatSlidOut) {
  const auto pager = MakePager(TwoGroups(32));
  pager->BeginStep();
  const SeqId seq = OpenWith(*pager, 100);
  CommitAndComplete(*pager);
  GrowTo(*pager, seq, 101);
  GrowTo(*pager, seq, 102);
  pager->BeginStep();
  const SeqId fork = *pager->Open(), late = *pager->Open();
  ASSERT_EQ(pager->Alias(fork, seq, 102).status, ReserveStatus::kOk);
  EXPECT_EQ(pager->Alias(late, seq, 60).status, ReserveStatus::kUnserviceable);
  EXPECT_EQ(pager->num_tokens(late), 0u);
  EXPECT_EQ(pager->first_page(fork, 1), FirstSeen(101));
  EXPECT_TRUE(std::ranges::equal(pager->pages(fork, 0), pager->pages(seq, 0)));
  EXPECT_EQ(pager->pages(fork, 1).back(), pager->pages(seq, 1).back());
  const auto deltas = CommitAndComplete(*pager);
  const auto hole = std::ranges::find(deltas, DeltaKind::kHole, &Delta::kind);
  ASSERT_NE(hole, deltas.end());
  EXPECT_EQ(hole->count, FirstSeen(101));
  ExpectSound(*pager);
}

TEST(SlidingGroup, WithoutAWindowIsRefusedAsIsAWindowOfAFullGroup) {
  PagerConfig config = OneSliding(4);
  config.geometry.groups[0].window_tokens = 0;
  EXPECT_FALSE(Pager::Create(config).ok());
  config = TinyConfig(4);
  config.geometry.groups[0].window_tokens = 8;
  EXPECT_FALSE(Pager::Create(config).ok());
  for (const KvGroupKind kind : {KvGroupKind::kSummary, KvGroupKind::kState}) {
    config = TinyConfig(4);
    config.geometry.groups[0].kind = kind;
    const auto refused = Pager::Create(config);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().kind, ErrorKind::kUnsupported);
  }
}

TEST(ColdPages, BecomeHolesAndComeBackOnRollback) {
  const auto pager = MakePager(TinyConfig(8));
  pager->BeginStep();
  const SeqId seq = OpenWith(*pager, 100);  // 7 pages
  CommitAndComplete(*pager);
  const PagerSnapshot before = pager->Snapshot();
  const std::vector<uint32_t> pages = testing::PagesOf(*pager, seq);

  pager->BeginStep();
  pager->TrimPages(seq, 0, 17, 80);  // whole pages within: 2, 3, 4
  EXPECT_THAT(testing::PagesOf(*pager, seq),
              ElementsAre(pages[0], pages[1], 0, 0, 0, pages[5], pages[6]));
  EXPECT_TRUE(pager->lossy(seq));
  pager->RollbackStep();
  EXPECT_EQ(pager->Snapshot(), before);

  pager->BeginStep();
  pager->TrimPages(seq, 0, 17, 80);
  const auto deltas = CommitAndComplete(*pager);
  ASSERT_EQ(deltas.size(), 1u);
  EXPECT_EQ(deltas[0].kind, DeltaKind::kHole);
  EXPECT_EQ(deltas[0].index, 2u);
  EXPECT_EQ(deltas[0].count, 3u);
  EXPECT_EQ(pager->counters().cold_pages, 3u);
  EXPECT_EQ(pager->counters().read_runs, 2u);
}

TEST(ColdPages, AClosedSequenceComesBackWithItsHolesOnRollback) {
  const auto pager = MakePager(TinyConfig(8));
  pager->BeginStep();
  const SeqId seq = OpenWith(*pager, 17);
  CommitAndComplete(*pager);
  const PagerSnapshot before = pager->Snapshot();
  pager->BeginStep();
  pager->TrimPages(seq, 0, 0, 16);
  pager->Close(seq);
  pager->RollbackStep();
  EXPECT_EQ(pager->Snapshot(), before);
}

TEST(ColdPages, NeverTakeTheLastPageAndNeverLeaveAWrittenPageAHole) {
  const auto pager = MakePager(TinyConfig(8));
  pager->BeginStep();
  const SeqId seq = OpenWith(*pager, 64);
  pager->TrimPages(seq, 0, 0, 1000);
  EXPECT_NE(pager->pages(seq, 0).back(), kNullPage);
  for (const uint32_t from : {20u, 32u, 48u}) EXPECT_FALSE(pager->CanTrim(seq, from)) << from;
  EXPECT_TRUE(pager->CanTrim(seq, 49));
  pager->Trim(seq, 49);
  ASSERT_EQ(pager->Reserve(seq, 56).status, ReserveStatus::kOk);
  EXPECT_THAT(testing::PagesOf(*pager, seq), ElementsAre(0, 0, 0, ::testing::Gt(0u)));
  CommitAndComplete(*pager);
  ExpectSound(*pager);
  pager->BeginStep();
  pager->Close(seq);
  CommitAndComplete(*pager);
  EXPECT_EQ(pager->books(0).in_use, 1u);
}

TEST(ColdPages, OfALossySequenceNothingIsShared) {
  const auto pager = MakePager(TinyConfig(8));
  pager->BeginStep();
  const SeqId seq = OpenWith(*pager, 64);
  CommitAndComplete(*pager);
  pager->BeginStep();
  pager->TrimPages(seq, 0, 0, 32);
  EXPECT_EQ(pager->Alias(*pager->Open(), seq, 64).status, ReserveStatus::kUnserviceable);
  CommitAndComplete(*pager);
  ExpectSound(*pager);
}

}  // namespace
}  // namespace kvrm
