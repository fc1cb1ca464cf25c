// The laws of slots, placement, trimming and memory, one test each, on small pools.
#include "pager/pager.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pager/pager_testing.h"

namespace kvrm {
namespace {

using testing::CommitAndComplete;
using testing::ExpectSound;
using ::testing::HasSubstr;
using testing::MakePager;
using testing::OpenWith;
using testing::PagesOf;
using testing::TinyConfig;
using testing::TinyGroup;

// ---- Create

TEST(PagerCreate, TakesOnlyTheNullPagesSuperblock) {
  const auto pager = MakePager(TinyConfig(4));
  const PagerBooks books = pager->books(0);
  EXPECT_EQ(books.superblocks, 1u);
  EXPECT_EQ(books.in_use, 1u);
  EXPECT_EQ(books.free, 7u);
  EXPECT_EQ(books.superblock_bytes, 2048u);
  EXPECT_EQ(books.reserved_bytes, 192u);
  ExpectSound(*pager);
}

TEST(PagerCreate, RefusesNamingFieldValueAndLimit) {
  const auto error = [](auto change) {
    PagerConfig config = TinyConfig(4);
    change(config);
    const auto pager = Pager::Create(config);
    return pager.ok() ? std::string("accepted") : pager.error().message;
  };
  using C = PagerConfig;
  EXPECT_EQ(error([](C&) {}), "accepted");
  EXPECT_THAT(error([](C& c) { c.geometry.groups[0].kind = KvGroupKind::kSummary; }),
              HasSubstr("groups[0].kind: 2 is not built, only 0 (full) and 1 (sliding)"));
  EXPECT_THAT(error([](C& c) { c.geometry.groups[0].kind = KvGroupKind::kSliding; }),
              HasSubstr("groups[0].window_tokens: 0, must be at least 2"));
  EXPECT_THAT(error([](C& c) { c.geometry.groups.clear(); }),
              HasSubstr("0 groups, must be 1 to 4"));
  EXPECT_THAT(error([](C& c) { c.geometry.groups.resize(5, c.geometry.groups[0]); }),
              HasSubstr("5 groups"));
  for (uint32_t tokens : {0u, 1u, 4u, 24u, 127u, 256u}) {
    EXPECT_THAT(error([=](C& c) { c.geometry.groups[0].page_tokens = tokens; }),
                HasSubstr("page_tokens: " + std::to_string(tokens) +
                          ", must be a power of two from 8 to 128"));
  }
  for (uint32_t tokens : {8u, 16u, 32u, 64u, 128u}) {
    EXPECT_EQ(error([=](C& c) { c.geometry.groups[0].page_tokens = tokens; }), "accepted");
  }
  EXPECT_THAT(error([](C& c) { c.geometry.groups[0].pages_per_superblock = 65; }),
              HasSubstr("pages_per_superblock: 65, must be 1 to 64"));
  EXPECT_THAT(error([](C& c) { c.geometry.groups[0].superblock_bytes = 1535; }),
              HasSubstr("superblock_bytes: 1535, must be at least pages_per_superblock"));
  EXPECT_THAT(error([](C& c) { c.geometry.groups[0].num_parts = 0; }), HasSubstr("num_parts: 0"));
  EXPECT_THAT(error([](C& c) { c.geometry.groups[0].part_page_bytes = 0; }),
              HasSubstr("part_page_bytes: 0"));
  EXPECT_THAT(error([](C& c) { c.kv_bytes = 2047; }),
              HasSubstr("kv_bytes: 2047, must be at least 2048"));
  EXPECT_THAT(error([](C& c) { c.geometry.groups[0].part_page_bytes = ~uint64_t{0} / 16; }),
              HasSubstr("superblock_bytes: 2048"));
  EXPECT_THAT(error([](C& c) { c.geometry.groups[0].superblock_bytes = (16u << 20) + 1; }),
              HasSubstr("groups[0].superblock_bytes: 16777217, must be at most 16777216"));
  EXPECT_THAT(error([](C& c) {
                c.geometry.groups[0].superblock_bytes = 16u << 20;
                c.geometry.groups[0].pages_per_superblock = 1;
                c.kv_bytes = uint64_t{1} << 48;
              }),
              HasSubstr("kv_bytes: a virtual range of 281474976710656 bytes"));
  EXPECT_THAT(error([](C& c) { c.max_slots = 0; }), HasSubstr("max_slots: 0"));
  EXPECT_THAT(error([](C& c) { c.max_slots = 65536; }), HasSubstr("max_slots: 65536"));
  EXPECT_THAT(error([](C& c) { c.max_seq_tokens = 0; }), HasSubstr("max_seq_tokens: 0"));
  EXPECT_THAT(error([](C& c) { c.kv_bytes = uint64_t{1} << 62; }), HasSubstr("must be below 2^32"));
}

// ---- Open, Close

TEST(PagerSlots, OpenSaysNoWhenAllSlotsRun) {
  const auto pager = MakePager(TinyConfig(4));
  pager->BeginStep();
  std::vector<uint16_t> slots;
  for (int i = 0; i < 8; ++i) slots.push_back(pager->slot(*pager->Open()).value);
  EXPECT_FALSE(pager->Open().has_value());
  std::sort(slots.begin(), slots.end());
  EXPECT_EQ(slots, (std::vector<uint16_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(PagerSlots, ASlotIsFreeOnlyAfterTheCommitThatClosedIt) {
  PagerConfig config = TinyConfig(4);
  config.max_slots = 1;
  const auto pager = MakePager(config);
  pager->BeginStep();
  const SeqId first = OpenWith(*pager, 20);
  CommitAndComplete(*pager);
  pager->BeginStep();
  pager->Close(first);
  EXPECT_FALSE(pager->Open().has_value());
  const auto deltas = CommitAndComplete(*pager);
  ASSERT_EQ(deltas.size(), 1u);
  EXPECT_EQ(deltas[0].kind, DeltaKind::kTruncate);
  EXPECT_EQ(deltas[0].index, 0u);
  pager->BeginStep();
  const SeqId second = *pager->Open();
  EXPECT_NE(second, first);
  EXPECT_EQ(pager->slot(second).value, 0);
  EXPECT_EQ(pager->num_tokens(second), 0u);
}

TEST(PagerSlotsDeathTest, AClosedSequenceIsNotNamedAgain) {
  const auto pager = MakePager(TinyConfig(4));
  pager->BeginStep();
  const SeqId seq = OpenWith(*pager, 20);
  pager->Close(seq);
  EXPECT_DEATH(pager->Reserve(seq, 30), "closed");
  EXPECT_DEATH(pager->Close(seq), "closed");
  CommitAndComplete(*pager);
  EXPECT_DEATH((void)pager->num_tokens(seq), "not open");
}

TEST(PagerSlotsDeathTest, EditsOutsideAStepAreBugs) {
  const auto pager = MakePager(TinyConfig(4));
  EXPECT_DEATH((void)pager->Open(), "outside");
  EXPECT_DEATH((void)pager->Commit(1), "I2");
  pager->BeginStep();
  EXPECT_DEATH(pager->BeginStep(), "inside");
  EXPECT_DEATH((void)pager->Commit(2), "I2");
}

// ---- Reserve

TEST(PagerReserve, CoversExactlyTheTokensAndTellsItInDeltas) {
  const auto pager = MakePager(TinyConfig(4));
  pager->BeginStep();
  const SeqId seq = OpenWith(*pager, 33);
  EXPECT_EQ(pager->num_tokens(seq), 33u);
  EXPECT_EQ(PagesOf(*pager, seq), (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(pager->Reserve(seq, 48).status, ReserveStatus::kOk);  // same page
  EXPECT_EQ(pager->Reserve(seq, 49).status, ReserveStatus::kOk);  // the next one
  EXPECT_EQ(pager->Reserve(seq, 10).status, ReserveStatus::kOk);  // never shrinks
  EXPECT_EQ(pager->num_tokens(seq), 49u);
  const auto deltas = CommitAndComplete(*pager);
  ASSERT_EQ(deltas.size(), 2u);
  EXPECT_EQ(deltas[0].kind, DeltaKind::kAppend);
  EXPECT_EQ(deltas[0].page, 1u);
  EXPECT_EQ(deltas[0].count, 3u);
  EXPECT_EQ(deltas[1].kind, DeltaKind::kExtend);
  EXPECT_EQ(deltas[1].index, 3u);
  EXPECT_EQ(deltas[1].first_token_place, 48u);
  EXPECT_EQ(pager->counters().read_runs, 1u);
}

TEST(PagerReserve, ExtendsInPlaceThenStaysInTheSuperblockThenFitsBestInTheFullest) {
  const auto pager = MakePager(TinyConfig(4));
  pager->BeginStep();
  const SeqId a = OpenWith(*pager, 16);      // page 1
  const SeqId b = OpenWith(*pager, 16);      // page 2
  const SeqId c = OpenWith(*pager, 16 * 3);  // pages 3, 4, 5
  EXPECT_EQ(PagesOf(*pager, c), (std::vector<uint32_t>{3, 4, 5}));
  EXPECT_EQ(pager->Reserve(a, 32).status, ReserveStatus::kOk);  // 2 is taken: same superblock
  EXPECT_EQ(PagesOf(*pager, a), (std::vector<uint32_t>{1, 6}));
  EXPECT_EQ(pager->Reserve(a, 48).status, ReserveStatus::kOk);  // extends in place
  EXPECT_EQ(PagesOf(*pager, a), (std::vector<uint32_t>{1, 6, 7}));
  const SeqId d = OpenWith(*pager, 16 * 5);  // superblock 1
  EXPECT_EQ(PagesOf(*pager, d), (std::vector<uint32_t>{8, 9, 10, 11, 12}));
  pager->Trim(b, 0);
  pager->Trim(c, 16);
  CommitAndComplete(*pager);  // free now: 2; 4, 5; 13, 14, 15

  pager->BeginStep();
  EXPECT_EQ(PagesOf(*pager, OpenWith(*pager, 16 * 2)).front(), 4u);   // the shortest run that fits
  EXPECT_EQ(PagesOf(*pager, OpenWith(*pager, 16)).front(), 2u);       // the fullest superblock
  EXPECT_EQ(PagesOf(*pager, OpenWith(*pager, 16 * 4)).front(), 16u);  // none fits: a new one
  ExpectSound(*pager);
}

TEST(PagerReserve, AHintPlacesThePromptWhereItsWholeRunFits) {
  const auto pager = MakePager(TinyConfig(4));
  pager->BeginStep();
  (void)OpenWith(*pager, 16);                      // leaves 6 of superblock 0
  const SeqId seq = OpenWith(*pager, 16, 16 * 8);  // 8 to come: not there
  EXPECT_EQ(PagesOf(*pager, seq), (std::vector<uint32_t>{8}));
  EXPECT_EQ(pager->books(0).in_use, 3u);  // the hint takes nothing
  EXPECT_EQ(pager->Reserve(seq, 16 * 8, 16 * 8).status, ReserveStatus::kOk);
  EXPECT_EQ(pager->counters().read_runs, 2u);
}

// I4: read runs of a fresh sequence <= ceil(pages / P) + 2.
TEST(PagerReserve, AFreshSequenceHasFewReadRuns) {
  PagerConfig config = TinyConfig(64);
  config.max_seq_tokens = 16 * 200;
  const auto pager = MakePager(config);
  for (uint32_t pages : {1u, 5u, 7u, 8u, 9u, 100u, 200u}) {
    pager->BeginStep();
    const SeqId seq = *pager->Open();
    for (uint32_t done = 0; done < pages * 16; done += 64) {  // in chunks of 4 pages
      const uint32_t end = std::min(done + 64, pages * 16);
      ASSERT_EQ(pager->Reserve(seq, end, pages * 16).status, ReserveStatus::kOk);
    }
    EXPECT_LE(pager->counters().read_runs, (pages + 7) / 8 + 2) << pages;
    pager->Close(seq);
    CommitAndComplete(*pager);
  }
}

TEST(PagerReserve, FailedReserveLeavesPoolUnchanged) {
  const auto pager = MakePager(TinyConfig(2));  // 15 pages
  pager->BeginStep();
  const SeqId a = OpenWith(*pager, 16 * 10);
  const SeqId b = OpenWith(*pager, 20);
  const PagerSnapshot before = pager->Snapshot();
  const Reservation deferred = pager->Reserve(b, 16 * 7);
  EXPECT_EQ(deferred.status, ReserveStatus::kDeferred);
  EXPECT_EQ(deferred.missing_pages, 2u);
  EXPECT_EQ(pager->Snapshot(), before);
  EXPECT_EQ(pager->Reserve(b, 16 * 16).status, ReserveStatus::kUnserviceable);
  EXPECT_EQ(pager->Snapshot(), before);
  EXPECT_EQ(pager->Reserve(b, 16 * 5).status, ReserveStatus::kOk);  // what is left, it gets
  EXPECT_EQ(pager->available_pages(false), 0u);
  pager->Trim(a, 0);
  EXPECT_EQ(pager->available_pages(false), 0u);
  EXPECT_EQ(pager->available_pages(true), 10u);
}

TEST(PagerReserve, UnserviceableIsWhatTheEmptyPoolCouldNotHold) {
  PagerConfig config = TinyConfig(2);
  config.max_seq_tokens = 100'000;
  const auto pager = MakePager(config);
  EXPECT_EQ(pager->max_tokens(), 15u * 16);
  pager->BeginStep();
  const SeqId seq = *pager->Open();
  EXPECT_EQ(pager->Reserve(seq, 15 * 16 + 1).status, ReserveStatus::kUnserviceable);
  EXPECT_EQ(pager->Reserve(seq, 0xFFFF'FFFF).status, ReserveStatus::kUnserviceable);
  EXPECT_EQ(pager->Reserve(seq, 15 * 16, 0xFFFF'FFFF).status, ReserveStatus::kOk);
}

TEST(PagerReserve, AVeryLongLimitCostsNoMoreTablesThanThereArePages) {
  PagerConfig config = TinyConfig(2);
  config.max_seq_tokens = 0xFFFF'FFFF;
  config.max_slots = 65535;
  const auto pager = MakePager(config);
  EXPECT_EQ(pager->max_tokens(), 240u);
}

TEST(PagerReserve, NeverTakesMoreThanKvBytes) {
  PagerConfig config = TinyConfig(3);
  config.kv_bytes += 2047;  // a rest that is no superblock
  const auto pager = MakePager(config);
  pager->BeginStep();
  std::vector<SeqId> seqs;
  uint32_t granted = 0;
  for (int i = 0; i < 8; ++i) seqs.push_back(*pager->Open());
  for (uint32_t round = 1; round < 10; ++round) {
    for (SeqId seq : seqs) granted += pager->Reserve(seq, round * 16).status == ReserveStatus::kOk;
  }
  EXPECT_EQ(granted, 23u);
  EXPECT_EQ(pager->books(0).superblock_bytes, 3u * 2048);
  EXPECT_EQ(pager->range_bytes(0), 3u * 2048);
}

// ---- Trim, limbo

TEST(PagerTrim, KeepsTheTokensBeforeIt) {
  const auto pager = MakePager(TinyConfig(4));
  pager->BeginStep();
  const SeqId seq = OpenWith(*pager, 100);
  CommitAndComplete(*pager);
  for (uint32_t from : {100u, 99u, 97u, 96u, 33u, 32u, 17u, 1u, 0u}) {
    pager->BeginStep();
    pager->Trim(seq, from);
    EXPECT_EQ(pager->num_tokens(seq), from);
    EXPECT_EQ(pager->pages(seq, 0).size(), (from + 15) / 16);
    CommitAndComplete(*pager);
    EXPECT_EQ(pager->books(0).in_use, 1 + (from + 15) / 16);
  }
}

TEST(PagerLimbo, APageRestsUntilItsEpochHasCompleted) {
  const auto pager = MakePager(TinyConfig(1));  // 7 pages
  pager->BeginStep();
  const SeqId a = OpenWith(*pager, 16 * 7);
  (void)pager->Commit(1);
  pager->BeginStep();
  const SeqId b = *pager->Open();
  pager->Trim(a, 16 * 3);
  EXPECT_EQ(pager->books(0).limbo, 4u);
  EXPECT_EQ(pager->Reserve(b, 16).status, ReserveStatus::kDeferred);  // not within the step
  (void)pager->Commit(2);
  pager->BeginStep();
  EXPECT_EQ(pager->Reserve(b, 16).status, ReserveStatus::kDeferred);
  pager->StepDone(1);  // epoch 1 read those pages, epoch 2 may still
  EXPECT_EQ(pager->Reserve(b, 16).status, ReserveStatus::kDeferred);
  pager->StepDone(2);
  EXPECT_EQ(pager->books(0).limbo, 0u);
  EXPECT_EQ(pager->Reserve(b, 16 * 4).status, ReserveStatus::kOk);
}

TEST(PagerLimbo, StepDoneOfAnOldEpochChangesNothing) {
  const auto pager = MakePager(TinyConfig(1));
  for (int i = 0; i < 3; ++i) {
    pager->BeginStep();
    CommitAndComplete(*pager);
  }
  const PagerSnapshot before = pager->Snapshot();
  pager->StepDone(1);
  EXPECT_EQ(pager->Snapshot(), before);
  EXPECT_DEATH(pager->StepDone(4), "not committed");
}

// ---- Maintain, memory

TEST(PagerMaintain, TellsSuperblocksThatAVerbTookCold) {
  const auto pager = MakePager(TinyConfig(8));
  const auto cold = [&] { return pager->counters().superblocks_taken_cold; };
  EXPECT_EQ(cold(), 0u);  // the null page's was populated by Create
  pager->BeginStep();
  const SeqId seq = OpenWith(*pager, 16 * 10);  // 7 pages are free
  EXPECT_EQ(cold(), 1u);
  CommitAndComplete(*pager);
  for (uint32_t pages = 11; pages <= 50; ++pages) {
    (void)pager->Maintain();
    pager->BeginStep();
    EXPECT_EQ(pager->Reserve(seq, 16 * pages).status, ReserveStatus::kOk);
    CommitAndComplete(*pager);
  }
  EXPECT_EQ(cold(), 1u);
}

TEST(PagerMaintain, KeepsAPageReadyForEachOpenSequence) {
  PagerConfig config = TinyConfig(16);
  config.max_slots = 20;
  const auto pager = MakePager(config);
  pager->BeginStep();
  std::vector<SeqId> sequences(20);
  for (SeqId& seq : sequences) seq = *pager->Open();
  CommitAndComplete(*pager);
  for (uint32_t tokens = 16; tokens <= 16 * 4; tokens += 16) {
    while (pager->Maintain()) {
    }
    pager->BeginStep();
    for (const SeqId seq : sequences) {
      EXPECT_EQ(pager->Reserve(seq, tokens).status, ReserveStatus::kOk);
    }
    CommitAndComplete(*pager);
  }
  EXPECT_EQ(pager->counters().superblocks_taken_cold, 0u);
}

TEST(PagerMaintain, PopulatesOneSuperblockAheadOfNeed) {
  PagerConfig config = TinyConfig(3);
  config.max_step_tokens = 16;
  const auto pager = MakePager(config);
  EXPECT_FALSE(pager->Maintain());  // seven pages are free
  pager->BeginStep();
  (void)OpenWith(*pager, 16 * 5);
  CommitAndComplete(*pager);
  const PagerSnapshot before = pager->Snapshot();
  EXPECT_TRUE(pager->Maintain());
  EXPECT_FALSE(pager->Maintain());  // one is enough
  EXPECT_EQ(pager->Snapshot(), before);
  pager->BeginStep();
  (void)OpenWith(*pager, 16 * 18);  // all that is left
  CommitAndComplete(*pager);
  EXPECT_TRUE(pager->Maintain());   // the one that was taken cold
  EXPECT_FALSE(pager->Maintain());  // kv_bytes is reached
}

TEST(PagerMemory, PagesAreWritableAndStartAt2MiB) {
  const auto pager = MakePager(TinyConfig(3));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(pager->base(0)) % (2u << 20), 0u);
  pager->BeginStep();
  const SeqId seq = OpenWith(*pager, 16 * 20);
  for (PageId page : pager->pages(seq, 0)) {
    std::byte* part = pager->base(0) + TinyGroup().PageOffset(page);
    for (uint32_t p = 0; p < 3; ++p) {
      std::memset(part + p * TinyGroup().part_stride_bytes(), static_cast<int>(page.value), 64);
    }
  }
  for (PageId page : pager->pages(seq, 0)) {  // no two pages overlap
    const std::byte* part = pager->base(0) + TinyGroup().PageOffset(page);
    for (uint32_t p = 0; p < 3; ++p) {
      const std::byte* byte = part + p * TinyGroup().part_stride_bytes();
      EXPECT_EQ(byte[0], std::byte{static_cast<uint8_t>(page.value)});
      EXPECT_EQ(byte[63], std::byte{static_cast<uint8_t>(page.value)});
    }
  }
}

TEST(PagerMemory, PoisonFillsAPageWhenItBecomesFreeAndNoOther) {
  PagerConfig config = TinyConfig(3);
  config.poison_freed = true;
  const auto pager = MakePager(config);
  const auto byte_of = [&](uint32_t page) -> std::byte& {
    return pager->base(0)[TinyGroup().PageOffset(PageId{page}) + 70 % 64];
  };
  EXPECT_EQ(byte_of(0), std::byte{0});  // the null page is never touched
  pager->BeginStep();
  const SeqId seq = OpenWith(*pager, 48);
  for (uint32_t page : {1u, 2u, 3u}) byte_of(page) = std::byte{7};
  (void)pager->Commit(1);
  pager->BeginStep();
  pager->Trim(seq, 32);
  (void)pager->Commit(2);
  EXPECT_EQ(byte_of(3), std::byte{7});  // limbo: still readable
  pager->StepDone(2);
  EXPECT_EQ(byte_of(3), std::byte{0xFF});
  EXPECT_EQ(byte_of(2), std::byte{7});
  EXPECT_EQ(byte_of(0), std::byte{0});
}

// ---- scatter

TEST(PagerScatter, NoSequenceGetsTwoAdjacentPages) {
  for (uint64_t seed : {1u, 2u, 3u, 77u}) {
    PagerConfig config = TinyConfig(16);
    config.scatter_seed = seed;
    const auto pager = MakePager(config);
    pager->BeginStep();
    std::vector<SeqId> seqs;
    for (int i = 0; i < 4; ++i) seqs.push_back(*pager->Open());
    uint64_t pages = 0;
    for (uint32_t tokens = 40; tokens <= 400; tokens += 40) {
      for (SeqId seq : seqs) ASSERT_EQ(pager->Reserve(seq, tokens, 400).status, ReserveStatus::kOk);
    }
    for (SeqId seq : seqs) pages += pager->pages(seq, 0).size();
    EXPECT_EQ(pager->counters().read_runs, pages) << "seed " << seed;
    ExpectSound(*pager);
  }
}

TEST(PagerScatter, StillHandsOutEveryPage) {
  PagerConfig config = TinyConfig(2);
  config.scatter_seed = 5;
  const auto pager = MakePager(config);
  pager->BeginStep();
  EXPECT_EQ(pager->Reserve(*pager->Open(), 15 * 16).status, ReserveStatus::kOk);
  EXPECT_EQ(pager->available_pages(true), 0u);
}

// ---- several groups

TEST(PagerGroups, EachGroupHasItsPagesAndAllShareKvBytes) {
  PagerConfig config = TinyConfig(6);
  KvGroupGeometry wide = TinyGroup();
  wide.page_tokens = 32;
  config.geometry.groups.push_back(wide);
  const auto pager = MakePager(config);
  // Two superblocks of 32-token pages hold 480 tokens, which need 30 pages of 16: four superblocks.
  EXPECT_EQ(pager->max_tokens(), 480u);
  pager->BeginStep();
  const SeqId seq = *pager->Open();
  EXPECT_EQ(pager->Reserve(seq, 481).status, ReserveStatus::kUnserviceable);
  EXPECT_EQ(pager->Reserve(seq, 100).status, ReserveStatus::kOk);
  EXPECT_EQ(pager->pages(seq, 0).size(), 7u);
  EXPECT_EQ(pager->pages(seq, 1).size(), 4u);
  EXPECT_EQ(pager->Reserve(seq, 480).status, ReserveStatus::kOk);
  EXPECT_EQ(pager->books(0).superblocks, 4u);
  EXPECT_EQ(pager->books(1).superblocks, 2u);
  EXPECT_EQ(pager->available_tokens(true), 0u);
  ExpectSound(*pager);
  pager->RollbackStep();
  EXPECT_EQ(pager->books(0).superblocks, 1u);
  EXPECT_EQ(pager->books(1).superblocks, 1u);
  ExpectSound(*pager);
}

TEST(PagerGroups, PlacementInOneGroupLeavesAnotherItsRoom) {
  PagerConfig config = TinyConfig(3);
  KvGroupGeometry narrow = TinyGroup();
  narrow.page_tokens = 8;
  config.geometry.groups.push_back(narrow);
  const auto pager = MakePager(config);
  pager->BeginStep();
  (void)OpenWith(*pager, 24);
  (void)OpenWith(*pager, 32);
  EXPECT_EQ(pager->books(1).free, 0u);
  EXPECT_EQ(pager->books(0).free, 3u);
  // Group 0 has a page but no run of eight; the last superblock belongs to group 1, which has none.
  (void)OpenWith(*pager, 8, 16 * 8);
  EXPECT_EQ(pager->books(0).superblocks, 1u);
  EXPECT_EQ(pager->books(1).superblocks, 2u);
  ExpectSound(*pager);
}

}  // namespace
}  // namespace kvrm
