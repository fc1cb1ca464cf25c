// The builder's laws: tables, publishing, chain.
#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "frame/frame.h"
#include "frame/frame_json.h"
#include "frame/frame_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvrm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MakeBuilder;
using testing::MakeDelta;
using testing::MakeRow;
using testing::MakeSlot;
using testing::TinyFrameGeometry;

constexpr FrameCapacity kCapacity{.max_slots = 4, .max_rows = 16, .max_pages = 32};

std::unique_ptr<FrameBuilder> TinyBuilder(uint32_t groups = 1) {
  return MakeBuilder(TinyFrameGeometry(groups), kCapacity);
}

TEST(FrameCreate, RefusesNamingFieldValueAndLimit) {
  const auto error = [](const KvGeometry& geometry, const FrameCapacity& capacity) {
    const auto builder = FrameBuilder::Create(geometry, capacity);
    return builder.ok() ? std::string("accepted") : builder.error().message;
  };
  EXPECT_EQ(error(TinyFrameGeometry(), kCapacity), "accepted");
  EXPECT_THAT(error(TinyFrameGeometry(5), kCapacity), HasSubstr("5 groups, must be 1 to 4"));
  EXPECT_THAT(error(TinyFrameGeometry(), {0, 16, 32}), HasSubstr("max_slots: 0"));
  EXPECT_THAT(error(TinyFrameGeometry(), {65536, 16, 32}), HasSubstr("max_slots: 65536"));
  EXPECT_THAT(error(TinyFrameGeometry(), {4, 0, 32}), HasSubstr("max_rows: 0"));
  EXPECT_THAT(error(TinyFrameGeometry(), {4, 16, 0}), HasSubstr("max_pages: 0"));
  KvGeometry geometry = TinyFrameGeometry();
  geometry.groups[0].pages_per_superblock = 0;
  EXPECT_THAT(error(geometry, kCapacity), HasSubstr("groups[0]"));
}

// Vectors of pages, and segments found by walking them.
struct ObviousTables {
  std::vector<std::vector<uint32_t>> pages = std::vector<std::vector<uint32_t>>(4);

  bool Continues(const std::vector<uint32_t>& table, size_t i) const {
    return i > 0 && table[i - 1] != 0 && table[i] == table[i - 1] + 1 &&
           table[i] / 8 == table[i - 1] / 8;
  }
  Delta RandomDelta(std::mt19937& random) {
    const auto below = [&](uint32_t bound) { return static_cast<uint32_t>(random() % bound); };
    const auto slot = static_cast<uint16_t>(below(4));
    std::vector<uint32_t>& table = pages[slot];
    const auto size = static_cast<uint32_t>(table.size());
    const uint32_t page = 1 + below(30), choice = below(6), at = below(size + 1);
    const uint32_t room = kCapacity.max_pages - size;
    if (choice == 0 || room == 0) {
      table.resize(at);
      return MakeDelta(DeltaKind::kTruncate, slot, at);
    }
    if (choice == 1 && at < size && table[at] != 0) {
      table[at] = page;
      return MakeDelta(DeltaKind::kReplace, slot, at, page, 1);
    }
    if (choice == 2 || choice == 3) {  // from the front, in the middle, over holes, at the end
      const uint32_t index = choice == 2 ? at : below(2) * at;
      const uint32_t count = 1 + below(index == size ? std::min(room, 3u) : size - index);
      table.resize(std::max(size, index + count));
      std::fill_n(table.begin() + index, count, 0u);
      return MakeDelta(DeltaKind::kHole, slot, index, 0, count);
    }
    // Often the next page, so that runs grow together.
    const uint32_t first = below(2) == 0 && size > 0 ? table.back() + 1 : page;
    const uint32_t count = std::min(1 + below(8 - first % 8), room);
    for (uint32_t i = 0; i < count; ++i) table.push_back(first + i);
    const auto kind = Continues(table, size) ? DeltaKind::kExtend : DeltaKind::kAppend;
    return MakeDelta(kind, slot, size, first, count);
  }
};

void ExpectEqual(const ObviousTables& obvious, const FrameView& frame, const KvGeometry& geometry) {
  for (uint32_t slot = 0; slot < 4; ++slot) {
    const std::vector<uint32_t>& table = obvious.pages[slot];
    const uint32_t* dense = frame.SlotPages(0, slot);
    for (uint32_t i = 0; i < kCapacity.max_pages; ++i) {
      ASSERT_EQ(dense[i], i < table.size() ? table[i] : 0u) << "slot " << slot << " entry " << i;
    }
    const Segment* segment = frame.SlotSegments(0, slot) - 1;
    for (uint32_t i = 0; i < table.size(); ++i) {
      if (table[i] == 0 || obvious.Continues(table, i)) continue;
      ++segment;
      uint32_t end = i + 1;
      while (end < table.size() && obvious.Continues(table, end)) ++end;
      ASSERT_EQ(segment->first_page, table[i]);
      ASSERT_EQ(segment->num_pages, end - i);
      ASSERT_EQ(segment->first_token, i * 16);
      ASSERT_EQ(segment->offset_bytes, geometry.groups[0].PageOffset(PageId{table[i]}));
      ASSERT_EQ(segment->kv_group, 0);
      ASSERT_EQ(segment->row_mask, ~uint64_t{0});
      ASSERT_EQ(segment->head_end, 0xFFFF);
      ASSERT_EQ(segment->layer_end, 0xFFFF);
    }
    const auto count = static_cast<uint32_t>(segment + 1 - frame.SlotSegments(0, slot));
    ASSERT_EQ(frame.by_slot[slot]->num_segments[0], count);
    const SlotHead& head = *frame.by_slot[slot];
    ASSERT_EQ(head.num_pages[0], table.size());
    ASSERT_EQ(head.num_holes[0], std::count(table.begin(), table.end(), 0u));
    const auto held =
        std::find_if(table.begin(), table.end(), [](uint32_t page) { return page != 0; });
    const bool slides = geometry.groups[0].kind == KvGroupKind::kSliding;
    ASSERT_EQ(head.first_token[0], slides ? 16 * (held - table.begin()) : 0);
  }
}

// LastReads by walking every segment of the frame.
void ExpectReadsEqualAWalk(const FrameBuilder& builder, const FrameView& frame,
                           const KvGeometry& geometry) {
  uint64_t runs = 0, bytes = 0;
  double squares = 0;
  for (uint32_t i = 0; i < frame.head->num_slots; ++i) {
    const SlotHead& slot = frame.slots[i];
    for (uint32_t k = 0; k < slot.num_segments[0]; ++k) {
      const uint64_t run_bytes =
          frame.SlotSegments(0, slot.slot)[k].num_pages * geometry.groups[0].part_page_bytes;
      ++runs;
      bytes += run_bytes;
      squares += static_cast<double>(run_bytes * run_bytes);
    }
  }
  const FrameBuilder::Reads reads = builder.LastReads();
  ASSERT_EQ(reads.runs, runs);
  ASSERT_EQ(reads.bytes, bytes);
  ASSERT_DOUBLE_EQ(reads.mean_run_bytes, bytes == 0 ? 0 : squares / static_cast<double>(bytes));
}

void RunRandomDeltas(const KvGeometry& geometry, uint32_t seed) {
  const auto builder = MakeBuilder(geometry, kCapacity);
  ObviousTables obvious;
  std::mt19937 random(seed);
  const std::vector<SlotHead> slots = {MakeSlot(0, 1, 0, 0), MakeSlot(1, 1, 0, 0),
                                       MakeSlot(2, 1, 0, 0), MakeSlot(3, 1, 0, 0)};
  for (uint64_t epoch = 1; epoch <= 20'000; ++epoch) {
    std::vector<Delta> deltas;
    for (uint32_t n = random() % 5; n > 0; --n) deltas.push_back(obvious.RandomDelta(random));
    const FrameView frame = builder->Publish(epoch, {}, slots, deltas);
    ExpectEqual(obvious, frame, geometry);
    ExpectReadsEqualAWalk(*builder, frame, geometry);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(FrameTables, RandomDeltasEqualTheObviousWay) {
  RunRandomDeltas(TinyFrameGeometry(), 11);
  KvGeometry sliding = TinyFrameGeometry();
  sliding.groups[0].kind = KvGroupKind::kSliding;
  sliding.groups[0].window_tokens = 40;
  RunRandomDeltas(sliding, 12);
}

// Pages of each segment of slot 0 after `deltas`, as "first..end@token".
std::vector<std::string> SegmentsAfter(const std::vector<Delta>& deltas) {
  const auto builder = TinyBuilder();
  const FrameView frame = builder->Publish(1, {}, std::vector{MakeSlot(0, 1, 0, 0)}, deltas);
  std::vector<std::string> out;
  for (uint32_t k = 0; k < frame.slots[0].num_segments[0]; ++k) {
    const Segment& segment = frame.SlotSegments(0, 0)[k];
    out.push_back(std::to_string(segment.first_page) + ".." +
                  std::to_string(segment.first_page + segment.num_pages) + "@" +
                  std::to_string(segment.first_token));
  }
  return out;
}

TEST(FrameTables, AHoleInTheMiddleSplitsASegmentAndOneAtItsEndShortensIt) {
  const Delta run = MakeDelta(DeltaKind::kAppend, 0, 0, 9, 6);
  const auto hole = [](uint32_t index, uint32_t count) {
    return MakeDelta(DeltaKind::kHole, 0, index, 0, count);
  };
  EXPECT_THAT(SegmentsAfter({run, hole(2, 1)}), ElementsAre("9..11@0", "12..15@48"));
  EXPECT_THAT(SegmentsAfter({run, hole(0, 2)}), ElementsAre("11..15@32"));
  EXPECT_THAT(SegmentsAfter({run, hole(4, 2)}), ElementsAre("9..13@0"));
  EXPECT_THAT(SegmentsAfter({run, hole(0, 6)}), ElementsAre());
  // Over a hole again, and across several segments.
  EXPECT_THAT(SegmentsAfter({run, hole(2, 1), hole(1, 3)}), ElementsAre("9..10@0", "13..15@64"));
  EXPECT_THAT(SegmentsAfter({run, hole(1, 1), hole(3, 1), hole(0, 5)}), ElementsAre("14..15@80"));
}

TEST(FrameTables, AppendedHolesBeginATableAndPageOneDoesNotContinueThem) {
  const Delta holes = MakeDelta(DeltaKind::kHole, 0, 0, 0, 3);
  EXPECT_THAT(SegmentsAfter({holes, MakeDelta(DeltaKind::kAppend, 0, 3, 1, 2)}),
              ElementsAre("1..3@48"));
  EXPECT_DEATH(SegmentsAfter({holes, MakeDelta(DeltaKind::kExtend, 0, 3, 1, 2)}), "FRAME-3");
  EXPECT_THAT(SegmentsAfter({holes, MakeDelta(DeltaKind::kAppend, 0, 3, 1, 2),
                             MakeDelta(DeltaKind::kTruncate, 0, 2)}),
              ElementsAre());
}

TEST(FrameTables, AReplacedPageJoinsTheRunsOnBothSides) {
  EXPECT_THAT(SegmentsAfter({MakeDelta(DeltaKind::kAppend, 0, 0, 9, 1),
                             MakeDelta(DeltaKind::kAppend, 0, 1, 20, 1),
                             MakeDelta(DeltaKind::kAppend, 0, 2, 11, 2),
                             MakeDelta(DeltaKind::kReplace, 0, 1, 10, 1)}),
              ElementsAre("9..13@0"));
}

TEST(FrameTables, EachGroupHasItsOwn) {
  const auto builder = TinyBuilder(2);
  const std::vector<Delta> deltas = {MakeDelta(DeltaKind::kAppend, 1, 0, 5, 2, 0),
                                     MakeDelta(DeltaKind::kAppend, 1, 0, 9, 2, 1)};
  const std::vector<SlotHead> slots = {MakeSlot(1, 20, 0, 0, 2)};
  const FrameView frame = builder->Publish(1, {}, slots, deltas);
  EXPECT_EQ(frame.SlotPages(0, 1)[1], 6u);
  EXPECT_EQ(frame.SlotPages(1, 1)[1], 10u);
  EXPECT_EQ(frame.SlotSegments(1, 1)->kv_group, 1);
  EXPECT_TRUE(ValidateFrame(TinyFrameGeometry(2), frame, nullptr).empty());
}

TEST(FrameTablesDeathTest, ADeltaThatDoesNotFitItsTableIsABug) {
  const auto publish = [](Delta delta) {
    const auto builder = TinyBuilder();
    const std::vector<Delta> deltas = {MakeDelta(DeltaKind::kAppend, 0, 0, 5, 2), delta};
    builder->Publish(1, {}, {}, deltas);
  };
  EXPECT_DEATH(publish(MakeDelta(DeltaKind::kAppend, 0, 1, 20, 1)), "FRAME-0");
  EXPECT_DEATH(publish(MakeDelta(DeltaKind::kAppend, 0, 2, 20, 0)), "FRAME-0");
  EXPECT_DEATH(publish(MakeDelta(DeltaKind::kReplace, 0, 2, 20, 1)), "FRAME-0");
  EXPECT_DEATH(publish(MakeDelta(DeltaKind::kTruncate, 0, 3)), "FRAME-0");
  EXPECT_DEATH(publish(MakeDelta(DeltaKind::kHole, 0, 3, 0, 1)), "FRAME-0");
  EXPECT_DEATH(publish(MakeDelta(DeltaKind::kHole, 0, 1, 0, 2)), "FRAME-0");  // half past the end
  EXPECT_DEATH(publish(MakeDelta(DeltaKind::kHole, 0, 0, 0, 0)), "FRAME-0");
  EXPECT_DEATH(publish(MakeDelta(DeltaKind::kHole, 0, 0, 5, 1)), "FRAME-0");
  EXPECT_DEATH(publish(MakeDelta(static_cast<DeltaKind>(5), 0, 0)), "FRAME-0");
  EXPECT_DEATH(publish(MakeDelta(DeltaKind::kAppend, 4, 0, 20, 1)), "FRAME-0");
  EXPECT_DEATH(publish(MakeDelta(DeltaKind::kAppend, 0, 0, 20, 1, 1)), "FRAME-0");
  EXPECT_DEATH(publish(MakeDelta(DeltaKind::kAppend, 0, 2, 20, 5)), "FRAME-3");  // 20..24
  EXPECT_DEATH(publish(MakeDelta(DeltaKind::kAppend, 0, 2, 7, 1)), "FRAME-3");   // continues
  EXPECT_DEATH(publish(MakeDelta(DeltaKind::kExtend, 0, 2, 20, 1)), "FRAME-3");  // does not
  EXPECT_DEATH(publish(MakeDelta(DeltaKind::kReplace, 0, 1, 0, 1)), "FRAME-5");
  Delta wrong_place = MakeDelta(DeltaKind::kAppend, 0, 2, 20, 1);
  ++wrong_place.first_token_place;
  EXPECT_DEATH(publish(wrong_place), "FRAME-0");
}

// ---- publishing

struct Inputs {
  std::vector<Row> rows = {MakeRow(1, 39, 0), MakeRow(3, 0), MakeRow(3, 1), MakeRow(3, 2, 1)};
  std::vector<SlotHead> slots = {MakeSlot(1, 40, 0, 1), MakeSlot(3, 3, 1, 3)};
  std::vector<Delta> deltas = {MakeDelta(DeltaKind::kAppend, 1, 0, 5, 3),
                               MakeDelta(DeltaKind::kAppend, 3, 0, 9, 1)};
  FrameView Publish(FrameBuilder& builder, uint64_t epoch) const {
    return builder.Publish(epoch, rows, slots, deltas);
  }
};

TEST(FramePublish, IsOneContiguousBlock) {
  const auto builder = TinyBuilder();
  const Inputs in;
  const FrameView frame = in.Publish(*builder, 1);
  EXPECT_EQ(frame.head->magic, kFrameMagic);
  EXPECT_EQ(frame.head->num_rows, 4u);
  EXPECT_EQ(frame.head->num_slots, 2u);
  EXPECT_EQ(frame.head->num_deltas, 2u);
  EXPECT_EQ(frame.head->num_logits, 2u);
  EXPECT_EQ(static_cast<const void*>(frame.rows), static_cast<const void*>(frame.head + 1));
  EXPECT_EQ(static_cast<const void*>(frame.slots), static_cast<const void*>(frame.rows + 4));
  EXPECT_EQ(static_cast<const void*>(frame.deltas), static_cast<const void*>(frame.slots + 2));
  EXPECT_EQ(frame.bytes(), 64u + 4 * 32 + 2 * 128 + 2 * 24);
  EXPECT_EQ(frame.by_slot[0], nullptr);
  EXPECT_EQ(frame.by_slot[1], &frame.slots[0]);
  EXPECT_EQ(frame.slots[0].num_pages[0], 3u);
  EXPECT_EQ(frame.slots[0].num_segments[0], 1u);
  EXPECT_THAT(ValidateFrame(TinyFrameGeometry(), frame, nullptr), ElementsAre());
}

TEST(FramePublish, TheSameEpochTwiceChangesNothing) {
  const auto builder = TinyBuilder();
  const Inputs in;
  const FrameView first = in.Publish(*builder, 1);
  const std::vector<std::byte> bytes(
      reinterpret_cast<const std::byte*>(first.head),
      reinterpret_cast<const std::byte*>(first.head) + first.bytes());
  const uint64_t hash = builder->chain_hash();
  const FrameView again = in.Publish(*builder, 1);
  EXPECT_EQ(again.head, first.head);
  EXPECT_EQ(again.deltas, first.deltas);
  EXPECT_EQ(std::memcmp(again.head, bytes.data(), bytes.size()), 0);
  EXPECT_EQ(builder->chain_hash(), hash);
  EXPECT_EQ(builder->publishes(), 1u);
  EXPECT_EQ(again.slots[0].num_pages[0], 3u);  // the deltas were not applied again
}

TEST(FramePublishDeathTest, AnEpochIsPublishedInOrderAndWithOneContent) {
  const auto builder = TinyBuilder();
  Inputs in;
  in.Publish(*builder, 1);
  EXPECT_DEATH(in.Publish(*builder, 3), "FRAME-7");
  in.rows[0].token = 1;
  EXPECT_DEATH(in.Publish(*builder, 1), "FRAME-7");
  in = Inputs();
  in.slots[1].seq_id = 1;
  EXPECT_DEATH(in.Publish(*builder, 1), "FRAME-7");
  in = Inputs();
  in.deltas.pop_back();
  EXPECT_DEATH(in.Publish(*builder, 1), "FRAME-7");
}

TEST(FramePublishDeathTest, SlotsThatDoNotAscendAndFramesTooLargeAreBugs) {
  Inputs in;
  std::swap(in.slots[0], in.slots[1]);
  EXPECT_DEATH(in.Publish(*TinyBuilder(), 1), "FRAME-1");
  in = Inputs();
  in.rows.resize(17);
  EXPECT_DEATH(in.Publish(*TinyBuilder(), 1), "FRAME-0");
}

TEST(FramePublish, HeadsAlternateAndLastUntilTheNextButOne) {
  const auto builder = TinyBuilder();
  const Inputs in;
  const FrameView first = in.Publish(*builder, 1);
  const FrameView second = builder->Publish(2, {}, {}, {});
  EXPECT_NE(second.head, first.head);
  EXPECT_EQ(first.head->epoch, 1u);
  EXPECT_EQ(first.by_slot[3], &first.slots[1]);
  EXPECT_EQ(first.rows[3].kv_index, 2u);
  const FrameView third = builder->Publish(3, {}, std::vector{MakeSlot(2, 0, 0, 0)}, {});
  EXPECT_EQ(third.head, first.head);
  EXPECT_EQ(third.rows, first.rows);
  EXPECT_EQ(third.by_slot, first.by_slot);
  EXPECT_EQ(third.by_slot[1], nullptr);  // live at epoch 1, not now
  EXPECT_EQ(third.by_slot[3], nullptr);
  EXPECT_NE(third.by_slot[2], nullptr);
  EXPECT_EQ(third.segments, first.segments);
}

TEST(FrameChain, EqualHistoriesHaveEqualHashesAndOthersDiffer) {
  const Inputs in;
  const auto history = [](const std::vector<Inputs>& frames) {
    const auto builder = TinyBuilder();
    uint64_t epoch = 0;
    for (const Inputs& each : frames) each.Publish(*builder, ++epoch);
    return builder->chain_hash();
  };
  Inputs none;
  none.rows.clear();
  none.slots.clear();
  none.deltas.clear();
  EXPECT_EQ(history({in, none}), history({in, none}));
  EXPECT_NE(history({in, none}), history({in}));
  EXPECT_NE(history({none, in}), history({in, none}));
  Inputs other = in;
  other.rows[2].token = 77;
  EXPECT_NE(history({other, none}), history({in, none}));  // an early difference never heals
  other = in;
  other.deltas[1].page = 10;
  EXPECT_NE(history({other, none}), history({in, none}));
}

TEST(FrameReads, CountRunsAndBytesOfTheLastFrame) {
  const auto builder = TinyBuilder();
  EXPECT_EQ(builder->LastReads().runs, 0u);
  Inputs in;
  in.deltas.push_back(MakeDelta(DeltaKind::kAppend, 1, 3, 20, 1));
  in.slots[0].num_tokens[0] = 64;
  in.Publish(*builder, 1);
  const FrameBuilder::Reads reads = builder->LastReads();
  EXPECT_EQ(reads.runs, 3u);  // 3 pages, 1 page; 1 page
  EXPECT_EQ(reads.bytes, 5u * 64);
  EXPECT_DOUBLE_EQ(reads.mean_run_bytes, (9 + 1 + 1) * 64.0 / 5);
}

TEST(FrameReads, HolesAreNotRead) {
  const auto builder = TinyBuilder();
  builder->Publish(1, {}, std::vector{MakeSlot(0, 96, 0, 0)},
                   std::vector{MakeDelta(DeltaKind::kAppend, 0, 0, 9, 6),
                               MakeDelta(DeltaKind::kHole, 0, 1, 0, 3)});
  const FrameBuilder::Reads reads = builder->LastReads();
  EXPECT_EQ(reads.runs, 2u);
  EXPECT_EQ(reads.bytes, 3u * 64);
  EXPECT_DOUBLE_EQ(reads.mean_run_bytes, (1 + 4) * 64.0 / 3);
}

TEST(FrameDump, ShowsEachDeltaRowSlotAndSegment) {
  const auto builder = TinyBuilder();
  const Inputs in;
  const std::string text = DumpFrame(TinyFrameGeometry(), in.Publish(*builder, 1));
  for (const char* line :
       {"frame 1: 4 rows, 2 slots, 2 deltas, 2 logits, 496 bytes, hash ",
        "delta 0: slot 1, group 0, append, index 0, pages 5..8\n",
        "row 0: slot 1, token 39, position 39, kv_index 39, logits 0\n",
        "slot 3: sequence 103, rows 1..4\n", "  group 0: tokens 0..40 on 3 pages in 1 segments\n",
        "    segment 0: from token 0, pages 5..8, at byte 320, 192 bytes a part\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(FrameJsonText, HoldsEachRowSlotTableAndDelta) {
  const auto builder = TinyBuilder();
  const Inputs in;
  const std::string text = FrameJson(TinyFrameGeometry(), in.Publish(*builder, 1));
  EXPECT_THAT(text, ::testing::StartsWith("{\"head\":{\"magic\":\"4652564b\",\"version\":2,"));
  EXPECT_THAT(text, HasSubstr("\"rows\":[{\"token\":39,\"slot\":1,"));
  EXPECT_THAT(text,
              HasSubstr("\"tables\":[{\"pages\":[5,6,7],\"segments\":[{\"offset_bytes\":320,"));
  EXPECT_THAT(text, HasSubstr("\"deltas\":[{\"slot\":1,\"kv_group\":0,\"kind\":0,"));
}

TEST(FrameDump, ShowsHolesAndLossyViews) {
  const auto builder = TinyBuilder();
  SlotHead slot = MakeSlot(1, 60, 0, 0);
  slot.flags = kSlotLossyView;
  const std::string text = DumpFrame(
      TinyFrameGeometry(), builder->Publish(1, {}, std::vector{slot},
                                            std::vector{MakeDelta(DeltaKind::kAppend, 1, 0, 9, 4),
                                                        MakeDelta(DeltaKind::kHole, 1, 1, 0, 2)}));
  EXPECT_THAT(text, HasSubstr("delta 1: slot 1, group 0, hole, index 1, 2 entries\n"));
  EXPECT_THAT(text, HasSubstr("slot 1: sequence 101, rows 0..0, lossy view\n"));
  EXPECT_THAT(text, HasSubstr("tokens 0..60 on 4 pages, 2 of them holes, in 2 segments\n"));
}

}  // namespace
}  // namespace kvrm
