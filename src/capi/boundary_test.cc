// No abort and no exception passes the boundary: failed checks and failed allocations become
// values, and a runtime that is not sound any more says so for the rest of its life.
#include "capi/boundary.h"

#include <atomic>
#include <cstdlib>
#include <new>

#include "capi/capi_testing.h"

namespace {

// Allocations until one fails; negative = none will.
std::atomic<int> allocations_left{-1};

void* Allocate(std::size_t bytes) {
  if (allocations_left >= 0) {
    const int left = allocations_left--;
    if (left == 0) throw std::bad_alloc();
  }
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return Allocate(bytes); }
void* operator new[](std::size_t bytes) { return Allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace kvrm {
namespace {

TEST(CapiBoundary, AFailedCheckOfASoundRuntimeIsInvalidAndItGoesOn) {
  TestRuntime rt;
  const kvrm_seq seq = rt.Grown(20);
  const kvrm_status status =
      Call(static_cast<kvrm_runtime*>(rt), When::kAnyTime, [](kvrm_runtime& r) -> kvrm_status {
        r.pager->Trim(SeqId{77}, 0);  // the pager's own check
        return KVRM_OK;
      });
  EXPECT_EQ(status, KVRM_INVALID);
  EXPECT_NE(rt.error().find("an edit outside BeginStep"), std::string::npos) << rt.error();
  rt.Begin();
  EXPECT_EQ(rt.Reserve(seq, 30), KVRM_OK);
  rt.Finish({seq});
  EXPECT_EQ(rt.Violations(), "");
}

// Fails a check inside a call that has done `harm` before.
template <class Harm>
kvrm_status FailAfter(kvrm_runtime* runtime, const Harm& harm) {
  return Call(runtime, When::kAnyTime, [&](kvrm_runtime& r) -> kvrm_status {
    harm(r);
    KVRM_CHECK(false, "TEST-1: a bug");
    return KVRM_OK;
  });
}

void ExpectBroken(TestRuntime& rt) {
  kvrm_seq seq = 0;
  kvrm_books books = {};
  books.size = sizeof books;
  EXPECT_EQ(kvrm_begin_step(rt), KVRM_BROKEN);
  EXPECT_EQ(kvrm_open(rt, &seq), KVRM_BROKEN);
  EXPECT_EQ(kvrm_get_books(rt, 0, &books), KVRM_BROKEN);
  EXPECT_NE(rt.error().find("TEST-1"), std::string::npos) << rt.error();
  uint32_t violations = 0;
  EXPECT_EQ(kvrm_validate(rt, nullptr, 0, nullptr, &violations), KVRM_OK);
}

TEST(CapiBoundary, ARuntimeWhoseTablesAreWrongIsBroken) {
  TestRuntime rt;
  rt.Grown(20);
  EXPECT_EQ(FailAfter(rt, [](kvrm_runtime&) {}), KVRM_INVALID);
  EXPECT_EQ(FailAfter(rt, [](kvrm_runtime& r) { *const_cast<uint32_t*>(r.view.dense) = 9; }),
            KVRM_BROKEN);
  ExpectBroken(rt);
  EXPECT_NE(rt.Violations(), "");
}

TEST(CapiBoundary, ARuntimeThatWasPublishingIsBroken) {
  TestRuntime rt;
  EXPECT_EQ(FailAfter(rt, [](kvrm_runtime& r) { r.publishing = true; }), KVRM_BROKEN);
  ExpectBroken(rt);
}

TEST(CapiBoundary, AVerbThatTheLedgerMissedBreaksTheRuntime) {
  TestRuntime rt;
  rt.Begin();
  EXPECT_EQ(FailAfter(rt, [](kvrm_runtime& r) { (void)r.pager->Open(); }), KVRM_BROKEN);
  ExpectBroken(rt);
}

TEST(CapiBoundary, OtherExceptionsBreakTheRuntimeToo) {
  TestRuntime rt;
  const kvrm_status status = Call(static_cast<kvrm_runtime*>(rt), When::kAnyTime,
                                  [](kvrm_runtime&) -> kvrm_status { throw 5; });
  EXPECT_EQ(status, KVRM_BROKEN);
  EXPECT_EQ(kvrm_begin_step(rt), KVRM_BROKEN);
}

TEST(CapiBoundary, CreateWithoutMemoryIsNoRoomAndLeaksNothing) {
  const RuntimeConfig made(/*sliding=*/true, /*windows=*/true);
  int failures = 0;
  for (kvrm_status status = KVRM_NO_ROOM; status != KVRM_OK; ++failures) {
    kvrm_runtime* runtime = nullptr;
    allocations_left = failures;
    status = kvrm_create(&made.config, &runtime);
    allocations_left = -1;
    ASSERT_TRUE(status == KVRM_OK || status == KVRM_NO_ROOM) << kvrm_last_error(nullptr);
    kvrm_destroy(runtime);
    ASSERT_LT(failures, 10000);
  }
  EXPECT_GT(failures, 10);
}

// A script of all verbs in which the k-th allocation fails. What the checks of tier 2 and 3
// allocate fails after the edit, so here a runtime may also end broken; it never ends the process.
TEST(CapiBoundary, AnyFailedAllocationIsAnAnswer) {
  const kvrm_salt salt = {1, 2};
  const std::vector<int32_t> tokens(64, 7);
  for (int k = 0; k < 400; k += KVRM_CHECK_TIER >= 2 ? 7 : 1) {
    TestRuntime rt(/*sliding=*/true);
    std::vector<kvrm_row_input> rows;
    allocations_left = k;
    const auto failed = [&](kvrm_status status) {
      EXPECT_TRUE(status == KVRM_OK || status == KVRM_NO_ROOM || status == KVRM_BROKEN)
          << kvrm_status_name(status) << rt.error();
      return status != KVRM_OK;
    };
    const auto script = [&] {
      kvrm_seq a = 0, b = 0;
      for (uint32_t step = 0; step < 3; ++step) {
        if (failed(kvrm_begin_step(rt))) return;
        if (step == 0 && failed(kvrm_open(rt, &a))) return;
        if (failed(kvrm_reserve(rt, a, 40 + 8 * step, 0, nullptr))) return;
        if (step == 2 && (failed(kvrm_open(rt, &b)) || failed(kvrm_alias(rt, b, a, 48)))) return;
        const int left = allocations_left.exchange(-1);
        rows.clear();
        rt.AddRows(a, rows);
        allocations_left = left;
        if (failed(rt.Commit(rows)) || failed(kvrm_step_done(rt, rt.epoch()))) return;
        if (failed(kvrm_prefix_index(rt, a, &salt, tokens.data(), 40, nullptr))) return;
        if (failed(kvrm_maintain(rt, 1, nullptr))) return;
      }
    };
    script();
    allocations_left = -1;
    uint32_t violations = 0;
    ASSERT_EQ(kvrm_validate(rt, nullptr, 0, nullptr, &violations), KVRM_OK);
    const bool broken = kvrm_maintain(rt, 0, nullptr) == KVRM_BROKEN;
    EXPECT_TRUE(broken || violations == 0) << rt.Violations();
  }
}

}  // namespace
}  // namespace kvrm
