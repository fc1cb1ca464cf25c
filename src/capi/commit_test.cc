// Publishing: which rows a step may have, what the frame then says, and that bytes follow.
#include <cstring>

#include "capi/capi_testing.h"

namespace kvrm {
namespace {

// A step with `seq` (20 places) grown to 24 and not committed yet.
struct OpenStep {
  OpenStep() {
    seq = rt.Grown(20);
    rt.Begin();
    EXPECT_EQ(rt.Reserve(seq, 24), KVRM_OK);
    rt.AddRows(seq, rows);
  }
  void ExpectRefused(const std::string& text) {
    EXPECT_EQ(rt.Commit(rows), KVRM_INVALID) << text;
    EXPECT_NE(rt.error().find(text), std::string::npos) << rt.error();
    EXPECT_EQ(rt.Violations(), "");
    std::vector<kvrm_row_input> right;
    rt.AddRows(seq, right);
    EXPECT_EQ(rt.Commit(right), KVRM_OK) << rt.error();  // the step stands as it was
    EXPECT_EQ(rt.Violations(), "");
  }
  TestRuntime rt;
  kvrm_seq seq = 0;
  std::vector<kvrm_row_input> rows;
};

TEST(CapiCommit, EachNewPlaceIsWrittenByOneRow) {
  OpenStep missing_last, missing_all, missing_middle, twice, old_place, past_end;
  missing_last.rows.pop_back();
  missing_last.ExpectRefused("no row writes places [23, 24)");
  missing_all.rows.clear();
  missing_all.ExpectRefused("no row writes places [20, 24)");
  missing_middle.rows.erase(missing_middle.rows.begin() + 1);
  missing_middle.ExpectRefused("rows[1].kv_index: 22");
  twice.rows.push_back(twice.rows.back());
  twice.ExpectRefused("rows[4].kv_index: 23 does not ascend");
  old_place.rows.insert(old_place.rows.begin(), TestRuntime::Row(old_place.seq, 19));
  old_place.ExpectRefused("rows[0].kv_index: 19");
  past_end.rows.push_back(TestRuntime::Row(past_end.seq, 24));
  past_end.ExpectRefused("rows[4].kv_index: 24");
}

TEST(CapiCommit, RowsThatAreNotWellFormedAreRefused) {
  OpenStep unknown, flags, source, slot, reserved0, reserved1;
  unknown.rows.push_back(TestRuntime::Row(unknown.seq + 1, 0));
  unknown.ExpectRefused("rows[4].seq");
  flags.rows[1].flags = 64;
  flags.ExpectRefused("rows[1].flags: 64");
  source.rows[0].token_src = 2;
  source.ExpectRefused("rows[0].token_src: 2");
  slot.rows[0].token_src = 1;
  slot.rows[0].token = 4;
  slot.ExpectRefused("rows[0].token: 4 is no slot");
  reserved0.rows[1].reserved0 = 8;
  reserved0.ExpectRefused("rows[1].reserved0: 8, must be 0");
  reserved1.rows[0].reserved1 = 9;
  reserved1.ExpectRefused("rows[0].reserved1: 9, must be 0");
}

TEST(CapiCommit, RowsOfOneSequenceStandTogether) {
  TestRuntime rt;
  const kvrm_seq a = rt.Grown(20), b = rt.Grown(20);
  rt.Begin();
  ASSERT_EQ(rt.Reserve(a, 22), KVRM_OK);
  ASSERT_EQ(rt.Reserve(b, 21), KVRM_OK);
  const std::vector<kvrm_row_input> apart = {TestRuntime::Row(a, 20), TestRuntime::Row(b, 20),
                                             TestRuntime::Row(a, 21)};
  EXPECT_EQ(rt.Commit(apart), KVRM_INVALID);
  EXPECT_NE(rt.error().find("apart"), std::string::npos) << rt.error();
  rt.Finish({b, a});
  EXPECT_EQ(rt.Violations(), "");
}

TEST(CapiCommit, EpochsHaveNoGapsAndTheLastMayBeRepeated) {
  OpenStep step;
  EXPECT_EQ(kvrm_commit(step.rt, 1, step.rows.data(), 4, nullptr), KVRM_INVALID);
  EXPECT_EQ(kvrm_commit(step.rt, 3, step.rows.data(), 4, nullptr), KVRM_INVALID);
  kvrm_frame first = {}, again = {};
  first.size = again.size = sizeof first;
  ASSERT_EQ(step.rt.Commit(step.rows, &first), KVRM_OK) << step.rt.error();
  ASSERT_EQ(kvrm_commit(step.rt, 2, step.rows.data(), 4, &again), KVRM_OK);
  EXPECT_EQ(std::memcmp(&first, &again, sizeof first), 0);
  step.rows[0].token ^= 1;
  EXPECT_EQ(kvrm_commit(step.rt, 2, step.rows.data(), 4, nullptr), KVRM_INVALID);
  EXPECT_NE(step.rt.error().find("epoch: 2 was committed, with other rows"), std::string::npos)
      << step.rt.error();
  for (const uint64_t other : {0, 1, 3}) {
    EXPECT_EQ(kvrm_commit(step.rt, other, step.rows.data(), 4, nullptr), KVRM_INVALID);
    EXPECT_NE(step.rt.error().find("no step is open"), std::string::npos) << step.rt.error();
  }
  EXPECT_EQ(kvrm_step_done(step.rt, 3), KVRM_INVALID);
  EXPECT_EQ(kvrm_step_done(step.rt, 2), KVRM_OK);
  EXPECT_EQ(kvrm_step_done(step.rt, 1), KVRM_OK);  // done already
}

TEST(CapiCommit, FrameSaysWhatTheStepIs) {
  OpenStep step;
  step.rows.back().flags = KVRM_ROW_WANT_LOGITS;
  kvrm_frame frame = {};
  frame.size = sizeof frame;
  ASSERT_EQ(step.rt.Commit(step.rows, &frame), KVRM_OK) << step.rt.error();
  EXPECT_EQ(frame.epoch, 2u);
  ASSERT_EQ(frame.num_rows, 4u);
  ASSERT_EQ(frame.num_slots, 1u);
  EXPECT_EQ(frame.num_logits, 1u);
  EXPECT_EQ(frame.rows[3].logits_idx, 0u);
  EXPECT_EQ(frame.rows[2].logits_idx, KVRM_NONE);
  EXPECT_EQ(frame.slots[0].seq, step.seq);
  EXPECT_EQ(frame.slots[0].num_tokens[0], 24u);
  EXPECT_EQ(frame.slots[0].num_pages[0], 2u);

  kvrm_frame_head head;
  std::memcpy(&head, frame.block, sizeof head);
  EXPECT_EQ(head.magic, KVRM_FRAME_MAGIC);
  EXPECT_EQ(head.epoch, 2u);
  EXPECT_EQ(frame.block_bytes, sizeof head + 4 * sizeof(kvrm_row) + sizeof(kvrm_slot_head) +
                                   frame.num_deltas * sizeof(kvrm_delta));

  const kvrm_segment* segments = nullptr;
  const uint32_t* pages = nullptr;
  uint32_t num_segments = 0, num_pages = 0;
  const uint32_t slot = frame.slots[0].slot;
  ASSERT_EQ(kvrm_get_segments(step.rt, 0, slot, &segments, &num_segments), KVRM_OK);
  ASSERT_EQ(kvrm_get_pages(step.rt, 0, slot, &pages, &num_pages), KVRM_OK);
  ASSERT_EQ(num_pages, 2u);
  uint64_t offset = 0;
  ASSERT_EQ(kvrm_get_page_offset(step.rt, 0, pages[0], 0, &offset), KVRM_OK);
  EXPECT_EQ(segments[0].offset_bytes, offset);
  EXPECT_EQ(kvrm_get_segments(step.rt, 0, slot == 0 ? 1 : 0, &segments, &num_segments),
            KVRM_INVALID);
  EXPECT_EQ(kvrm_get_segments(step.rt, 1, slot, &segments, &num_segments), KVRM_INVALID);

  size_t needed = 0;
  ASSERT_EQ(kvrm_dump(step.rt, nullptr, 0, &needed), KVRM_OK);
  std::string text(needed, 'x');
  ASSERT_EQ(kvrm_dump(step.rt, text.data(), needed, nullptr), KVRM_OK);
  EXPECT_EQ(text.find('\0'), needed - 1);
  EXPECT_EQ(text.rfind("frame 2: 4 rows", 0), 0u) << text;
  char little[8];
  ASSERT_EQ(kvrm_dump(step.rt, little, sizeof little, nullptr), KVRM_OK);
  EXPECT_STREQ(little, "frame 2");
}

TEST(CapiCommit, AnUnwritableFrameCostsNothing) {
  OpenStep step;
  kvrm_frame frame = {};
  EXPECT_EQ(step.rt.Commit(step.rows, &frame), KVRM_INVALID);
  frame.size = KVRM_MAX_STRUCT + 1;
  EXPECT_EQ(step.rt.Commit(step.rows, &frame), KVRM_INVALID);
  EXPECT_EQ(step.rt.Commit(step.rows), KVRM_OK) << step.rt.error();
}

TEST(CapiCommit, RowsThatDoNotWriteSeeWhatIsHeld) {
  TestRuntime rt(/*sliding=*/true);
  const kvrm_seq seq = rt.Grown(64);
  rt.Begin();
  ASSERT_EQ(rt.Reserve(seq, 65), KVRM_OK);
  rt.Finish({seq});
  rt.Begin();
  EXPECT_EQ(rt.Commit({TestRuntime::Row(seq, 65, KVRM_ROW_NO_WRITE)}), KVRM_INVALID);
  EXPECT_EQ(rt.Commit({TestRuntime::Row(seq, 20, KVRM_ROW_NO_WRITE)}), KVRM_INVALID);
  EXPECT_NE(rt.error().find("is gone"), std::string::npos) << rt.error();
  EXPECT_EQ(rt.Commit({TestRuntime::Row(seq, 64, KVRM_ROW_NO_WRITE)}), KVRM_OK) << rt.error();
  EXPECT_EQ(rt.Violations(), "");
}

TEST(CapiCommit, AStepOfMoreEditsThanAFrameHoldsIsRefusedWhole) {
  TestRuntime rt;
  const kvrm_seq src = rt.Grown(64);
  rt.Begin();
  const kvrm_seq dst = rt.Open();
  for (int i = 0; i < 40; ++i) {
    ASSERT_EQ(kvrm_alias(rt, dst, src, 64), KVRM_OK);
    ASSERT_EQ(kvrm_trim(rt, dst, 0), KVRM_OK);
  }
  EXPECT_EQ(rt.Commit({}), KVRM_NO_ROOM);
  ASSERT_EQ(kvrm_rollback_step(rt), KVRM_OK);
  EXPECT_EQ(rt.Violations(), "");
  rt.Begin();
  EXPECT_EQ(rt.Commit({}), KVRM_OK) << rt.error();
}

TEST(CapiCommit, PagesOfAClosedSequenceWaitForAnExecutorOneStepBehind) {
  TestRuntime rt;
  const kvrm_seq first = rt.Grown(64);
  rt.Grown(64);
  rt.Grown(64);
  rt.Begin();
  ASSERT_EQ(kvrm_close(rt, first), KVRM_OK);
  ASSERT_EQ(rt.Commit({}), KVRM_OK);  // epoch 4, which still runs
  rt.Begin();
  const kvrm_seq next = rt.Open();
  EXPECT_EQ(rt.Reserve(next, 64), KVRM_DEFERRED);  // 3 pages are left of 15, 4 wait
  ASSERT_EQ(kvrm_step_done(rt, 3), KVRM_OK);
  EXPECT_EQ(rt.Reserve(next, 64), KVRM_DEFERRED);
  ASSERT_EQ(kvrm_step_done(rt, 4), KVRM_OK);
  EXPECT_EQ(rt.Reserve(next, 64), KVRM_OK) << rt.error();
  rt.Finish({next});
  EXPECT_EQ(rt.Violations(), "");
}

// Bytes of a sequence in the pool, part by part, found through the dense table.
std::vector<unsigned char> BytesOf(const TestRuntime& rt, kvrm_seq seq, uint32_t places) {
  void* base = nullptr;
  uint64_t bytes = 0;
  const uint32_t* pages = nullptr;
  uint32_t num_pages = 0, first_page = 0;
  EXPECT_EQ(kvrm_get_memory(rt, 0, &base, &bytes), KVRM_OK);
  EXPECT_EQ(kvrm_get_sequence_pages(rt, seq, 0, &pages, &num_pages, &first_page), KVRM_OK);
  std::vector<unsigned char> out;
  for (uint32_t part = 0; part < 2; ++part) {
    for (uint32_t place = 0; place < places; ++place) {
      uint64_t offset = 0;
      EXPECT_EQ(kvrm_get_page_offset(rt, 0, pages[place / 16 - first_page], part, &offset),
                KVRM_OK);
      const auto* at = static_cast<unsigned char*>(base) + offset + size_t{place % 16} * 32;
      out.insert(out.end(), at, at + 32);
    }
  }
  return out;
}

void WriteBytes(const TestRuntime& rt, kvrm_seq seq, uint32_t begin, uint32_t end, int seed) {
  void* base = nullptr;
  uint64_t bytes = 0;
  const uint32_t* pages = nullptr;
  uint32_t num_pages = 0, first_page = 0;
  ASSERT_EQ(kvrm_get_memory(rt, 0, &base, &bytes), KVRM_OK);
  ASSERT_EQ(kvrm_get_sequence_pages(rt, seq, 0, &pages, &num_pages, &first_page), KVRM_OK);
  for (uint32_t part = 0; part < 2; ++part) {
    for (uint32_t place = begin; place < end; ++place) {
      uint64_t offset = 0;
      ASSERT_EQ(kvrm_get_page_offset(rt, 0, pages[place / 16], part, &offset), KVRM_OK);
      std::memset(static_cast<unsigned char*>(base) + offset + size_t{place % 16} * 32,
                  static_cast<int>(seed + place * 2 + part), 32);
    }
  }
}

TEST(CapiCommit, AForkCopiesTheSharedPageThatItWrites) {
  TestRuntime rt;
  const kvrm_seq src = rt.Grown(20);
  WriteBytes(rt, src, 0, 20, 1);
  const std::vector<unsigned char> before = BytesOf(rt, src, 20);
  rt.Begin();
  const kvrm_seq fork = rt.Open();
  ASSERT_EQ(kvrm_alias(rt, fork, src, 20), KVRM_OK);
  ASSERT_EQ(rt.Reserve(fork, 21), KVRM_OK);
  std::vector<kvrm_row_input> rows;
  rt.AddRows(fork, rows);
  ASSERT_EQ(rt.Commit(rows), KVRM_OK) << rt.error();
  const kvrm_train* trains = nullptr;
  uint32_t num_trains = 0;
  ASSERT_EQ(kvrm_get_page_copies(rt, &trains, &num_trains), KVRM_OK);
  ASSERT_EQ(num_trains, 2u);  // one for each part
  EXPECT_EQ(trains[0].cause, KVRM_COPY_ON_WRITE);
  ASSERT_EQ(kvrm_run_trains(rt, trains, num_trains), KVRM_OK) << rt.error();
  EXPECT_EQ(BytesOf(rt, fork, 20), before);
  WriteBytes(rt, fork, 20, 21, 99);
  EXPECT_EQ(BytesOf(rt, src, 20), before);
  kvrm_copy_counters counters = {};
  counters.size = sizeof counters;
  ASSERT_EQ(kvrm_get_copy_counters(rt, &counters), KVRM_OK);
  EXPECT_EQ(counters.bytes[KVRM_COPY_ON_WRITE], 1024u);
}

// The epoch is given up before its copies were made: its tables name the copied page all the same.
TEST(CapiCommit, PageCopiesOfAnEpochThatIsGivenUpAreNotForgotten) {
  TestRuntime rt;
  const kvrm_seq src = rt.Grown(20);
  WriteBytes(rt, src, 0, 20, 1);
  const std::vector<unsigned char> before = BytesOf(rt, src, 20);
  rt.Begin();
  const kvrm_seq fork = rt.Open();
  ASSERT_EQ(kvrm_alias(rt, fork, src, 20), KVRM_OK);
  ASSERT_EQ(rt.Reserve(fork, 21), KVRM_OK);
  std::vector<kvrm_row_input> rows;
  rt.AddRows(fork, rows);
  ASSERT_EQ(rt.Commit(rows), KVRM_OK) << rt.error();
  EXPECT_EQ(kvrm_step_done(rt, 2), KVRM_INVALID);
  EXPECT_NE(rt.error().find("kvrm_get_page_copies"), std::string::npos) << rt.error();
  EXPECT_EQ(kvrm_step_done(rt, 1), KVRM_OK);  // an older one is not concerned

  rt.Begin();
  ASSERT_EQ(kvrm_trim(rt, fork, 20), KVRM_OK);
  ASSERT_EQ(rt.Reserve(fork, 21), KVRM_OK);
  EXPECT_EQ(rt.Commit(rows), KVRM_INVALID);
  EXPECT_NE(rt.error().find("epoch 2 has page copies"), std::string::npos) << rt.error();
  EXPECT_EQ(rt.RunPageCopies(), 2u);  // also inside the step
  ASSERT_EQ(rt.Commit(rows), KVRM_OK) << rt.error();
  EXPECT_EQ(rt.RunPageCopies(), 0u);
  ASSERT_EQ(kvrm_step_done(rt, 3), KVRM_OK) << rt.error();
  EXPECT_EQ(BytesOf(rt, fork, 20), before);
  EXPECT_EQ(BytesOf(rt, src, 20), before);
  EXPECT_EQ(rt.Violations(), "");
}

TEST(CapiCommit, TrainsThatLeaveTheirSpaceAreNotRun) {
  TestRuntime rt;
  uint64_t bytes = 0;
  void* base = nullptr;
  ASSERT_EQ(kvrm_get_memory(rt, 0, &base, &bytes), KVRM_OK);
  kvrm_train good = {};
  good.destination_offset = 1024;
  good.bytes = 512;
  kvrm_train bad[8];
  for (kvrm_train& train : bad) train = good;
  bad[0].bytes = 0;
  bad[1].source_offset = bytes - 511;
  bad[2].destination_offset = UINT64_MAX - 100;
  bad[3].bytes = UINT64_MAX;
  bad[4].source.kv_group = 1;
  bad[5].destination.kind = KVRM_SPACE_WINDOW;
  bad[6].cause = 6;
  bad[7].destination_offset = 511;
  for (const kvrm_train& train : bad) {
    const kvrm_train both[2] = {good, train};
    EXPECT_EQ(kvrm_run_trains(rt, both, 2), KVRM_INVALID);
    EXPECT_NE(rt.error().find("trains[1]"), std::string::npos) << rt.error();
  }
  EXPECT_EQ(kvrm_run_trains(rt, &good, 1), KVRM_OK) << rt.error();
}

}  // namespace
}  // namespace kvrm
