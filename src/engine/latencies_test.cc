// Histograms of the engine, and what it tells of a prompt on its way.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "engine/test_rig.h"

namespace kvrm {
namespace {

using testing::Greedy;
using testing::RandomPrompt;
using testing::Rig;

uint64_t CountOf(const Histogram& histogram) {
  const HistogramCounts counts = histogram.Load();
  return std::accumulate(counts.buckets.begin(), counts.buckets.end(), uint64_t{0});
}

TEST(Latencies, EachRequestGapAndStepIsCountedOnce) {
  Rig rig({.slots = 2});
  for (uint32_t i = 0; i < 5; ++i) rig.Submit(Greedy(RandomPrompt(20, i), 10));
  rig.Submit(Greedy(RandomPrompt(20, 9), 1));  // one token: no gap
  rig.Drain();
  const EngineLatencies& latencies = rig.engine().latencies();
  const EngineMetrics m = rig.engine().Metrics();
  EXPECT_EQ(CountOf(latencies.queued), 6u);
  EXPECT_EQ(CountOf(latencies.prefill), 6u);
  EXPECT_EQ(CountOf(latencies.gap), m.gaps.gaps);
  EXPECT_EQ(CountOf(latencies.gap), 5u * 9);
  EXPECT_EQ(CountOf(latencies.longest_gap), 5u);
  EXPECT_EQ(CountOf(latencies.step), m.steps);
  for (const Histogram& phase : latencies.phases) EXPECT_EQ(CountOf(phase), m.steps);
  EXPECT_EQ(latencies.step.Load().sum_us, m.step_us);
}

TEST(Latencies, DurationsAreThoseOfTheClock) {
  Rig rig({.slots = 1});
  rig.Submit(Greedy(RandomPrompt(5, 1), 3));
  rig.Submit(Greedy(RandomPrompt(5, 2), 3));
  rig.Drain();
  // A step each millisecond: two gaps each.
  EXPECT_EQ(rig.engine().latencies().gap.Load().sum_us, 4 * 1000);
  EXPECT_EQ(rig.engine().latencies().longest_gap.Load().sum_us, 2 * 1000);
}

class ProgressSink final : public EventSink {
 public:
  void OnProgress(RequestId, const PromptProgress& progress) override {
    EXPECT_EQ(tokens, 0u) << "progress after a token";
    seen.push_back(progress);
  }
  void OnToken(RequestId, const TokenEvent&) override { ++tokens; }
  void OnFinish(RequestId, const FinishEvent&) override {}
  std::vector<PromptProgress> seen;
  uint32_t tokens = 0;
};

TEST(Progress, EachChunkButTheLastIsTold) {
  Rig rig({.slots = 1, .chunk_rows = 64});
  ProgressSink wanted, unwanted;
  for (ProgressSink* sink : {&wanted, &unwanted}) {
    GenerateRequest request = Greedy(RandomPrompt(300, 1), 2);
    request.sink = sink;
    request.report_progress = sink == &wanted;
    ASSERT_TRUE(rig.engine().Submit(std::move(request)).ok());
  }
  rig.Drain();
  ASSERT_EQ(wanted.seen.size(), 4u) << "300 rows in chunks of 64";
  for (size_t i = 0; i < wanted.seen.size(); ++i) {
    EXPECT_EQ(wanted.seen[i].total, 300u);
    EXPECT_EQ(wanted.seen[i].cached, 0u);
    EXPECT_EQ(wanted.seen[i].processed, 64 * (i + 1));
    EXPECT_EQ(wanted.seen[i].time_us, static_cast<int64_t>(i) * 1000);
  }
  EXPECT_EQ(wanted.tokens, 2u);
  EXPECT_TRUE(unwanted.seen.empty());
  EXPECT_EQ(unwanted.tokens, 2u);
}

}  // namespace
}  // namespace kvrm
