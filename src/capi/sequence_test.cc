// What the caller may get wrong between begin and commit: each mistake is an answer, changes
// nothing, and leaves a runtime that goes on.
#include <cstring>
#include <functional>

#include "capi/capi_testing.h"

namespace kvrm {
namespace {

// Expects `status` and that the books are what they were.
void ExpectRefused(TestRuntime& rt, kvrm_status status, const std::string& text,
                   const std::function<kvrm_status()>& call) {
  const kvrm_books before = rt.Books();
  EXPECT_EQ(call(), status) << text;
  EXPECT_NE(rt.error().find(text), std::string::npos) << rt.error();
  const kvrm_books after = rt.Books();
  EXPECT_EQ(std::memcmp(&before, &after, sizeof before), 0);
  EXPECT_EQ(rt.Violations(), "");
}

TEST(CapiSequence, EditsOutsideAStepAreRefused) {
  TestRuntime rt;
  const kvrm_seq seq = rt.Grown(20);
  kvrm_seq out = 0;
  uint64_t mark = 0;
  const std::function<kvrm_status()> edits[] = {
      [&] { return kvrm_open(rt, &out); },
      [&] { return kvrm_close(rt, seq); },
      [&] { return kvrm_reserve(rt, seq, 30, 0, nullptr); },
      [&] { return kvrm_alias(rt, seq, seq, 1); },
      [&] { return kvrm_trim(rt, seq, 0); },
      [&] { return kvrm_trim_pages(rt, seq, 0, 0, 16); },
      [&] { return kvrm_mark(rt, seq, &mark); },
      [&] { return kvrm_rollback(rt, 0); },
      [&] { return kvrm_rollback_step(rt); },
  };
  for (const auto& edit : edits) ExpectRefused(rt, KVRM_INVALID, "no step is open", edit);
}

TEST(CapiSequence, WhatStandsBetweenStepsIsRefusedInsideOne) {
  TestRuntime rt;
  const kvrm_seq seq = rt.Grown(20);
  rt.Begin();
  const kvrm_salt salt = {};
  const int32_t tokens[16] = {};
  ExpectRefused(rt, KVRM_INVALID, "a step is open", [&] { return kvrm_begin_step(rt); });
  ExpectRefused(rt, KVRM_INVALID, "a step is open", [&] { return kvrm_maintain(rt, 0, nullptr); });
  ExpectRefused(rt, KVRM_INVALID, "a step is open", [&] { return kvrm_prefix_clear(rt); });
  ExpectRefused(rt, KVRM_INVALID, "a step is open",
                [&] { return kvrm_prefix_index(rt, seq, &salt, tokens, 16, nullptr); });
}

TEST(CapiSequence, IdsThatAreNotOpenAreRefused) {
  TestRuntime rt;
  const kvrm_seq closed = rt.Grown(20);
  rt.Begin();
  ASSERT_EQ(kvrm_close(rt, closed), KVRM_OK);
  for (const kvrm_seq seq : {closed, closed + 1, kvrm_seq{0}, kvrm_seq{0xFFFFFFFF}}) {
    ExpectRefused(rt, KVRM_INVALID, "is open", [&] { return kvrm_close(rt, seq); });
    ExpectRefused(rt, KVRM_INVALID, "is open", [&] { return rt.Reserve(seq, 8); });
    ExpectRefused(rt, KVRM_INVALID, "is open", [&] { return kvrm_trim(rt, seq, 0); });
  }
  rt.Finish({});
  rt.Begin();
  const kvrm_seq next = rt.Open();  // in the slot of the closed one
  EXPECT_NE(next, closed);
  ExpectRefused(rt, KVRM_INVALID, "is open", [&] { return rt.Reserve(closed, 8); });
}

TEST(CapiSequence, SlotsRunOutAsAValue) {
  TestRuntime rt;
  rt.Begin();
  for (int i = 0; i < 4; ++i) rt.Open();
  kvrm_seq seq = 77;
  EXPECT_EQ(kvrm_open(rt, &seq), KVRM_DEFERRED);
  EXPECT_EQ(seq, 77u);
}

TEST(CapiSequence, ReserveSaysWhatIsMissingAndWhatCanNeverFit) {
  TestRuntime rt;
  const kvrm_seq first = rt.Grown(64);   // 4 pages
  const kvrm_seq second = rt.Grown(64);  // 4 pages of 15
  const kvrm_seq third = rt.Grown(64);   // 4 pages
  rt.Begin();
  uint32_t missing = 0;
  EXPECT_EQ(kvrm_reserve(rt, first, 128, 0, &missing), KVRM_DEFERRED);
  EXPECT_EQ(missing, 1u);
  EXPECT_EQ(rt.Info(first).num_tokens, 64u);
  EXPECT_EQ(rt.Reserve(first, 112), KVRM_OK);
  ExpectRefused(rt, KVRM_UNSERVICEABLE, "num_tokens: 129, max_seq_tokens is 128",
                [&] { return rt.Reserve(second, 129); });
  ExpectRefused(rt, KVRM_DEFERRED, "1 pages are missing",
                [&] { return kvrm_reserve(rt, third, 70, 5, nullptr); });
}

TEST(CapiSequence, WhatKvBytesCanNeverHoldIsSaidInPlaces) {
  RuntimeConfig made;
  made.config.max_seq_tokens = 1000;
  TestRuntime rt(made.config);
  rt.Begin();
  const kvrm_seq seq = rt.Open();
  ExpectRefused(rt, KVRM_INVALID, "max_step_tokens is 64", [&] { return rt.Reserve(seq, 241); });
  made.config.max_step_tokens = 1000;
  TestRuntime wide(made.config);
  wide.Begin();
  const kvrm_seq other = wide.Open();
  ExpectRefused(wide, KVRM_UNSERVICEABLE, "num_tokens: 241, kv_bytes hold 240 places",
                [&] { return wide.Reserve(other, 241); });
  EXPECT_EQ(wide.Reserve(other, 240), KVRM_OK);
}

TEST(CapiSequence, AHintBelowTheReservedLengthIsTheReservedLength) {
  TestRuntime rt, hinted;
  for (TestRuntime* each : {&rt, &hinted}) {
    each->Begin();
    const kvrm_seq seq = each->Open();
    ASSERT_EQ(kvrm_reserve(*each, seq, 40, each == &rt ? 40 : 3, nullptr), KVRM_OK);
    EXPECT_EQ(each->Info(seq).num_tokens, 40u);
    each->Finish({seq});
  }
  const kvrm_books plain = rt.Books(), low = hinted.Books();
  EXPECT_EQ(std::memcmp(&plain, &low, sizeof plain), 0);
}

TEST(CapiSequence, OneStepGivesASequenceAtMostMaxStepTokens) {
  TestRuntime rt;
  const kvrm_seq seq = rt.Grown(20);
  rt.Begin();
  ExpectRefused(rt, KVRM_INVALID, "adds 65 places, max_step_tokens is 64",
                [&] { return rt.Reserve(seq, 85); });
  ASSERT_EQ(rt.Reserve(seq, 84), KVRM_OK);
  ExpectRefused(rt, KVRM_INVALID, "adds 65 places", [&] { return rt.Reserve(seq, 85); });
  rt.Finish({seq});
}

TEST(CapiSequence, AliasSharesOnlyWhatIsWritten) {
  TestRuntime rt;
  const kvrm_seq src = rt.Grown(20);
  rt.Begin();
  const kvrm_seq dst = rt.Open();
  ASSERT_EQ(rt.Reserve(src, 24), KVRM_OK);
  ExpectRefused(rt, KVRM_INVALID, "only 20 places", [&] { return kvrm_alias(rt, dst, src, 21); });
  ExpectRefused(rt, KVRM_INVALID, "not empty", [&] { return kvrm_alias(rt, src, src, 4); });
  EXPECT_EQ(kvrm_alias(rt, dst, src, 20), KVRM_OK);
  ExpectRefused(rt, KVRM_INVALID, "not empty", [&] { return kvrm_alias(rt, dst, src, 20); });
  EXPECT_EQ(rt.Info(dst).new_from, 20u);
  rt.Finish({src, dst});
}

TEST(CapiSequence, WhatSlidOutOrWasTrimmedColdIsUnserviceable) {
  TestRuntime rt(/*sliding=*/true);
  const kvrm_seq seq = rt.Grown(40);
  rt.Begin();
  ASSERT_EQ(rt.Reserve(seq, 100), KVRM_OK);
  rt.Finish({seq});
  rt.Begin();
  ASSERT_EQ(rt.Reserve(seq, 101), KVRM_OK);
  rt.Finish({seq});
  rt.Begin();
  uint32_t yes = 2;
  EXPECT_EQ(kvrm_can_trim(rt, seq, 30, &yes), KVRM_OK);
  EXPECT_EQ(yes, 0u);
  ExpectRefused(rt, KVRM_UNSERVICEABLE, "gone", [&] { return kvrm_trim(rt, seq, 30); });
  const kvrm_seq fork = rt.Open();
  ExpectRefused(rt, KVRM_UNSERVICEABLE, "slid out", [&] { return kvrm_alias(rt, fork, seq, 30); });
  ExpectRefused(rt, KVRM_INVALID, "slides by itself",
                [&] { return kvrm_trim_pages(rt, seq, 1, 0, 16); });
  ExpectRefused(rt, KVRM_INVALID, "must lie in",
                [&] { return kvrm_trim_pages(rt, seq, 0, 0, 102); });
  ExpectRefused(rt, KVRM_INVALID, "must lie in",
                [&] { return kvrm_trim_pages(rt, seq, 0, 32, 16); });
  ExpectRefused(rt, KVRM_INVALID, "group: 2", [&] { return kvrm_trim_pages(rt, seq, 2, 0, 16); });
  ASSERT_EQ(kvrm_trim_pages(rt, seq, 0, 16, 48), KVRM_OK);
  EXPECT_EQ(rt.Info(seq).lossy, 1u);
  ExpectRefused(rt, KVRM_UNSERVICEABLE, "slid out", [&] { return kvrm_alias(rt, fork, seq, 101); });
  EXPECT_EQ(kvrm_can_trim(rt, seq, 40, &yes), KVRM_OK);
  EXPECT_EQ(yes, 0u);  // its page is a hole
}

TEST(CapiSequence, SavepointsUndoOneSequenceAndVoidLaterOnes) {
  TestRuntime rt;
  const kvrm_seq a = rt.Grown(20);
  const kvrm_seq b = rt.Grown(20);
  rt.Begin();
  uint64_t mark_a = 0, mark_b = 0;
  ASSERT_EQ(kvrm_mark(rt, a, &mark_a), KVRM_OK);
  ASSERT_EQ(rt.Reserve(a, 40), KVRM_OK);
  ASSERT_EQ(kvrm_mark(rt, b, &mark_b), KVRM_OK);
  ASSERT_EQ(rt.Reserve(b, 40), KVRM_OK);
  ASSERT_EQ(kvrm_close(rt, a), KVRM_OK);
  ASSERT_EQ(kvrm_rollback(rt, mark_a), KVRM_OK) << rt.error();
  EXPECT_EQ(rt.Info(a).num_tokens, 20u);
  EXPECT_EQ(rt.Info(b).num_tokens, 40u);
  EXPECT_EQ(kvrm_rollback(rt, mark_b), KVRM_INVALID);
  ASSERT_EQ(kvrm_trim(rt, a, 3), KVRM_OK);
  EXPECT_EQ(rt.Info(a).new_from, 3u);
  ASSERT_EQ(kvrm_rollback(rt, mark_a), KVRM_OK) << rt.error();
  EXPECT_EQ(rt.Info(a).new_from, 20u);
  rt.Finish({a, b});
  rt.Begin();
  EXPECT_EQ(kvrm_rollback(rt, mark_a), KVRM_INVALID);  // of another step
  EXPECT_EQ(rt.Violations(), "");
}

TEST(CapiSequence, ANumberOfAVoidSavepointIsNeverGivenAgain) {
  TestRuntime rt;
  const kvrm_seq a = rt.Grown(20);
  const kvrm_seq b = rt.Grown(20);
  rt.Begin();
  uint64_t first = 0, second = 0, third = 0, fourth = 0;
  ASSERT_EQ(kvrm_mark(rt, a, &first), KVRM_OK);
  ASSERT_EQ(kvrm_mark(rt, b, &second), KVRM_OK);
  ASSERT_EQ(kvrm_rollback(rt, first), KVRM_OK);  // voids the second
  ASSERT_EQ(kvrm_mark(rt, a, &third), KVRM_OK);
  ASSERT_EQ(rt.Reserve(a, 30), KVRM_OK);
  EXPECT_EQ(kvrm_rollback(rt, second), KVRM_INVALID);
  EXPECT_EQ(rt.Info(a).num_tokens, 30u);
  ASSERT_EQ(kvrm_rollback(rt, third), KVRM_OK);
  ASSERT_EQ(kvrm_rollback(rt, first), KVRM_OK);  // the third is void, the first stands
  rt.Finish({});
  rt.Begin();
  ASSERT_EQ(kvrm_mark(rt, a, &fourth), KVRM_OK);
  ASSERT_EQ(rt.Reserve(a, 30), KVRM_OK);
  for (const uint64_t old : {uint64_t{0}, first, second, third}) {
    EXPECT_EQ(kvrm_rollback(rt, old), KVRM_INVALID) << old;
  }
  EXPECT_EQ(rt.Info(a).num_tokens, 30u);
  EXPECT_EQ(kvrm_rollback(rt, fourth), KVRM_OK);
}

TEST(CapiSequence, RollbackStepReopensTheClosedAndForgetsTheOpened) {
  TestRuntime rt;
  const kvrm_seq old_one = rt.Grown(20);
  const kvrm_books before = rt.Books();
  rt.Begin();
  uint64_t mark = 0;
  ASSERT_EQ(kvrm_mark(rt, old_one, &mark), KVRM_OK);
  ASSERT_EQ(kvrm_rollback(rt, mark), KVRM_OK);
  ASSERT_EQ(kvrm_trim(rt, old_one, 2), KVRM_OK);
  ASSERT_EQ(kvrm_close(rt, old_one), KVRM_OK);
  const kvrm_seq new_one = rt.Open();
  ASSERT_EQ(rt.Reserve(new_one, 30), KVRM_OK);
  ASSERT_EQ(kvrm_rollback_step(rt), KVRM_OK);
  EXPECT_EQ(rt.Info(old_one).num_tokens, 20u);
  EXPECT_EQ(rt.Info(old_one).new_from, 20u);
  const kvrm_books after = rt.Books();
  EXPECT_EQ(before.in_use, after.in_use);
  rt.Begin();
  EXPECT_EQ(rt.Reserve(new_one, 30), KVRM_INVALID);
  kvrm_room room = {};
  room.size = sizeof room;
  ASSERT_EQ(kvrm_get_room(rt, &room), KVRM_OK);
  EXPECT_EQ(room.open_sequences, 1u);
}

TEST(CapiSequence, MarksOfOneStepAreBounded) {
  TestRuntime rt;
  const kvrm_seq seq = rt.Grown(20);
  rt.Begin();
  uint64_t mark = 0;
  for (int i = 0; i < 32; ++i) ASSERT_EQ(kvrm_mark(rt, seq, &mark), KVRM_OK);
  ExpectRefused(rt, KVRM_NO_ROOM, "savepoints", [&] { return kvrm_mark(rt, seq, &mark); });
}

TEST(CapiSequence, NullPointersAreRefusedEverywhere) {
  TestRuntime rt;
  const kvrm_seq seq = rt.Grown(20);
  EXPECT_EQ(kvrm_begin_step(nullptr), KVRM_INVALID);
  EXPECT_STREQ(kvrm_last_error(nullptr), "runtime is NULL");
  EXPECT_EQ(kvrm_create(nullptr, nullptr), KVRM_INVALID);
  EXPECT_EQ(kvrm_get_frame(rt, nullptr), KVRM_INVALID);
  EXPECT_EQ(kvrm_get_sequence(rt, seq, nullptr), KVRM_INVALID);
  EXPECT_EQ(kvrm_get_books(rt, 0, nullptr), KVRM_INVALID);
  EXPECT_EQ(kvrm_get_counters(rt, nullptr), KVRM_INVALID);
  EXPECT_EQ(kvrm_validate(rt, nullptr, 4, nullptr, nullptr), KVRM_INVALID);
  EXPECT_EQ(kvrm_dump(rt, nullptr, 4, nullptr), KVRM_INVALID);
  EXPECT_EQ(kvrm_run_trains(rt, nullptr, 1), KVRM_INVALID);
  EXPECT_EQ(kvrm_get_segments(rt, 0, 0, nullptr, nullptr), KVRM_INVALID);
  rt.Begin();
  EXPECT_EQ(kvrm_open(rt, nullptr), KVRM_INVALID);
  EXPECT_EQ(kvrm_mark(rt, seq, nullptr), KVRM_INVALID);
  EXPECT_EQ(kvrm_prefix_match(rt, nullptr, nullptr, 0, nullptr), KVRM_INVALID);
  EXPECT_EQ(kvrm_commit(rt, rt.epoch() + 1, nullptr, 1, nullptr), KVRM_INVALID);
  kvrm_destroy(nullptr);
}

}  // namespace
}  // namespace kvrm
