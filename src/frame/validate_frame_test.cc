// For each law a sound frame is corrupted so that exactly that law is reported.
#include <functional>
#include <string>
#include <vector>

#include "frame/chain_hash.h"
#include "frame/frame.h"
#include "frame/frame_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvrm {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::FrameCopy;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MakeBuilder;
using testing::MakeDelta;
using testing::MakeRow;
using testing::MakeSlot;
using ::testing::Not;
using ::testing::StartsWith;
using testing::TinyFrameGeometry;

constexpr uint32_t kMaxPages = 16;

// Slot 1: 60 tokens on pages 5, 6, 7, 17, one decode row. Slot 3: 40 tokens on pages 9, 10, 11, a
// chunk of three rows. Slot 4 shares pages 5 and 6 and has no row.
std::vector<std::string> ViolationsAfter(const std::function<void(FrameCopy&)>& corrupt,
                                         bool chained = false) {
  const auto builder = MakeBuilder(TinyFrameGeometry(), {6, 16, kMaxPages});
  const FrameHead previous = *builder->Publish(1, {}, {}, {}).head;
  const FrameView frame = builder->Publish(
      2, std::vector{MakeRow(1, 59, 0), MakeRow(3, 37), MakeRow(3, 38), MakeRow(3, 39, 1)},
      std::vector{MakeSlot(1, 60, 0, 1), MakeSlot(3, 40, 1, 3), MakeSlot(4, 32, 0, 0)},
      std::vector{
          MakeDelta(DeltaKind::kAppend, 1, 0, 5, 3), MakeDelta(DeltaKind::kAppend, 1, 3, 17, 1),
          MakeDelta(DeltaKind::kAppend, 3, 0, 9, 3), MakeDelta(DeltaKind::kAppend, 4, 0, 5, 2)});
  EXPECT_THAT(ValidateFrame(TinyFrameGeometry(), frame, &previous), IsEmpty());
  FrameCopy copy(frame, 1);
  EXPECT_THAT(ValidateFrame(TinyFrameGeometry(), copy.view(), &previous), IsEmpty());
  corrupt(copy);
  return ValidateFrame(TinyFrameGeometry(), copy.view(), chained ? &previous : nullptr);
}

Segment& SegmentOf(FrameCopy& copy, uint32_t slot, uint32_t index) {
  return copy.segments[slot * kMaxPages + index];
}
uint32_t& PageOf(FrameCopy& copy, uint32_t slot, uint32_t index) {
  return copy.dense[slot * kMaxPages + index];
}

// Each corruption is found, and only under `law`.
void ExpectOnly(const char* law, const std::vector<std::function<void(FrameCopy&)>>& corruptions,
                bool chained = false) {
  for (size_t i = 0; i < corruptions.size(); ++i) {
    SCOPED_TRACE(std::string(law) + " corruption " + std::to_string(i));
    const auto found = ViolationsAfter(corruptions[i], chained);
    EXPECT_THAT(found, Not(IsEmpty()));
    EXPECT_THAT(found, Each(StartsWith(law)));
  }
}

TEST(FrameValidate, Frame0WhatIsNotWellFormed) {
  ExpectOnly("FRAME-0", {
                            [](FrameCopy& f) { f.head->magic ^= 1; },
                            [](FrameCopy& f) { ++f.head->version; },
                            [](FrameCopy& f) { ++f.head->num_groups; },
                            [](FrameCopy& f) { f.head->num_slots = 7; },
                            [](FrameCopy& f) { f.slots[0].slot = 6; },
                            [](FrameCopy& f) { f.slots[1].slot = 1; },
                            [](FrameCopy& f) { f.by_slot[1] = nullptr; },
                            [](FrameCopy& f) { f.slots[0].num_pages[0] = kMaxPages + 1; },
                            [](FrameCopy& f) { f.slots[0].num_segments[0] = 5; },
                            [](FrameCopy& f) { f.slots[0].num_holes[0] = 5; },
                            [](FrameCopy& f) { f.slots[0].num_holes[0] = 3; },  // 2 segments
                            [](FrameCopy& f) { f.slots[0].flags = 2; },
                            [](FrameCopy& f) { f.deltas[0].kind = static_cast<DeltaKind>(5); },
                            [](FrameCopy& f) { f.deltas[0].slot = 6; },
                            [](FrameCopy& f) { f.deltas[0].kv_group = 1; },
                            [](FrameCopy& f) { f.deltas[1].first_token_place = 47; },
                        });
}

// Where two checks of FRAME-0 meet, each has a frame that the other accepts.
TEST(FrameValidate, Frame0SlotsThatCannotBeRead) {
  EXPECT_THAT(ViolationsAfter([](FrameCopy& f) { f.head->num_slots = 7; }),
              ElementsAre("FRAME-0: 7 live slots of 6"));
  EXPECT_THAT(ViolationsAfter([](FrameCopy& f) { f.slots[2].slot = 6; }),
              ElementsAre("FRAME-0: slot 6 is past the last, 5"));
  EXPECT_THAT(ViolationsAfter([](FrameCopy& f) {
                std::swap(f.slots[1].slot, f.slots[2].slot);
                std::swap(f.by_slot[3], f.by_slot[4]);
              }),
              ElementsAre("FRAME-0: slot 3 does not ascend"));
}

TEST(FrameValidate, Frame0ReservedFieldsThatAreNotZero) {
  EXPECT_THAT(ViolationsAfter([](FrameCopy& f) { f.head->reserved[4] = 9; }),
              ElementsAre("FRAME-0: head reserved[4] is 9, not 0"));
  EXPECT_THAT(ViolationsAfter([](FrameCopy& f) { f.rows[2].reserved = 1; }),
              ElementsAre("FRAME-0: row 2 reserved is 1, not 0"));
  EXPECT_THAT(ViolationsAfter([](FrameCopy& f) { f.slots[1].reserved1[7] = 5; }),
              ElementsAre("FRAME-0: slot 3 reserved1[7] is 5, not 0"));
  EXPECT_THAT(ViolationsAfter([](FrameCopy& f) { f.deltas[3].reserved = 2; }),
              ElementsAre("FRAME-0: delta 3 reserved is 2, not 0"));
  EXPECT_THAT(ViolationsAfter([](FrameCopy& f) { SegmentOf(f, 1, 1).reserved1 = 3; }),
              ElementsAre("FRAME-0: slot 1 segment 1 reserved1 is 3, not 0"));
}

TEST(FrameValidate, Frame1RowsOfSlotsThatAreNotLiveOrOutOfOrder) {
  ExpectOnly("FRAME-1", {
                            [](FrameCopy& f) { f.slots[1].row_begin = 2; },
                            [](FrameCopy& f) { f.slots[1].num_rows = 2; },
                            [](FrameCopy& f) { f.slots[2].num_rows = 1; },
                            [](FrameCopy& f) { std::swap(f.rows[1].kv_index, f.rows[2].kv_index); },
                            [](FrameCopy& f) { f.rows[2].kv_index = f.rows[1].kv_index; },
                        });
  for (uint16_t slot : {uint16_t{0}, uint16_t{60}}) {
    EXPECT_THAT(ViolationsAfter([slot](FrameCopy& f) { f.rows[0].slot = slot; }),
                ElementsAre("FRAME-1: row 0 names slot " + std::to_string(slot) + ", not live",
                            "FRAME-1: slot 1 has 0 rows, its head says 1"));
  }
  EXPECT_THAT(ViolationsAfter([](FrameCopy& f) {
                f.rows[3].slot = 1;
                f.rows[3].kv_index = 58;
              }),
              ::testing::Contains(HasSubstr("FRAME-1: row 3 lies apart")));
}

TEST(FrameValidate, Frame2ARowThatNoTokenPlaceHolds) {
  ExpectOnly("FRAME-2", {
                            [](FrameCopy& f) { f.rows[0].kv_index = 60; },  // past the length
                            [](FrameCopy& f) { f.rows[3].kv_index = 48; },  // past the pages too
                        });
}

// Entry `index` of slot 3, pages 9, 10 and 11, becomes a hole, as it would be published.
void PunchSlot3(FrameCopy& f, uint32_t index) {
  Segment& first = SegmentOf(f, 3, 0);
  PageOf(f, 3, index) = 0;
  f.slots[1].num_holes[0] = 1;
  if (index == 0) {
    first = {.offset_bytes = first.offset_bytes + 64,
             .first_token = 16,
             .num_pages = 2,
             .first_page = first.first_page + 1};
    return;
  }
  Segment& second = SegmentOf(f, 3, 1);
  second = first;
  first.num_pages = 1;
  second.num_pages = 1;
  second.first_page += 2;
  second.first_token += 32;
  second.offset_bytes += 128;
  f.slots[1].num_segments[0] = 2;
}

TEST(FrameValidate, Frame2ARowThatStandsInAHole) {
  EXPECT_THAT(ViolationsAfter([](FrameCopy& f) {
                PunchSlot3(f, 1);
                f.slots[1].flags = kSlotLossyView;
                f.rows[1].kv_index = 20;
                f.rows[1].flags |= kRowNoWrite;
              }),
              ElementsAre("FRAME-2: row 1 has kv_index 20, which no segment covers"));
}

TEST(FrameValidate, Frame3HolesInAFullGroupNeedALossyView) {
  for (uint32_t index : {0u, 1u}) {
    SCOPED_TRACE(index);
    ExpectOnly("FRAME-3", {[&](FrameCopy& f) { PunchSlot3(f, index); }});
    EXPECT_THAT(ViolationsAfter([&](FrameCopy& f) {
                  PunchSlot3(f, index);
                  f.slots[1].flags = kSlotLossyView;
                }),
                IsEmpty());
  }
  ExpectOnly("FRAME-3", {[](FrameCopy& f) { f.slots[1].first_token[0] = 16; }});
}

TEST(FrameValidate, Frame4AHoleIsANullEntry) {
  ExpectOnly("FRAME-4", {[](FrameCopy& f) {
               PunchSlot3(f, 1);
               f.slots[1].flags = kSlotLossyView;
               PageOf(f, 3, 1) = 10;
             }});
}

// Slot 2 of a group with a window of 40: 100 tokens on 7 entries, the first 3 slid out, pages 12 to
// 15 left, which hold tokens 48 to 111; rows 98 and 99.
std::vector<std::string> SlidingViolationsAfter(const std::function<void(FrameCopy&)>& corrupt) {
  KvGeometry geometry = TinyFrameGeometry();
  geometry.groups[0].kind = KvGroupKind::kSliding;
  geometry.groups[0].window_tokens = 40;
  const auto builder = MakeBuilder(geometry, {6, 16, kMaxPages});
  const FrameView frame = builder->Publish(1, std::vector{MakeRow(2, 98), MakeRow(2, 99, 0)},
                                           std::vector{MakeSlot(2, 100, 0, 2)},
                                           std::vector{MakeDelta(DeltaKind::kAppend, 2, 0, 9, 7),
                                                       MakeDelta(DeltaKind::kHole, 2, 0, 0, 3)});
  EXPECT_EQ(frame.slots[0].first_token[0], 48u);
  FrameCopy copy(frame, 1);
  corrupt(copy);
  return ValidateFrame(geometry, copy.view(), nullptr);
}

TEST(FrameValidate, Frame3TheWindowOfTheFirstRowIsHeldAndHolesStandBeforeIt) {
  EXPECT_THAT(SlidingViolationsAfter([](FrameCopy&) {}), IsEmpty());
  const std::function<void(FrameCopy&)> corruptions[] = {
      [](FrameCopy& f) { f.rows[0].kv_index = 86; },  // would see from 47 on
      [](FrameCopy& f) { f.slots[0].first_token[0] = 32; },
      [](FrameCopy& f) { f.slots[0].num_holes[0] = 2; },
      [](FrameCopy& f) {  // a hole behind the first token
        Segment& first = SegmentOf(f, 2, 0);
        SegmentOf(f, 2, 1) = first;
        SegmentOf(f, 2, 1).num_pages = 2;
        SegmentOf(f, 2, 1).first_page = 14;
        SegmentOf(f, 2, 1).first_token = 80;
        SegmentOf(f, 2, 1).offset_bytes += 128;
        first.num_pages = 1;
        PageOf(f, 2, 4) = 0;
        f.slots[0].num_segments[0] = 2;
        f.slots[0].num_holes[0] = 4;
      },
      [](FrameCopy& f) {  // as many holes, one of them elsewhere
        Segment& first = SegmentOf(f, 2, 0);
        first.first_token -= 16;
        first.first_page -= 1;
        first.offset_bytes -= 64;
        PageOf(f, 2, 2) = 11;
        PageOf(f, 2, 6) = 0;
        f.slots[0].num_tokens[0] = 112;
        f.rows[1].kv_index = 95;
        f.rows[0].kv_index = 94;
      },
  };
  for (const auto& corrupt : corruptions) {
    SCOPED_TRACE(&corrupt - corruptions);
    EXPECT_THAT(SlidingViolationsAfter(corrupt), Not(IsEmpty()));
    EXPECT_THAT(SlidingViolationsAfter(corrupt), Each(StartsWith("FRAME-3")));
  }
  EXPECT_THAT(SlidingViolationsAfter([](FrameCopy& f) { f.rows[0].kv_index = 87; }), IsEmpty());
}

TEST(FrameValidate, Frame3SegmentsThatAreNotMaximalAscendingAndGapless) {
  const auto split = [](FrameCopy& f) {
    Segment& first = SegmentOf(f, 3, 0);
    Segment& second = SegmentOf(f, 3, 1);
    second = first;
    first.num_pages = 1;
    second.num_pages = 2;
    ++second.first_page;
    second.first_token += 16;
    second.offset_bytes += 64;
    f.slots[1].num_segments[0] = 2;
  };
  ExpectOnly("FRAME-3", {
                            split,
                            [](FrameCopy& f) { SegmentOf(f, 3, 0).offset_bytes += 64; },
                            [](FrameCopy& f) { SegmentOf(f, 3, 0).kv_group = 1; },
                            [](FrameCopy& f) { SegmentOf(f, 4, 0).num_pages = 0; },
                            [](FrameCopy& f) { SegmentOf(f, 4, 0).num_pages = 4; },
                            [](FrameCopy& f) { SegmentOf(f, 4, 0).num_pages = 1; },
                            [](FrameCopy& f) { SegmentOf(f, 4, 0).first_token = 16; },
                            [](FrameCopy& f) { f.slots[2].num_tokens[0] = 33; },
                            [](FrameCopy& f) { f.slots[2].num_tokens[0] = 16; },
                            [](FrameCopy& f) { f.slots[2].num_segments[0] = 0; },
                        });
}

TEST(FrameValidate, Frame3SegmentsThatBeginWhereTheyCannot) {
  // Within a page; past the table; before the end of the segment before it.
  EXPECT_THAT(ViolationsAfter([](FrameCopy& f) { SegmentOf(f, 3, 0).first_token = 8; }),
              ElementsAre("FRAME-3: slot 3 segment 0 begins at token 8, not at a page from 0 on"));
  EXPECT_THAT(ViolationsAfter([](FrameCopy& f) { SegmentOf(f, 4, 0).first_token = 32; }),
              ElementsAre("FRAME-3: slot 4 segment 0 begins at token 32, not at a page from 0 on"));
  EXPECT_THAT(ViolationsAfter([](FrameCopy& f) {
                f.rows[0].kv_index = 40;
                SegmentOf(f, 1, 1).first_token = 32;
              }),
              ElementsAre("FRAME-3: slot 1 segment 1 begins at token 32, not at a page from 3 on"));
}

TEST(FrameValidate, Frame4ADenseTableThatDiffers) {
  ExpectOnly("FRAME-4", {
                            [](FrameCopy& f) { PageOf(f, 4, 1) = 12; },
                            [](FrameCopy& f) { PageOf(f, 4, 2) = 7; },
                            [](FrameCopy& f) { PageOf(f, 1, kMaxPages - 1) = 1; },
                        });
}

TEST(FrameValidate, Frame5TwoWritersOfOnePageOrAWriteThatAnotherReads) {
  // Slot 4 names the page that slot 1's row writes, and sees the place.
  const auto shares = [](uint32_t tokens) {
    return [tokens](FrameCopy& f) {
      PageOf(f, 4, 0) = 17;
      PageOf(f, 4, 1) = 0;
      SegmentOf(f, 4, 0).first_page = 17;
      SegmentOf(f, 4, 0).num_pages = 1;
      SegmentOf(f, 4, 0).offset_bytes = TinyFrameGeometry().groups[0].PageOffset(PageId{17});
      f.slots[2].num_pages[0] = 1;
      f.slots[2].num_tokens[0] = tokens;
    };
  };
  ExpectOnly("FRAME-5", {shares(12)});  // row 0 writes place 11 of page 17
  EXPECT_THAT(ViolationsAfter(shares(11)), IsEmpty());
  EXPECT_THAT(ViolationsAfter([&](FrameCopy& f) {  // now slot 4 writes the page as well, place 5
                shares(6)(f);
                f.rows[1] = MakeRow(3, 38);
                f.rows[2] = MakeRow(3, 39, 1);
                f.rows[3] = MakeRow(4, 5);
                f.slots[1].num_rows = 2;
                f.slots[2].row_begin = 3;
                f.slots[2].num_rows = 1;
              }),
              ElementsAre("FRAME-5: row 3 of slot 4 writes page 17 where slot 1 reads it",
                          "FRAME-5: slot 1 and slot 4 both write page 17"));
  // A row that writes nothing may read what it likes.
  EXPECT_THAT(ViolationsAfter([&](FrameCopy& f) {
                shares(12)(f);
                f.rows[0].flags |= kRowNoWrite;
              }),
              IsEmpty());
}

TEST(FrameValidate, Frame5ARowThatWritesTheNullPage) {
  EXPECT_THAT(ViolationsAfter([](FrameCopy& f) { PageOf(f, 1, 3) = 0; }),
              ::testing::Contains(HasSubstr("FRAME-5: row 0 writes the null page")));
}

TEST(FrameValidate, Frame6LogitsOutOfOrder) {
  ExpectOnly("FRAME-6", {
                            [](FrameCopy& f) { f.rows[0].logits_idx = 1; },
                            [](FrameCopy& f) { f.rows[3].logits_idx = 2; },
                            [](FrameCopy& f) { f.rows[3].logits_idx = kNone32; },
                            [](FrameCopy& f) { ++f.head->num_logits; },
                            [](FrameCopy& f) { f.rows[1].flags |= kRowWantLogits; },
                        });
}

TEST(FrameValidate, Frame7AnEpochOrAHashThatDoesNotFollow) {
  ExpectOnly("FRAME-7",
             {
                 [](FrameCopy& f) { f.head->epoch = 3; },
                 [](FrameCopy& f) { f.head->chain_hash ^= 1; },
                 [](FrameCopy& f) { ++f.rows[0].token; },
                 [](FrameCopy& f) { ++f.slots[0].seq_id; },
                 [](FrameCopy& f) { ++f.deltas[3].page; },
             },
             /*chained=*/true);
  // The hash of what is there, at an epoch that does not follow.
  const auto builder = MakeBuilder(TinyFrameGeometry(), {6, 16, kMaxPages});
  const uint64_t previous_hash = builder->Publish(1, {}, {}, {}).head->chain_hash;
  EXPECT_THAT(ViolationsAfter(
                  [&](FrameCopy& f) {
                    f.head->epoch = 4;
                    f.head->chain_hash = ChainHash(previous_hash, *f.head, f.rows,
                                                   f.view().bytes() - sizeof(FrameHead));
                  },
                  /*chained=*/true),
              ElementsAre("FRAME-7: epoch 4 after 1"));
}

TEST(FrameValidate, ReportsEveryViolation) {
  const auto found = ViolationsAfter(
      [](FrameCopy& f) {
        f.deltas[0].first_token_place = 1;
        f.slots[1].row_begin = 0;
        f.rows[3].kv_index = 200;
        SegmentOf(f, 4, 0).offset_bytes = 1;
        PageOf(f, 4, 9) = 1;
        PageOf(f, 1, 3) = 0;
        f.rows[0].logits_idx = 9;
      },
      /*chained=*/true);
  for (const char* law :
       {"FRAME-0", "FRAME-1", "FRAME-2", "FRAME-3", "FRAME-4", "FRAME-5", "FRAME-6", "FRAME-7"}) {
    EXPECT_THAT(found, ::testing::Contains(StartsWith(law)));
  }
}

}  // namespace
}  // namespace kvrm
