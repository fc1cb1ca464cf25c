#include "server/stall_watch.h"

#include <gtest/gtest.h>

namespace kvrm {
namespace {

constexpr int64_t kStallUs = 1000;

// What a tick each 100 us of 5 ms sees when `change` is made to the counters before each.
template <class ChangeFn>
bool StalledAfter(bool has_open_work, const ChangeFn& change) {
  StallWatch watch(kStallUs);
  EngineMetrics metrics;
  for (int64_t now_us = 0; now_us <= 5000; now_us += 100) {
    change(metrics);
    watch.Observe(now_us, has_open_work, metrics);
  }
  return watch.stalled();
}

TEST(StallWatch, AnEngineWithoutWorkIsNotStalled) {
  EXPECT_FALSE(StalledAfter(false, [](EngineMetrics&) {}));
  EXPECT_TRUE(StalledAfter(true, [](EngineMetrics&) {}));
}

TEST(StallWatch, RowsAndEndsAreProgress) {
  EXPECT_FALSE(StalledAfter(true, [](EngineMetrics& m) { ++m.prompt_tokens; }));
  EXPECT_FALSE(StalledAfter(true, [](EngineMetrics& m) { ++m.output_tokens; }));
  EXPECT_FALSE(StalledAfter(true, [](EngineMetrics& m) { ++m.requests_cancelled; }));
}

// B021: nothing runs, several wait, and the engine's loop goes round.
TEST(StallWatch, StepsThatComputeNothingAreAStall) {
  EXPECT_TRUE(StalledAfter(true, [](EngineMetrics& m) {
    ++m.steps;
    ++m.commits;
    ++m.requests_submitted;
    m.queued = 3;
  }));
}

TEST(StallWatch, AStallBeginsBehindItsBoundAndEndsWithTheFirstProgress) {
  constexpr int64_t kFirstLookUs = 1'000'000'000;
  StallWatch watch(kStallUs);
  EngineMetrics metrics;
  watch.Observe(kFirstLookUs, true, metrics);
  EXPECT_FALSE(watch.stalled()) << "nobody has looked before";
  watch.Observe(kFirstLookUs + kStallUs, true, metrics);
  EXPECT_FALSE(watch.stalled());
  watch.Observe(kFirstLookUs + kStallUs + 1, true, metrics);
  EXPECT_TRUE(watch.stalled());
  ++metrics.output_tokens;
  watch.Observe(kFirstLookUs + kStallUs + 2, true, metrics);
  EXPECT_FALSE(watch.stalled());
}

}  // namespace
}  // namespace kvrm
