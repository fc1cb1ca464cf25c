// Requests that fork another: the prompt is computed once, and nobody can tell from the tokens.
#include <gtest/gtest.h>

#include "engine/test_rig.h"

namespace kvrm {
namespace {

using testing::Greedy;
using testing::RandomPrompt;
using testing::Rig;
using testing::RigOptions;
using testing::Solo;
using testing::Stream;

constexpr uint32_t kChoices = 5;

GenerateRequest Choice(const std::vector<TokenId>& prompt, uint32_t choice,
                       uint32_t max_new_tokens = 40) {
  GenerateRequest request = Greedy(prompt, max_new_tokens);
  request.sampling.temperature = 0.9f;
  request.sampling.seed = 7;
  request.sampling.choice = choice;
  return request;
}

std::vector<RequestId> SubmitForks(Rig& rig, const std::vector<TokenId>& prompt,
                                   uint32_t max_new_tokens = 40) {
  std::vector<RequestId> ids;
  for (uint32_t i = 0; i < kChoices; ++i) {
    GenerateRequest request = Choice(prompt, i, max_new_tokens);
    if (i > 0) request.fork_of = ids[0];
    ids.push_back(rig.Submit(request));
  }
  return ids;
}

TEST(Fork, ComputesThePromptOnceAndGivesTheTokensOfSeparateRequests) {
  for (const bool cache : {true, false}) {
    for (const uint32_t length : {1u, 15u, 16u, 17u, 100u}) {
      const std::vector<TokenId> prompt = RandomPrompt(length, length);
      Rig rig({.slots = 8, .chunk_rows = 30, .prefix_cache = cache});
      const std::vector<RequestId> ids = SubmitForks(rig, prompt);
      rig.Drain();
      for (uint32_t i = 0; i < kChoices; ++i) {
        const Stream& stream = rig.stream(ids[i]);
        EXPECT_EQ(stream.tokens, Solo(Choice(prompt, i)).tokens) << "choice " << i;
        EXPECT_EQ(stream.finish.timings.cached_tokens, i == 0 ? 0 : length - 1) << "choice " << i;
      }
      // The forks read their last row once more, for its logits.
      EXPECT_EQ(rig.engine().Metrics().prompt_tokens, length + kChoices - 1);
      EXPECT_EQ(rig.pages_in_use(), 0u);
    }
  }
}

TEST(Fork, SharesFullPagesWhileItRuns) {
  const std::vector<TokenId> prompt = RandomPrompt(160, 1);
  Rig rig({.slots = 8, .prefix_cache = false});
  SubmitForks(rig, prompt);
  for (int i = 0; i < 8; ++i) rig.Step();
  EXPECT_EQ(rig.engine().Metrics().running, kChoices);
  EXPECT_LE(rig.pages_in_use(), 10u + 2 * kChoices) << "ten pages of the prompt, once";
  rig.Drain();
}

// More choices than slots, a pool that preempts, answers of one token: whoever comes late computes
// what it needs by itself.
TEST(Fork, GivesTheSameTokensWhateverBecomesOfTheFirst) {
  const std::vector<TokenId> prompt = RandomPrompt(70, 2);
  for (const uint32_t max_new_tokens : {1u, 2u, 60u}) {
    for (const RigOptions& options : {RigOptions{.slots = 2},
                                      {.slots = 1},
                                      {.slots = 5, .pool_pages = 24, .max_seq_tokens = 200},
                                      {.slots = 5, .pool_pages = 24, .prefix_cache = false}}) {
      Rig rig(options);
      const std::vector<RequestId> ids = SubmitForks(rig, prompt, max_new_tokens);
      rig.Drain();
      for (uint32_t i = 0; i < kChoices; ++i) {
        EXPECT_EQ(rig.stream(ids[i]).tokens, Solo(Choice(prompt, i, max_new_tokens)).tokens);
      }
      EXPECT_EQ(rig.pages_in_use(), 0u);
    }
  }
}

TEST(Fork, OutlivesTheRequestThatItWaitsFor) {
  const std::vector<TokenId> prompt = RandomPrompt(100, 3);
  for (const uint32_t steps : {0u, 1u, 3u, 6u}) {
    Rig rig({.slots = 8, .chunk_rows = 30});
    const std::vector<RequestId> ids = SubmitForks(rig, prompt);
    for (uint32_t i = 0; i < steps; ++i) rig.Step();
    rig.engine().Cancel(ids[0]);
    rig.engine().Cancel(ids[2]);
    rig.Drain();
    for (const uint32_t i : {1u, 3u, 4u}) {
      EXPECT_EQ(rig.stream(ids[i]).tokens, Solo(Choice(prompt, i)).tokens) << steps << " steps";
    }
    EXPECT_EQ(rig.stream(ids[2]).finish.reason, StopReason::kCancelled);
    EXPECT_EQ(rig.pages_in_use(), 0u);
  }
}

TEST(Fork, OfAnotherPromptOrAnUnknownIdIsARequestOfItsOwn) {
  Rig rig({.slots = 8});
  GenerateRequest first = Greedy(RandomPrompt(50, 4), 10);
  GenerateRequest other = Greedy(RandomPrompt(50, 5), 10);
  GenerateRequest lost = Greedy(RandomPrompt(50, 6), 10);
  GenerateRequest itself = Greedy(RandomPrompt(50, 7), 10);
  other.fork_of = rig.Submit(first);
  lost.fork_of = RequestId{999};
  itself.fork_of = RequestId{4};
  const RequestId ids[] = {rig.Submit(other), rig.Submit(lost), rig.Submit(itself)};
  rig.Drain();
  EXPECT_EQ(rig.stream(ids[0]).tokens, Solo(Greedy(RandomPrompt(50, 5), 10)).tokens);
  EXPECT_EQ(rig.stream(ids[1]).tokens, Solo(Greedy(RandomPrompt(50, 6), 10)).tokens);
  EXPECT_EQ(rig.stream(ids[2]).tokens, Solo(Greedy(RandomPrompt(50, 7), 10)).tokens);
}

// Another tenant's pages are never shared, whatever the request says.
TEST(Fork, NeverCrossesTenants) {
  const std::vector<TokenId> prompt = RandomPrompt(64, 8);
  Rig rig({.slots = 4});
  GenerateRequest first = Greedy(prompt, 30);
  first.tenant = 1;
  GenerateRequest second = Greedy(prompt, 30);
  second.tenant = 2;
  second.fork_of = rig.Submit(first);
  const RequestId id = rig.Submit(second);
  rig.Drain();
  EXPECT_EQ(rig.stream(id).finish.timings.cached_tokens, 0u);
}

}  // namespace
}  // namespace kvrm
