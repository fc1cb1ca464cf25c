// Field reports about other engines' KV pagers, as far as the pager alone can show them. The
// suite's name is the report's number.
#include <algorithm>
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
using testing::TinyConfig;

// A pool of `pages` pages besides the null page.
PagerConfig SmallPool(uint32_t pages, uint32_t max_slots) {
  PagerConfig config = TinyConfig(1);
  config.geometry.groups[0].pages_per_superblock = 1;
  config.geometry.groups[0].superblock_bytes = 192;
  config.kv_bytes = (pages + 1) * 192;
  config.max_slots = max_slots;
  return config;
}

// Reference counts must not be raised before the test for room.
TEST(B002, FailedAdmissionLeavesTheCountsAndTheSequenceStartsOnceThereIsRoom) {
  const auto pager = MakePager(SmallPool(6, 4));
  pager->BeginStep();
  const SeqId prefix = *pager->Open(), other = *pager->Open(), a = *pager->Open();
  ASSERT_EQ(pager->Reserve(prefix, 32).status, ReserveStatus::kOk);
  ASSERT_EQ(pager->Reserve(other, 32).status, ReserveStatus::kOk);
  CommitAndComplete(*pager);
  pager->BeginStep();
  const PagerSnapshot before = pager->Snapshot();
  for (int i = 0; i < 100; ++i) {
    const auto mark = pager->Mark(a);
    ASSERT_EQ(pager->Alias(a, prefix, 32).status, ReserveStatus::kOk);  // two of five are there
    const Reservation reservation = pager->Reserve(a, 80);
    ASSERT_EQ(reservation.status, ReserveStatus::kDeferred);
    ASSERT_EQ(reservation.missing_pages, 1u);
    pager->Rollback(mark);
    ASSERT_EQ(pager->Snapshot(), before);
  }
  pager->Close(other);
  CommitAndComplete(*pager);
  pager->BeginStep();
  ASSERT_EQ(pager->Alias(a, prefix, 32).status, ReserveStatus::kOk);
  EXPECT_EQ(pager->Reserve(a, 80).status, ReserveStatus::kOk);
  pager->Close(a);
  pager->Close(prefix);
  CommitAndComplete(*pager);
  EXPECT_EQ(pager->books(0).in_use, 1u);
  EXPECT_EQ(pager->available_pages(false), 6u);
}

// The page of the next token must come back too when a sequence ends.
TEST(B006, UsedPagesReturnToTheirStartAfterEveryBatch) {
  const auto pager = MakePager(TinyConfig(8));
  constexpr uint32_t kLengths[] = {15, 16, 17, 31, 32, 33};
  for (uint32_t batch = 0; batch < 270; ++batch) {  // 8 at once
    std::vector<SeqId> seqs;
    pager->BeginStep();
    for (int i = 0; i < 8; ++i) seqs.push_back(*pager->Open());
    for (uint32_t length = 1; length <= 33; ++length) {
      if (length > 1) pager->BeginStep();
      for (uint32_t i = 0; i < 8; ++i) {
        const uint32_t end = kLengths[(batch + i) % 6];
        if (length <= end) {
          ASSERT_EQ(pager->Reserve(seqs[i], length).status, ReserveStatus::kOk);
        } else if (length == end + 1) {
          pager->Close(seqs[i]);
        }
      }
      CommitAndComplete(*pager);
    }
    pager->BeginStep();
    for (uint32_t i = 0; i < 8; ++i) {
      if (kLengths[(batch + i) % 6] == 33) pager->Close(seqs[i]);
    }
    CommitAndComplete(*pager);
    ASSERT_EQ(pager->books(0).in_use, 1u);
    ASSERT_EQ(pager->books(0).limbo, 0u);
  }
}

// A page that two partial ranges share must be freed once, and not before both are gone.
TEST(B007, TheBooksBalanceWhenManyShareAPartialPrefixAndHalfAreCancelled) {
  PagerConfig config = TinyConfig(64);
  config.max_slots = 49;
  const auto pager = MakePager(config);
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    pager->BeginStep();
    const SeqId prefix = *pager->Open();
    ASSERT_EQ(pager->Reserve(prefix, 20).status, ReserveStatus::kOk);
    CommitAndComplete(*pager);
    std::vector<std::pair<SeqId, uint32_t>> running;  // and their length
    pager->BeginStep();
    for (int i = 0; i < 48; ++i) {
      running.emplace_back(*pager->Open(), 20);
      ASSERT_EQ(pager->Alias(running.back().first, prefix, 20).status, ReserveStatus::kOk);
    }
    pager->Close(prefix);
    CommitAndComplete(*pager);
    for (int step = 0; !running.empty(); ++step) {
      pager->BeginStep();
      std::shuffle(running.begin(), running.end(), random);
      for (auto& [seq, length] : running) {
        length += step < 2 ? 64 - random() % 40 : 1;  // chunks of a prompt, then decode
        ASSERT_NE(pager->Reserve(seq, length).status, ReserveStatus::kUnserviceable);
      }
      for (size_t half = running.size() / 2 + 1; half > 0; --half) {
        pager->Close(running.back().first);
        running.pop_back();
      }
      CommitAndComplete(*pager);
      ExpectSound(*pager);
    }
    ASSERT_EQ(pager->books(0).in_use, 1u);
    ASSERT_EQ(pager->books(0).free + 1, pager->books(0).total);
  }
}

// A half-filled last page has one writer, however many sequences share it.
TEST(B008, EachStreamOfOnePromptWritesAPageOfItsOwn) {
  const auto pager = MakePager(TinyConfig(32));
  pager->BeginStep();
  std::vector<SeqId> streams = {*pager->Open()};
  ASSERT_EQ(pager->Reserve(streams[0], 20).status, ReserveStatus::kOk);
  CommitAndComplete(*pager);
  pager->BeginStep();
  for (int i = 1; i < 4; ++i) {
    streams.push_back(*pager->Open());
    ASSERT_EQ(pager->Alias(streams.back(), streams[0], 20).status, ReserveStatus::kOk);
  }
  uint32_t copies = 0;
  for (uint32_t length = 21; length <= 220; ++length) {
    if (length > 21) pager->BeginStep();
    for (SeqId seq : streams) ASSERT_EQ(pager->Reserve(seq, length).status, ReserveStatus::kOk);
    CommitAndComplete(*pager);
    copies += static_cast<uint32_t>(pager->page_copies().size());
    std::vector<PageId> written;
    for (SeqId seq : streams) written.push_back(pager->pages(seq, 0)[(length - 1) / 16]);
    std::sort(written.begin(), written.end());
    ASSERT_EQ(std::adjacent_find(written.begin(), written.end()), written.end()) << length;
  }
  // The fourth copies too: until the commit the others could roll back to the page that they left.
  EXPECT_EQ(copies, 4u);
  for (SeqId seq : streams) EXPECT_EQ(pager->pages(seq, 0)[0], pager->pages(streams[0], 0)[0]);
  ExpectSound(*pager);
}

// Pages that rest until a step has completed are room already: one shortage, one victim.
TEST(B019, TrimmedPagesCountAsRoomOfTheNextStep) {
  const auto pager = MakePager(SmallPool(8, 4));
  pager->BeginStep();
  const SeqId a = *pager->Open(), b = *pager->Open();
  ASSERT_EQ(pager->Reserve(a, 64).status, ReserveStatus::kOk);
  ASSERT_EQ(pager->Reserve(b, 64).status, ReserveStatus::kOk);
  (void)pager->Commit(1);
  pager->BeginStep();
  ASSERT_EQ(pager->Reserve(a, 65).status, ReserveStatus::kDeferred);
  pager->Trim(b, 0);  // one victim
  ASSERT_EQ(pager->Reserve(a, 65).status, ReserveStatus::kDeferred);
  EXPECT_EQ(pager->available_pages(/*with_limbo=*/true), 4u);  // so no second one is needed
  (void)pager->Commit(2);
  pager->StepDone(2);
  pager->BeginStep();
  EXPECT_EQ(pager->Reserve(a, 65).status, ReserveStatus::kOk);
}

}  // namespace
}  // namespace kvrm
