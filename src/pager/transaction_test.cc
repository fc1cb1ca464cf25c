// The laws of sharing and of the step as a transaction, one test each, on small pools.
#include <cstring>
#include <memory>
#include <random>
#include <string>
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

// ---- Alias, copy-on-write

TEST(PagerAlias, SharesByReferenceAndTheFirstWriterCopies) {
  const auto pager = MakePager(TinyConfig(4));
  pager->BeginStep();
  const SeqId a = OpenWith(*pager, 40);  // pages 1, 2, 3; the last holds 8 tokens
  CommitAndComplete(*pager);
  pager->BeginStep();
  const SeqId b = *pager->Open();
  EXPECT_EQ(pager->Alias(b, a, 40).status, ReserveStatus::kOk);
  EXPECT_EQ(PagesOf(*pager, b), PagesOf(*pager, a));
  EXPECT_EQ(pager->books(0).in_use, 4u);  // nothing taken
  EXPECT_EQ(pager->Snapshot().groups[0].reference_counts[3], 2u);
  CommitAndComplete(*pager);
  EXPECT_TRUE(pager->page_copies().empty());

  pager->BeginStep();
  EXPECT_EQ(pager->Reserve(a, 41).status, ReserveStatus::kOk);  // the first to write copies
  EXPECT_EQ(PagesOf(*pager, a), (std::vector<uint32_t>{1, 2, 4}));
  EXPECT_EQ(PagesOf(*pager, b), (std::vector<uint32_t>{1, 2, 3}));
  const auto deltas = CommitAndComplete(*pager);
  ASSERT_EQ(pager->page_copies().size(), 1u);
  EXPECT_EQ(pager->page_copies()[0].source, PageId{3});
  EXPECT_EQ(pager->page_copies()[0].destination, PageId{4});
  ASSERT_EQ(deltas.size(), 1u);
  EXPECT_EQ(deltas[0].kind, DeltaKind::kReplace);
  EXPECT_EQ(deltas[0].index, 2u);
  EXPECT_EQ(pager->counters().copy_on_write, 1u);

  pager->BeginStep();
  EXPECT_EQ(pager->Reserve(b, 41).status, ReserveStatus::kOk);  // alone on the page now
  EXPECT_TRUE(CommitAndComplete(*pager).empty());
  EXPECT_EQ(PagesOf(*pager, b), (std::vector<uint32_t>{1, 2, 3}));
}

// Found by the oracle: b, alone on the page since a left it, wrote where a saw its own tokens
// again.
TEST(PagerAlias, APageThatMayBeRolledBackIntoIsStillShared) {
  const auto pager = MakePager(TinyConfig(4));
  pager->BeginStep();
  const SeqId a = OpenWith(*pager, 30);
  CommitAndComplete(*pager);
  pager->BeginStep();
  const SeqId b = *pager->Open();
  (void)pager->Alias(b, a, 20);
  CommitAndComplete(*pager);
  for (const bool by_trim : {false, true}) {
    pager->BeginStep();
    const auto mark = pager->Mark(a);
    if (by_trim) {
      pager->Trim(a, 0);
    } else {
      EXPECT_EQ(pager->Reserve(a, 31).status, ReserveStatus::kOk);
    }
    EXPECT_EQ(pager->Reserve(b, 21).status, ReserveStatus::kOk);
    pager->Rollback(mark);
    EXPECT_NE(pager->pages(a, 0)[1], pager->pages(b, 0)[1]);
    pager->RollbackStep();
  }
}

TEST(PagerAlias, FullPagesAreNeverCopied) {
  const auto pager = MakePager(TinyConfig(4));
  pager->BeginStep();
  const SeqId a = OpenWith(*pager, 48);
  CommitAndComplete(*pager);
  pager->BeginStep();
  const SeqId b = *pager->Open();
  EXPECT_EQ(pager->Alias(b, a, 32).status, ReserveStatus::kOk);
  EXPECT_EQ(pager->Reserve(b, 33).status, ReserveStatus::kOk);
  EXPECT_EQ(pager->Reserve(a, 49).status, ReserveStatus::kOk);
  CommitAndComplete(*pager);
  EXPECT_TRUE(pager->page_copies().empty());
}

TEST(PagerAlias, ATrimIntoASharedPageIsFollowedByACopyToo) {
  const auto pager = MakePager(TinyConfig(4));
  pager->BeginStep();
  const SeqId a = OpenWith(*pager, 32);
  CommitAndComplete(*pager);
  pager->BeginStep();
  const SeqId b = *pager->Open();
  (void)pager->Alias(b, a, 32);
  pager->Trim(b, 20);  // 4 tokens of page 2 stay visible
  EXPECT_EQ(pager->Reserve(b, 21).status, ReserveStatus::kOk);
  EXPECT_EQ(PagesOf(*pager, a), (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(PagesOf(*pager, b), (std::vector<uint32_t>{1, 3}));
}

TEST(PagerAlias, TheCopyNeedsRoomLikeAnyPage) {
  const auto pager = MakePager(TinyConfig(1));  // 7 pages
  pager->BeginStep();
  const SeqId a = OpenWith(*pager, 16 * 6 + 1);
  CommitAndComplete(*pager);
  pager->BeginStep();
  const SeqId b = *pager->Open();
  (void)pager->Alias(b, a, 16 * 6 + 1);
  const PagerSnapshot before = pager->Snapshot();
  const Reservation reservation = pager->Reserve(b, 16 * 6 + 2);
  EXPECT_EQ(reservation.status, ReserveStatus::kDeferred);
  EXPECT_EQ(reservation.missing_pages, 1u);
  EXPECT_EQ(pager->Snapshot(), before);
}

TEST(PagerAlias, APageLivesAsLongAsOneSequenceNamesIt) {
  const auto pager = MakePager(TinyConfig(4));
  pager->BeginStep();
  const SeqId a = OpenWith(*pager, 40);
  CommitAndComplete(*pager);
  pager->BeginStep();
  const SeqId b = *pager->Open();
  (void)pager->Alias(b, a, 40);
  pager->Close(a);
  CommitAndComplete(*pager);
  EXPECT_EQ(pager->books(0).in_use, 4u);
  pager->BeginStep();
  pager->Close(b);
  CommitAndComplete(*pager);
  EXPECT_EQ(pager->books(0).in_use, 1u);
}

TEST(PagerAliasDeathTest, SharesOnlyWhatIsThere) {
  const auto pager = MakePager(TinyConfig(4));
  pager->BeginStep();
  const SeqId a = OpenWith(*pager, 40);
  const SeqId b = *pager->Open();
  EXPECT_DEATH((void)pager->Alias(b, a, 41), "past the end");
  EXPECT_DEATH((void)pager->Alias(b, a, 16), "that this step writes");
  EXPECT_DEATH((void)pager->Alias(a, a, 16), "not empty");
}

// ---- the transaction

TEST(PagerCommit, TheSameEpochTwiceReturnsTheSameAndChangesNothing) {
  const auto pager = MakePager(TinyConfig(4));
  pager->BeginStep();
  (void)OpenWith(*pager, 40);
  const auto first = pager->Commit(1);
  const PagerSnapshot before = pager->Snapshot();
  const auto again = pager->Commit(1);
  EXPECT_EQ(again.data(), first.data());
  EXPECT_EQ(again.size(), first.size());
  EXPECT_EQ(pager->Snapshot(), before);
  EXPECT_EQ(pager->counters().commits, 1u);
}

TEST(PagerCommit, DeltasLastUntilTheNextButOneCommit) {
  const auto pager = MakePager(TinyConfig(4));
  pager->BeginStep();
  const SeqId seq = OpenWith(*pager, 40);
  const auto first = pager->Commit(1);
  const std::vector<Delta> copy(first.begin(), first.end());
  pager->BeginStep();
  pager->Trim(seq, 0);
  (void)pager->Commit(2);
  EXPECT_EQ(std::memcmp(first.data(), copy.data(), first.size_bytes()), 0);
}

TEST(PagerRollback, ASavepointUndoesItsSequenceAlone) {
  const auto pager = MakePager(TinyConfig(4));
  pager->BeginStep();
  const SeqId a = OpenWith(*pager, 40);
  const SeqId b = OpenWith(*pager, 40);
  CommitAndComplete(*pager);
  pager->BeginStep();
  const auto mark = pager->Mark(a);
  pager->Trim(a, 3);
  EXPECT_EQ(pager->Reserve(a, 200).status, ReserveStatus::kOk);
  EXPECT_EQ(pager->Reserve(b, 60).status, ReserveStatus::kOk);
  pager->Trim(a, 10);
  pager->Rollback(mark);
  EXPECT_EQ(pager->num_tokens(a), 40u);
  EXPECT_EQ(PagesOf(*pager, a), (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(pager->num_tokens(b), 60u);
  const auto deltas = CommitAndComplete(*pager);
  for (const Delta& delta : deltas) EXPECT_EQ(delta.slot, pager->slot(b).value);
  ExpectSound(*pager);
}

// a's copy of page 2 is shared by b before a is rolled back.
struct SharedCopy {
  std::unique_ptr<Pager> pager = MakePager(TinyConfig(4));
  SeqId a, b, c;
  PagerSnapshot before;
  SharedCopy() {
    pager->BeginStep();
    a = OpenWith(*pager, 20);  // pages 1, 2
    CommitAndComplete(*pager);
    pager->BeginStep();
    c = *pager->Open();
    (void)pager->Alias(c, a, 20);
    b = *pager->Open();
    CommitAndComplete(*pager);
    before = pager->Snapshot();
    pager->BeginStep();
    const auto mark = pager->Mark(a);
    EXPECT_EQ(pager->Reserve(a, 21).status, ReserveStatus::kOk);
    EXPECT_EQ(PagesOf(*pager, a), (std::vector<uint32_t>{1, 3}));
    (void)pager->Alias(b, a, 20);
    pager->Rollback(mark);
    EXPECT_EQ(PagesOf(*pager, a), (std::vector<uint32_t>{1, 2}));
    EXPECT_EQ(PagesOf(*pager, b), (std::vector<uint32_t>{1, 3}));
    ExpectSound(*pager);
  }
};

TEST(PagerRollback, ACopyThatOthersShareIsStillMade) {
  SharedCopy s;
  const auto deltas = CommitAndComplete(*s.pager);
  ASSERT_EQ(s.pager->page_copies().size(), 1u);
  EXPECT_EQ(s.pager->page_copies()[0].source, PageId{2});
  EXPECT_EQ(s.pager->page_copies()[0].destination, PageId{3});
  for (const Delta& delta : deltas) EXPECT_EQ(delta.slot, s.pager->slot(s.b).value);
}

TEST(PagerRollback, ACopyThatNobodyNamesIsNotHandedOutWithinTheStep) {
  SharedCopy s;
  s.pager->Trim(s.b, 16);
  EXPECT_EQ(s.pager->books(0).limbo, 1u);
  EXPECT_EQ(s.pager->Reserve(s.b, 32).status, ReserveStatus::kOk);
  EXPECT_EQ(PagesOf(*s.pager, s.b), (std::vector<uint32_t>{1, 4}));
  ExpectSound(*s.pager);
  s.pager->RollbackStep();
  EXPECT_EQ(s.pager->Snapshot(), s.before);
}

// A step of random edits of sequence `a`, beside b, whose pages it may share.
struct RandomStep {
  std::unique_ptr<Pager> pager = MakePager(TinyConfig(10));
  SeqId a, b;
  std::mt19937 random;
  explicit RandomStep(uint32_t seed) : random(seed) {
    pager->BeginStep();
    a = OpenWith(*pager, 1 + random() % 200);
    b = OpenWith(*pager, 40 + random() % 100);
    const SeqId gone = OpenWith(*pager, 30);  // leaves a hole
    CommitAndComplete(*pager);
    pager->BeginStep();
    pager->Close(gone);
    (void)pager->Commit(2);  // its pages rest in limbo
  }
  void Edit() {
    switch (random() % 4) {
      case 0:
        pager->Trim(a, random() % (pager->num_tokens(a) + 1));
        return;
      case 1:
        pager->Trim(a, 0);
        (void)pager->Alias(a, b, 1 + random() % 40);
        return;
      default:
        EXPECT_EQ(pager->Reserve(a, pager->num_tokens(a) + random() % 40).status,
                  ReserveStatus::kOk);
    }
  }
};

TEST(PagerRollback, AfterEveryKthEditOfARandomStepBothWaysLeadBack) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    for (uint32_t k = 1; k <= 12; ++k) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", after edit " + std::to_string(k));
      RandomStep step(seed);
      const PagerSnapshot before = step.pager->Snapshot();
      step.pager->BeginStep();
      const auto mark = step.pager->Mark(step.a);
      for (uint32_t i = 0; i < k; ++i) step.Edit();
      step.pager->Rollback(mark);
      ASSERT_EQ(step.pager->Snapshot(), before);
      for (uint32_t i = 0; i < k; ++i) step.Edit();
      step.pager->RollbackStep();
      ASSERT_EQ(step.pager->Snapshot(), before);
    }
  }
}

TEST(PagerRollbackDeathTest, ASavepointOfAnotherStepIsABug) {
  const auto pager = MakePager(TinyConfig(4));
  pager->BeginStep();
  const SeqId a = OpenWith(*pager, 40);
  const auto mark = pager->Mark(a);
  CommitAndComplete(*pager);
  EXPECT_DEATH(pager->Rollback(mark), "another step");
  pager->BeginStep();
  EXPECT_DEATH(pager->Rollback(mark), "another step");
}

}  // namespace
}  // namespace kvrm
