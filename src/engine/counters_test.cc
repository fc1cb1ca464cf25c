// The counters of docs/architecture.md, section 7: each moves when it should, and only then. Those
// of causes are in gap_causes_test.cc, of goodput and percentiles with the load generator.
#include <gtest/gtest.h>

#include "engine/paced_executor.h"
#include "engine/test_rig.h"

namespace kvrm {
namespace {

using testing::Greedy;
using testing::kFakePageBytes;
using testing::kFakePagesPerSuperblock;
using testing::PacedExecutor;
using testing::RandomPrompt;
using testing::Rig;

uint64_t ReservedPages(const PagerBooks& books) {
  return books.in_use + books.soft + books.cached + books.limbo;
}

TEST(Counters, ReservedKvBytesAreThePagesInUseSoftCachedAndInLimbo) {
  Rig rig({.slots = 4, .kv_keep_bytes = 0});
  const PagerBooks empty = rig.engine().Metrics().books;
  EXPECT_EQ(empty.reserved_bytes, kFakePageBytes);  // the null page's
  rig.Submit(Greedy(RandomPrompt(40, 1), 30));
  rig.Step();
  const PagerBooks one = rig.engine().Metrics().books;
  EXPECT_EQ(one.in_use, 1u + 3u);
  while (rig.Step()) {
    const PagerBooks books = rig.engine().Metrics().books;
    ASSERT_EQ(books.reserved_bytes, ReservedPages(books) * kFakePageBytes);
  }
  // Its full pages are cached, so they are still reserved; idle seconds give them back.
  const PagerBooks ended = rig.engine().Metrics().books;
  EXPECT_EQ(ended.in_use, 1u);
  EXPECT_EQ(ended.cached, 4u);
  EXPECT_EQ(ended.reserved_bytes, 5 * kFakePageBytes);
  for (int i = 0; i < 8; ++i) {
    rig.engine().NoteIdle();
    rig.Step();
  }
  const PagerBooks idle = rig.engine().Metrics().books;
  EXPECT_EQ(idle.reserved_bytes, kFakePageBytes);
  EXPECT_EQ(idle.superblock_bytes, kFakePagesPerSuperblock * kFakePageBytes);
}

// What the system counts follows what is reserved, by whole superblocks and OS pages.
TEST(Counters, ResidentKvBytesComeAndGoWithSuperblocks) {
  Rig rig({.slots = 4, .pool_pages = 2048, .max_seq_tokens = 4000, .kv_keep_bytes = 0});
  const uint64_t at_start = rig.engine().ResidentKvBytes();
  const RequestId id = rig.Submit(Greedy(RandomPrompt(1000, 1), 2));
  for (int i = 0; i < 3; ++i) rig.Step();
  const uint64_t reserved = rig.engine().Metrics().books.reserved_bytes;
  EXPECT_GE(reserved, 62 * kFakePageBytes);
  EXPECT_GE(rig.engine().ResidentKvBytes(), reserved - kFakePageBytes);  // the null page's rest
  rig.Drain();
  ASSERT_TRUE(rig.sink().finished(id));
  for (int i = 0; i < 300; ++i) {
    rig.engine().NoteIdle();
    rig.Step();
  }
  EXPECT_LE(rig.engine().ResidentKvBytes(),
            at_start + 2 * kFakePagesPerSuperblock * kFakePageBytes);
}

TEST(Counters, ReadRunsAreTheSegmentsThatAStepSeesForOneLayer) {
  for (const uint64_t scatter : {0ull, 5ull}) {
    Rig rig({.slots = 4, .scatter_seed = scatter, .prefix_cache = false});
    rig.Submit(Greedy(RandomPrompt(80, 1), 8));  // 5 pages, then a sixth
    rig.Step();
    const FrameBuilder::Reads reads = rig.engine().Metrics().reads;
    EXPECT_EQ(reads.runs, scatter == 0 ? 1u : 5u);
    // The bytes of the pages that are read, in one part.
    EXPECT_EQ(reads.bytes, 5u * kFakePageBytes / 2);
    EXPECT_DOUBLE_EQ(reads.mean_run_bytes,
                     static_cast<double>(reads.bytes) / static_cast<double>(reads.runs));
    rig.Drain();
    EXPECT_EQ(rig.engine().Metrics().reads.runs, 0u);
  }
}

TEST(Counters, CopiesCountCopyOnWriteAlone) {
  Rig rig({.slots = 4});
  const auto prompt = RandomPrompt(40, 1);  // two pages and a half
  rig.Submit(Greedy(prompt, 20));
  rig.Drain();
  const auto cow = static_cast<uint32_t>(CopyCause::kCopyOnWrite);
  EXPECT_EQ(rig.engine().Metrics().copies, CopyCounters{});  // nothing was shared
  // Half of a cached page is shared, and then written to.
  auto other = std::vector<TokenId>(prompt.begin(), prompt.begin() + 24);
  for (const TokenId id : RandomPrompt(9, 2)) other.push_back(id);
  rig.Submit(Greedy(other, 20));
  rig.Drain();
  const EngineMetrics m = rig.engine().Metrics();
  EXPECT_EQ(m.copies.copy_pieces[cow], 2u);  // the page's two parts
  EXPECT_EQ(m.copies.copies[cow], 2u);       // which are no neighbours
  EXPECT_EQ(m.copies.copy_bytes[cow], kFakePageBytes);
  EXPECT_EQ(m.pager.copy_on_write, 1u);
  for (uint32_t cause = 0; cause < kNumCopyCauses; ++cause) {
    if (cause == cow) continue;
    EXPECT_EQ(m.copies.copy_pieces[cause] + m.copies.copies[cause] + m.copies.copy_bytes[cause],
              0u);
  }
}

// Takes a time of its own in each phase, so that a phase counted under another shows.
class Pace final : public StepObserver {
 public:
  explicit Pace(ManualClock& clock) : clock_(clock) {}
  void OnStep(const StepPlan&, const FrameView&, const StepResult&) override {}
  void OnPhase(StepPhase phase) override { clock_.AdvanceUs(10 << static_cast<int>(phase)); }

 private:
  ManualClock& clock_;
};

TEST(Counters, EachPhaseOfAStepIsCountedUnderItsOwnName) {
  Rig rig({.slots = 2});
  EXPECT_EQ(rig.engine().Metrics().control_share(), 0);
  Pace pace(rig.clock());
  rig.engine().SetObserver(&pace);
  rig.Submit(Greedy(RandomPrompt(9, 1), 5));
  rig.Drain();
  const EngineMetrics m = rig.engine().Metrics();
  const auto steps = static_cast<int64_t>(m.steps);
  EXPECT_EQ(m.plan_us, steps * 10);
  EXPECT_EQ(m.edit_commit_us, steps * 20);
  EXPECT_EQ(m.move_us, steps * 40);
  EXPECT_EQ(m.run_us, steps * 80);
  EXPECT_EQ(m.sample_us, steps * 160);
  EXPECT_EQ(m.output_us, steps * 320);
  EXPECT_EQ(m.step_us, steps * 630);
  EXPECT_DOUBLE_EQ(m.control_share(), 70.0 / 630);  // plan, edit and commit, move
  EXPECT_EQ(m.maintain_us, 0);
}

TEST(Counters, RowsAreThoseOfTheExecutorAndPromptRowsAreNotOutput) {
  Rig rig({.slots = 2});
  rig.Submit(Greedy(RandomPrompt(37, 1), 6));
  rig.Drain();
  const EngineMetrics m = rig.engine().Metrics();
  EXPECT_EQ(m.prompt_tokens, 37u);
  EXPECT_EQ(m.output_tokens, 6u);
  EXPECT_EQ(m.exec.rows, 37u + 6u - 1u);  // the last token is never computed
  EXPECT_EQ(m.exec.replays[0] + m.exec.replays[1] + m.exec.replays[2], 6u);
  EXPECT_EQ(m.exec.nonfinite_rows, 0u);
  EXPECT_EQ(m.sched.preempted, 0u);
  EXPECT_EQ(m.sched.deferred, 0u);
  EXPECT_EQ(m.pager.deferred, 0u);
}

// Time to the first token is from the submit, a gap between two tokens, the longest one kept.
TEST(Counters, TimesOfARequestAreFromItsSubmitAndItsTokens) {
  Rig rig({.slots = 2, .max_itl_us = 0},
          [](std::unique_ptr<Executor> executor, ManualClock& clock) {
            return std::make_unique<PacedExecutor>(
                std::move(executor), clock, [n = 0](const FrameView&) mutable -> int64_t {
                  return ++n == 4 ? 70'000 : 0;  // the fourth step
                });
          });
  const RequestId id = rig.Submit(Greedy(RandomPrompt(20, 1), 6));
  rig.clock().AdvanceUs(5000);
  while (rig.engine().Step()) {
  }
  const RequestTimings& timings = rig.stream(id).finish.timings;
  EXPECT_EQ(timings.queued_us, 5000);
  EXPECT_EQ(timings.prompt_us, PacedExecutor::PaceUs(20));
  EXPECT_EQ(timings.decode_us, 5 * PacedExecutor::PaceUs(1) + 70'000);
  EXPECT_EQ(timings.longest_gap_us, PacedExecutor::PaceUs(1) + 70'000);
  EXPECT_EQ(rig.engine().Metrics().longest_gap_us, timings.longest_gap_us);
}

}  // namespace
}  // namespace kvrm
