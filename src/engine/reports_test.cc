// Public bug reports, by number, as far as the engine alone can show them.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>
#include <string>

#include "engine/paced_executor.h"
#include "engine/test_rig.h"

namespace kvrm {
namespace {

using testing::Greedy;
using testing::PacedExecutor;
using testing::RandomPrompt;
using testing::Rig;
using testing::Solo;
using testing::Stream;

GenerateRequest Drawn(std::vector<TokenId> prompt, uint32_t max_new_tokens, uint64_t seed) {
  GenerateRequest request = Greedy(std::move(prompt), max_new_tokens);
  request.sampling.temperature = 1.0f;
  request.sampling.seed = seed;
  return request;
}

// Two requests in one pass, one of which repeats an earlier prompt.
TEST(B001, ARepeatedPromptBesideANewcomerGetsItsSoloTokens) {
  const auto shared = RandomPrompt(32, 1);
  auto longer = shared;
  for (const TokenId id : RandomPrompt(5, 2)) longer.push_back(id);
  for (const uint32_t newcomer_tokens : {75u, 110u}) {
    for (const bool newcomer_first : {false, true}) {
      Rig rig({.slots = 4, .pool_pages = 8, .max_seq_tokens = 120});
      rig.Submit(Greedy(shared, 2));
      rig.Drain();
      const GenerateRequest a = Greedy(longer, 8);
      const GenerateRequest b = Greedy(RandomPrompt(newcomer_tokens, 3), 2);
      RequestId id_a, id_b;
      if (newcomer_first) id_b = rig.Submit(b);
      id_a = rig.Submit(a);
      if (!newcomer_first) id_b = rig.Submit(b);
      rig.Drain();
      EXPECT_EQ(rig.stream(id_a).tokens, Solo(a, 120).tokens);
      EXPECT_EQ(rig.stream(id_b).tokens, Solo(b, 120).tokens);
      const uint32_t cached = rig.stream(id_a).finish.timings.cached_tokens;
      EXPECT_TRUE(cached == 32 || (newcomer_first && cached == 0)) << cached;
    }
  }
}

// A retry right after a cancel: pages of the old ones wait for the running step.
TEST(B013, ARetryRightAfterACancelEqualsItsSoloRun) {
  for (const uint64_t scatter : {0ull, 5ull}) {
    Rig rig({.slots = 8, .pool_pages = 64, .scatter_seed = scatter});
    std::vector<RequestId> first;
    for (uint32_t i = 0; i < 5; ++i) first.push_back(rig.Submit(Greedy(RandomPrompt(60, i), 100)));
    for (int i = 0; i < 20; ++i) rig.Step();
    for (const RequestId id : first) rig.engine().Cancel(id);
    std::vector<RequestId> again;
    for (uint32_t i = 0; i < 5; ++i) again.push_back(rig.Submit(Greedy(RandomPrompt(60, i), 100)));
    rig.Drain();
    for (uint32_t i = 0; i < 5; ++i) {
      EXPECT_EQ(rig.stream(first[i]).finish.reason, StopReason::kCancelled);
      EXPECT_EQ(rig.stream(again[i]).tokens, Solo(Greedy(RandomPrompt(60, i), 100)).tokens);
    }
  }
}

TEST(B013, LongAndShortPromptsAtOnceEqualTheirSoloRuns) {
  Rig rig({.slots = 21, .pool_pages = 512});
  std::vector<std::pair<RequestId, GenerateRequest>> requests;
  for (uint32_t i = 0; i < 21; ++i) {
    const GenerateRequest request = Greedy(RandomPrompt(i % 3 == 0 ? 300 : 52, i), 12);
    requests.emplace_back(rig.Submit(request), request);
  }
  rig.Drain();
  for (const auto& [id, request] : requests) {
    EXPECT_EQ(rig.stream(id).tokens, Solo(request).tokens);
  }
}

// A request larger than the pool, under the length limit.
TEST(B016, ARequestLargerThanThePoolIsRefusedAtOnceAndBarsNobody) {
  Rig rig({.slots = 8, .pool_pages = 64, .max_seq_tokens = 4096});  // 1008 places
  const Status status = rig.engine().Check(Greedy(RandomPrompt(2000, 1), 10));
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("2000"), std::string::npos);
  EXPECT_NE(status.error().message.find("1008"), std::string::npos);
  // Even past Check it would be told, not kept: nothing waits behind it.
  const RequestId grows = rig.Submit(Greedy(RandomPrompt(900, 2), 500));
  std::vector<RequestId> small;
  for (uint32_t i = 0; i < 5; ++i) small.push_back(rig.Submit(Greedy(RandomPrompt(20, i), 10)));
  rig.Drain();
  EXPECT_EQ(rig.stream(grows).finish.reason, StopReason::kLength);
  EXPECT_EQ(rig.stream(grows).tokens.size(), 1008u - 900u + 1u);  // the last one needs no place
  for (const RequestId id : small) EXPECT_EQ(rig.stream(id).tokens.size(), 10u);
}

// Notes the times at which its tokens come, on the engine's clock.
class GapSink final : public EventSink {
 public:
  explicit GapSink(ManualClock& clock) : clock_(clock) {}
  void OnToken(RequestId, const TokenEvent& event) override {
    const int64_t now_us = clock_.NowUs();
    if (event.index > 0) longest_us = std::max(longest_us, now_us - last_us_);
    last_us_ = now_us;
    ++tokens;
  }
  void OnFinish(RequestId, const FinishEvent&) override {}
  int64_t longest_us = 0;
  uint32_t tokens = 0;

 private:
  ManualClock& clock_;
  int64_t last_us_ = 0;
};

// A stream of 400 tokens; after 50 of them prompts of 300 to 600 tokens come faster than they can
// be computed, and one of 900. A step takes 1 ms and 0.1 ms a row.
TEST(B017, AStreamGoesOnWhilePromptsKeepComing) {
  constexpr int64_t kBudgetUs = 20'000;
  for (const int64_t max_itl_us : {int64_t{0}, kBudgetUs}) {
    Rig rig({.slots = 8,
             .pool_pages = 512,
             .max_seq_tokens = 1000,
             .chunk_rows = 256,
             .validate = false,
             .max_itl_us = max_itl_us},
            [](std::unique_ptr<Executor> executor, ManualClock& clock) {
              return std::make_unique<PacedExecutor>(std::move(executor), clock, nullptr);
            });
    GapSink stream(rig.clock());
    GenerateRequest request = Greedy(RandomPrompt(20, 1), 400);
    request.sink = &stream;
    ASSERT_TRUE(rig.engine().Submit(std::move(request)).ok());
    while (stream.tokens < 50) rig.engine().Step();
    rig.Submit(Greedy(RandomPrompt(900, 2), 2));
    std::mt19937 rng(17);
    for (int64_t due_us = rig.clock().NowUs(); stream.tokens < 400;) {
      for (; due_us <= rig.clock().NowUs(); due_us += 30'000) {
        rig.Submit(Greedy(RandomPrompt(300 + rng() % 301, rng()), 2));
      }
      ASSERT_TRUE(rig.engine().Step());
    }
    // Without a budget 64 prompt rows go beside a stream, so a step with 8 slots is 8.2 ms at most.
    EXPECT_LE(stream.longest_us, max_itl_us == 0 ? 8'200 : kBudgetUs);
    EXPECT_GT(rig.engine().Metrics().prompt_tokens, 10'000u);  // and prompts advance all the while
  }
}

TEST(B019, EightLongDecodesInAPoolForFourFinishWithFewPreemptions) {
  Rig rig({.slots = 8, .pool_pages = 40, .max_seq_tokens = 200});
  std::vector<RequestId> ids;
  for (uint32_t i = 0; i < 8; ++i) ids.push_back(rig.Submit(Greedy(RandomPrompt(20, i), 120)));
  uint64_t before = 0;
  uint32_t without_output = 0, longest_pause = 0;
  while (rig.Step()) {
    const uint64_t now = rig.engine().Metrics().output_tokens;
    without_output = now == before ? without_output + 1 : 0;
    longest_pause = std::max(longest_pause, without_output);
    before = now;
  }
  EXPECT_LE(longest_pause, 2u);  // a step that makes room, and one that only gives pages back
  for (uint32_t i = 0; i < 8; ++i) {
    EXPECT_LE(rig.stream(ids[i]).finish.timings.preemptions, 3u);
    EXPECT_EQ(rig.stream(ids[i]).tokens, Solo(Greedy(RandomPrompt(20, i), 120), 200).tokens);
  }
  EXPECT_GT(rig.engine().Metrics().sched.preempted, 0u);
}

// Nothing running, several waiting, room: for no two steps.
TEST(B021, UnderRandomLoadNobodyWaitsWhileNothingRuns) {
  std::mt19937 rng(99);
  Rig rig({.slots = 6, .pool_pages = 48, .max_seq_tokens = 400});
  std::vector<RequestId> ids;
  uint32_t stuck = 0;
  uint64_t rows = 0;
  for (uint32_t step = 0; step < 4000; ++step) {
    const bool burst = step / 150 % 3 != 2;
    if (burst && rng() % 12 == 0) {
      for (uint32_t i = 1 + rng() % 4; i > 0; --i) {
        ids.push_back(rig.Submit(Greedy(RandomPrompt(1 + rng() % 399, rng()), 1 + rng() % 40)));
      }
    }
    if (rng() % 25 == 0 && !ids.empty()) rig.engine().Cancel(ids[rng() % ids.size()]);
    rig.Step();
    const EngineMetrics m = rig.engine().Metrics();
    const bool idle = m.running == 0 && m.exec.rows == rows;  // and nobody came and went
    rows = m.exec.rows;
    stuck = idle && m.queued > 0 ? stuck + 1 : 0;
    ASSERT_LE(stuck, 1u) << "step " << step;
  }
  rig.Drain();
  for (const RequestId id : ids) EXPECT_TRUE(rig.sink().finished(id));
  EXPECT_EQ(rig.pages_in_use(), 0u);
}

TEST(B022, APromptLongerThanItsShareIsRefusedWithBothNumbers) {
  Rig rig({.slots = 10, .pool_pages = 136, .max_seq_tokens = 204});
  for (const uint32_t tokens : {204u, 205u, 2047u, 2048u, 5000u}) {
    const Status status = rig.engine().Check(Greedy(RandomPrompt(tokens, 1), 5));
    ASSERT_FALSE(status.ok()) << tokens;
    EXPECT_NE(status.error().message.find(std::to_string(tokens)), std::string::npos);
    EXPECT_NE(status.error().message.find("203"), std::string::npos);
  }
  const RequestId other = rig.Submit(Greedy(RandomPrompt(10, 2), 30));
  const RequestId at_limit = rig.Submit(Greedy(RandomPrompt(203, 1), 5));
  rig.Drain();
  EXPECT_EQ(rig.stream(at_limit).finish.reason, StopReason::kLength);
  EXPECT_EQ(rig.stream(at_limit).tokens.size(), 1u);
  EXPECT_EQ(rig.stream(other).tokens, Solo(Greedy(RandomPrompt(10, 2), 30)).tokens);
}

TEST(B023, WithoutABoundARequestEndsWhereItsContextEnds) {
  Rig rig({.slots = 2, .max_seq_tokens = 100});
  const RequestId id = rig.Submit(Greedy(RandomPrompt(30, 1), 0));
  rig.Drain(200);
  EXPECT_EQ(rig.stream(id).finish.reason, StopReason::kLength);
  EXPECT_EQ(rig.stream(id).tokens.size(), 70u);
}

// Live rows between the program sizes: 8 -> 5 -> 7 -> 1.
TEST(B025, AnyNumberOfLiveRowsEqualsTheSoloRuns) {
  Rig rig({.slots = 8});
  for (const uint32_t live : {8u, 5u, 7u, 1u, 3u, 6u}) {
    std::vector<std::pair<RequestId, GenerateRequest>> requests;
    for (uint32_t i = 0; i < live; ++i) {
      const GenerateRequest request = Greedy(RandomPrompt(3 + i, 10 * live + i), 15);
      requests.emplace_back(rig.Submit(request), request);
    }
    rig.Drain();
    for (const auto& [id, request] : requests) {
      EXPECT_EQ(rig.stream(id).tokens, Solo(request).tokens) << live << " rows";
    }
  }
}

TEST(B030, MoreRequestsThanSlotsWaitAndAreServed) {
  for (const uint32_t count : {9u, 20u}) {
    Rig rig({.slots = 8});
    std::vector<RequestId> ids;
    for (uint32_t i = 0; i < count; ++i) ids.push_back(rig.Submit(Greedy({1, 2, 3}, 10)));
    rig.Step();
    EXPECT_EQ(rig.engine().Metrics().running, 8u);
    EXPECT_EQ(rig.engine().Metrics().queued, count - 8);  // the counter that shows who waits
    rig.Drain();
    for (const RequestId id : ids) EXPECT_EQ(rig.stream(id).tokens.size(), 10u);
  }
}

TEST(B044, AnEmptyPromptIsRefusedAndTheRestGoesOn) {
  Rig rig({.slots = 2});
  EXPECT_FALSE(rig.engine().Check(Greedy({}, 5)).ok());
  const RequestId id = rig.Submit(Greedy({7}, 5));
  rig.Drain();
  EXPECT_EQ(rig.stream(id).tokens.size(), 5u);
}

TEST(B046, AHugeOutputBoundIsClampedToTheContext) {
  for (const uint32_t bound : {2147483646u, 2147483647u, 4294967295u}) {
    Rig rig({.slots = 2, .max_seq_tokens = 64});
    const RequestId id = rig.Submit(Greedy({1, 2, 3}, bound));
    rig.Drain(100);
    EXPECT_EQ(rig.stream(id).tokens.size(), 61u);
  }
}

TEST(B048, CountsAreTokensMadeAndTheEndComesOnce) {
  const auto prompt = RandomPrompt(10, 1);
  const Stream free_run = Solo(Greedy(prompt, 20));
  for (const uint32_t limit : {1u, 5u, 20u}) {
    const Stream stream = Solo(Greedy(prompt, limit));
    EXPECT_EQ(stream.tokens.size(), limit);
    EXPECT_EQ(stream.finish.timings.output_tokens, limit);
    EXPECT_EQ(stream.finish.reason, StopReason::kLength);
    // The end token exactly at the limit: it ended by itself.
    GenerateRequest request = Greedy(prompt, limit);
    const TokenId last = free_run.tokens[limit - 1];
    const auto first = std::find(free_run.tokens.begin(), free_run.tokens.end(), last);
    if (first - free_run.tokens.begin() + 1 != static_cast<long>(limit)) continue;
    request.end_tokens = {last};
    EXPECT_EQ(Solo(request).finish.reason, StopReason::kEnd);
    EXPECT_EQ(Solo(request).tokens.size(), limit);
  }
}

// Draws depend on (seed, choice, index), never on batch, order or load.
TEST(B049, SeededTextIsTheSameAloneAndUnderLoadAndSeedsDiffer) {
  const auto prompt = RandomPrompt(12, 1);
  const Stream alone = Solo(Drawn(prompt, 20, 7));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Solo(Drawn(prompt, 20, 7)).tokens, alone.tokens);
  Rig rig({.slots = 8, .pool_pages = 40});
  std::vector<RequestId> ids;
  for (uint32_t i = 0; i < 20; ++i) {
    rig.Submit(Drawn(RandomPrompt(1 + 13 * i % 90, i), 1 + 7 * i % 30, i));
    ids.push_back(rig.Submit(Drawn(prompt, 20, 7)));
  }
  rig.Drain();
  for (const RequestId id : ids) EXPECT_EQ(rig.stream(id).tokens, alone.tokens);
  // Ten seeds at once, and five choices of one seed: all different.
  std::set<std::vector<TokenId>> texts;
  std::vector<RequestId> different;
  for (uint64_t seed = 0; seed < 10; ++seed)
    different.push_back(rig.Submit(Drawn(prompt, 20, seed)));
  for (uint32_t choice = 1; choice < 6; ++choice) {
    GenerateRequest request = Drawn(prompt, 20, 7);
    request.sampling.choice = choice;
    different.push_back(rig.Submit(request));
  }
  rig.Drain();
  for (const RequestId id : different) texts.insert(rig.stream(id).tokens);
  EXPECT_EQ(texts.size(), 15u);
}

}  // namespace
}  // namespace kvrm
