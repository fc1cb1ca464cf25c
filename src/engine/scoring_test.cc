// Scores of prompt tokens: what they are, that they do not depend on chunks, batch, cache or
// preemption, and that each comes once.
#include <gtest/gtest.h>

#include <random>

#include "engine/test_rig.h"

namespace kvrm {
namespace {

using testing::Greedy;
using testing::kFaultToken;
using testing::RandomPrompt;
using testing::Rig;
using testing::Solo;
using testing::Stream;

GenerateRequest Scoring(std::vector<TokenId> prompt, uint32_t max_new_tokens = 4) {
  GenerateRequest request = Greedy(std::move(prompt), max_new_tokens);
  request.score_prompt = true;
  request.num_prompt_logprobs = 3;
  return request;
}

// Nothing but the prompt.
GenerateRequest ScoringOnly(std::vector<TokenId> prompt) {
  GenerateRequest request = Scoring(std::move(prompt));
  request.generate = false;
  return request;
}

// The oracle: for each place a request of its own whose first token is forced to be the prompt's.
TEST(Scoring, EqualsARequestForEachPlaceThatIsForcedToThePromptsToken) {
  const std::vector<TokenId> prompt = RandomPrompt(40, 1);
  const Stream scored = Solo(Scoring(prompt));
  ASSERT_EQ(scored.prompt.size(), prompt.size() - 1);
  for (uint32_t i = 1; i < prompt.size(); ++i) {
    GenerateRequest forced = Greedy({prompt.begin(), prompt.begin() + i}, 1);
    forced.sampling.logit_bias = {{prompt[i], 100.0f}};
    forced.sampling.num_logprobs = 1;
    const Stream place = Solo(forced);
    ASSERT_EQ(place.tokens.at(0), prompt[i]);
    EXPECT_EQ(scored.prompt[i - 1].token, prompt[i]);
    EXPECT_EQ(scored.prompt[i - 1].logprob, place.logprobs.at(0)) << "place " << i;
    EXPECT_EQ(scored.prompt[i - 1].top.size(), 3u);
  }
  EXPECT_EQ(scored.tokens, Solo(Greedy(prompt, 4)).tokens) << "scoring changes no token";
}

TEST(Scoring, IsTheSameHoweverThePromptIsCutAndWhateverSharesTheBatch) {
  const std::vector<TokenId> prompt = RandomPrompt(150, 2);
  const std::vector<Stream::Scored> expected = Solo(Scoring(prompt)).prompt;
  for (const uint32_t slots : {1u, 2u, 5u, 32u}) {
    for (const uint32_t chunk : {0u, 1u, 7u}) {
      Rig rig({.slots = slots, .chunk_rows = chunk, .mixed_prompt_rows = 9});
      std::vector<RequestId> ids;
      std::vector<GenerateRequest> streams;
      for (uint32_t i = 0; i < 6; ++i) {
        streams.push_back(Greedy(RandomPrompt(10 + i, 50 + i), 30));
        ids.push_back(rig.Submit(streams.back()));
        if (i % 2 == 0) ids.push_back(rig.Submit(i == 0 ? Scoring(prompt) : ScoringOnly(prompt)));
      }
      rig.Drain();
      size_t stream = 0;
      for (const RequestId id : ids) {
        const Stream& got = rig.stream(id);
        ASSERT_EQ(got.finishes, 1u);
        if (got.prompt.empty()) {
          EXPECT_EQ(got.tokens, Solo(streams[stream++]).tokens);
        } else {
          ASSERT_EQ(got.prompt, expected) << slots << " slots, chunk " << chunk;
        }
      }
      EXPECT_EQ(rig.pages_in_use(), 0u);
    }
  }
}

TEST(Scoring, WithoutAnswerEndsWithLengthAndNoToken) {
  for (const uint32_t length : {1u, 2u, 16u, 17u}) {
    const Stream only = Solo(ScoringOnly(RandomPrompt(length, 3)));
    EXPECT_EQ(only.prompt.size(), length - 1);
    EXPECT_TRUE(only.tokens.empty());
    EXPECT_EQ(only.finish.reason, StopReason::kLength);
    EXPECT_EQ(only.finish.timings.prompt_tokens, length);
  }
}

// What is cached of a prompt that is scored is computed again, and what it computed is cached.
TEST(Scoring, TakesNothingFromThePrefixCacheAndLeavesItsPagesThere) {
  Rig rig({.slots = 4});
  const std::vector<TokenId> prompt = RandomPrompt(100, 4);
  rig.Submit(Greedy(prompt, 2));
  rig.Drain();
  const RequestId scored = rig.Submit(Scoring(prompt));
  rig.Drain();
  EXPECT_EQ(rig.stream(scored).finish.timings.cached_tokens, 0u);
  EXPECT_EQ(rig.stream(scored).prompt, Solo(Scoring(prompt)).prompt);
  Rig fresh({.slots = 4});
  fresh.Submit(ScoringOnly(prompt));
  fresh.Drain();
  const RequestId warm = fresh.Submit(Greedy(prompt, 3));
  fresh.Drain();
  EXPECT_GE(fresh.stream(warm).finish.timings.cached_tokens, 96u);
  EXPECT_EQ(fresh.stream(warm).tokens, Solo(Greedy(prompt, 3)).tokens);
}

// A pool for a few of them: some lose their pages while they are scored; none is told twice (the
// collector checks) or wrong.
TEST(Scoring, SurvivesPreemptionAndStepsThatAreRolledBack) {
  class Spoiler final : public StepObserver {
   public:
    bool OnEdited(const StepPlan&) override { return ++steps_ % 3 != 0; }
    void OnStep(const StepPlan&, const FrameView&, const StepResult&) override {}

   private:
    uint32_t steps_ = 0;
  };
  for (const bool cache : {true, false}) {
    Rig rig({.slots = 6, .pool_pages = 24, .max_seq_tokens = 180, .prefix_cache = cache});
    Spoiler spoiler;
    rig.engine().SetObserver(&spoiler);
    std::vector<RequestId> ids;
    std::vector<GenerateRequest> requests;
    for (uint32_t i = 0; i < 12; ++i) {
      requests.push_back(i % 2 == 0 ? Scoring(RandomPrompt(60 + i, i), 60)
                                    : Greedy(RandomPrompt(20, i), 120));
      ids.push_back(rig.Submit(requests.back()));
    }
    rig.Drain();
    for (size_t i = 0; i < ids.size(); ++i) {
      const Stream solo = Solo(requests[i], 180);
      ASSERT_EQ(rig.stream(ids[i]).prompt, solo.prompt) << i;
      ASSERT_EQ(rig.stream(ids[i]).tokens, solo.tokens) << i;
    }
    EXPECT_GT(rig.engine().Metrics().sched.preempted, 0u);
    EXPECT_EQ(rig.pages_in_use(), 0u);
  }
}

TEST(Scoring, AFaultInThePromptEndsThatRequestAlone) {
  Rig rig({.slots = 4});
  std::vector<TokenId> bad = RandomPrompt(50, 5);
  bad[30] = kFaultToken;
  const RequestId faulty = rig.Submit(Scoring(bad));
  const RequestId good = rig.Submit(Scoring(RandomPrompt(50, 6)));
  rig.Drain();
  EXPECT_EQ(rig.stream(faulty).finish.reason, StopReason::kError);
  EXPECT_LE(rig.stream(faulty).prompt.size(), 30u);
  EXPECT_EQ(rig.stream(good).prompt, Solo(Scoring(RandomPrompt(50, 6))).prompt);
}

}  // namespace
}  // namespace kvrm
