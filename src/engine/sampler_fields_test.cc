// Bias, penalties of the output, typical-p and scores: what each field does, told by small rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "engine/sampler_oracle.h"

namespace kvrm {
namespace {

using namespace testing;

SamplingParams GreedyParams() {
  SamplingParams params = Plain();
  params.temperature = 0;
  return params;
}

TEST(OutputPenalties, CountTheOutputAloneHoweverFarBack) {
  std::vector<float> logits(10, 0.0f);
  logits[4] = 1.0f;
  logits[5] = 0.5f;
  SamplingParams params = GreedyParams();
  params.presence_penalty = 0.75f;
  params.repetition_last_n = 0;  // bounds the repetition penalty, not this one
  Sampler sampler(10);
  const std::vector<TokenId> history = {4, 9, 9, 9};
  EXPECT_EQ(sampler.Run(params, logits.data(), nullptr, history, 3).id, 4) << "4 is the prompt's";
  EXPECT_EQ(sampler.Run(params, logits.data(), nullptr, history, 4).id, 5) << "4 was produced";
}

TEST(OutputPenalties, PresenceCountsOnceAndFrequencyEachTime) {
  std::vector<float> logits(10, -9.0f);
  logits[4] = 1.0f;
  logits[5] = 0.0f;
  Sampler sampler(10);
  const std::vector<TokenId> output = {4, 4, 4};
  SamplingParams params = GreedyParams();
  params.presence_penalty = 0.9f;
  EXPECT_EQ(sampler.Run(params, logits.data(), nullptr, output, 3).id, 4);
  params.presence_penalty = 0;
  params.frequency_penalty = 0.3f;  // 3 * 0.3 < 1
  EXPECT_EQ(sampler.Run(params, logits.data(), nullptr, output, 3).id, 4);
  params.frequency_penalty = 0.4f;  // 3 * 0.4 > 1
  EXPECT_EQ(sampler.Run(params, logits.data(), nullptr, output, 3).id, 5);
  params.frequency_penalty = 0.3f;
  params.presence_penalty = 0.2f;  // together
  EXPECT_EQ(sampler.Run(params, logits.data(), nullptr, output, 3).id, 5);
  // A reward, and no trace of it in the next call.
  params = GreedyParams();
  params.frequency_penalty = -2.0f;
  const std::vector<TokenId> once = {5};
  EXPECT_EQ(sampler.Run(params, logits.data(), nullptr, once, 1).id, 5);
  EXPECT_EQ(sampler.Run(params, logits.data(), nullptr, {}, 0).id, 4);
}

TEST(LogitBias, MovesTokensAndComesBeforeThePenalties) {
  std::vector<float> logits(300, 0.0f);
  logits[7] = 3.0f;
  Sampler sampler(300);
  SamplingParams params = GreedyParams();
  params.logit_bias = {{7, -2.0f}, {299, 1.5f}};
  EXPECT_EQ(sampler.Run(params, logits.data(), nullptr, {}, 0).id, 299);
  // 1.5 / 2 is below 1: the repetition penalty sees the biased logit.
  params.repetition_penalty = 2.0f;
  const std::vector<TokenId> history = {299};
  EXPECT_EQ(sampler.Run(params, logits.data(), nullptr, history, 0).id, 7);
}

TEST(LogitBias, LogprobsStayThoseOfTheModel) {
  std::vector<float> logits = {0.0f, std::log(3.0f)};
  SamplingParams params = GreedyParams();
  params.logit_bias = {{0, 100.0f}};
  params.num_logprobs = 2;
  Sampler sampler(2);
  const Sample sample = sampler.Run(params, logits.data(), nullptr, {}, 0);
  EXPECT_EQ(sample.id, 0);
  EXPECT_NEAR(sample.logprob, std::log(0.25), 1e-6);
  EXPECT_EQ(sample.top[0].id, 1);
}

// B042: ids from a client are data, never an index.
TEST(B042, IdsOutsideTheVocabularyTouchNothingAndAllBannedStillHasAPick) {
  std::vector<float> logits(300, 0.0f);
  logits[7] = 3.0f;
  Sampler sampler(300);
  SamplingParams params = GreedyParams();
  params.logit_bias = {{300, 100.0f}, {-1, 100.0f}, {2147483647, 100.0f}};
  EXPECT_EQ(sampler.Run(params, logits.data(), nullptr, {}, 0).id, 7);
  for (const float temperature : {0.0f, 1.0f}) {
    params.temperature = temperature;
    params.logit_bias.clear();
    for (TokenId id = 0; id < 300; ++id)
      params.logit_bias.push_back({id, id == 9 ? 0.0f : -100.0f});
    EXPECT_EQ(sampler.Run(params, logits.data(), nullptr, {}, 0).id, 9) << "all but one";
    params.logit_bias[9].bias = -100.0f;
    const Sample all = sampler.Run(params, logits.data(), nullptr, {}, 0);
    EXPECT_TRUE(all.ok);
    params.logit_bias.clear();
    EXPECT_EQ(all.id, sampler.Run(params, logits.data(), nullptr, {}, 0).id)
        << "all alike is as if there were no bias";
    params.logit_bias = {{42, 100.0f}};
    EXPECT_EQ(sampler.Run(params, logits.data(), nullptr, {}, 0).id, 42);
  }
}

TEST(B042, BiasesOutOfRangeAreRefusedByName) {
  for (const float bad : {kNan, kInf, -kInf, 1e30f, 100.5f, -101.0f}) {
    SamplingParams params;
    params.logit_bias = {{5, bad}};
    const Status status = CheckSampling(params);
    ASSERT_FALSE(status.ok()) << bad;
    EXPECT_NE(status.error().message.find("logit_bias of token 5"), std::string::npos);
  }
  SamplingParams params;
  params.logit_bias.assign(kMaxLogitBiases, {1, -100.0f});
  EXPECT_TRUE(CheckSampling(params).ok());
  params.logit_bias.push_back({1, 1.0f});
  EXPECT_FALSE(CheckSampling(params).ok());
}

TEST(B040, OutputPenaltiesOutOfRangeAreRefusedByName) {
  for (const float bad : {kNan, kInf, -kInf, 2.1f, -1e6f}) {
    SamplingParams params;
    params.presence_penalty = bad;
    ASSERT_FALSE(CheckSampling(params).ok());
    EXPECT_NE(CheckSampling(params).error().message.find("presence_penalty"), std::string::npos);
    params.presence_penalty = 0;
    params.frequency_penalty = bad;
    ASSERT_FALSE(CheckSampling(params).ok());
    EXPECT_NE(CheckSampling(params).error().message.find("frequency_penalty"), std::string::npos);
  }
}

// p = 0.9 of one token and 0.1 of ten more: the entropy lies between their surprises, nearer to the
// large one's, so a small share keeps that one alone; where the many hold the mass, they win.
TEST(TypicalP, KeepsWhatIsAsSurprisingAsTheRowIsOnTheWhole) {
  std::vector<float> logits(11, std::log(0.01f));
  logits[3] = std::log(0.9f);
  SamplingParams params = Plain();
  params.typical_p = 0.5f;
  Sampler sampler(11);
  std::set<TokenId> seen;
  for (uint32_t i = 0; i < 300; ++i)
    seen.insert(sampler.Run(params, logits.data(), nullptr, {}, i).id);
  EXPECT_EQ(seen, std::set<TokenId>{3});
  std::vector<float> flat(1001, std::log(0.0009f));
  flat[3] = std::log(0.1f);
  Sampler wide(1001);
  seen.clear();
  for (uint32_t i = 0; i < 300; ++i) seen.insert(wide.Run(params, flat.data(), nullptr, {}, i).id);
  EXPECT_FALSE(seen.contains(3)) << "too likely to be typical";
  EXPECT_GT(seen.size(), 100u);
  EXPECT_LT(*seen.rbegin(), 600) << "equals are kept from the lowest id on, until half the mass";
}

TEST(Score, TellsOfAKnownTokenWhatRunTellsOfItsOwn) {
  std::mt19937 rng(12);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> logits(777);
  for (float& x : logits) x = normal(rng);
  logits[100] = logits[200];
  Sampler sampler(777);
  const std::vector<TokenId> order = Oracle(Plain(), logits, {}, {}, nullptr).Sorted();
  SamplingParams params = GreedyParams();
  params.num_logprobs = 5;
  const Sample best = sampler.Run(params, logits.data(), nullptr, {}, 0);
  const std::vector<float> panels = PanelMaxima(logits);
  for (const uint32_t place : {0u, 1u, 3u, 776u}) {
    const Sample scored = sampler.Score(logits.data(), panels.data(), order[place], 5);
    ASSERT_TRUE(scored.ok);
    EXPECT_EQ(scored.id, order[place]);
    EXPECT_EQ(scored.rank, place + 1);
    ASSERT_EQ(scored.top.size(), 5u);
    EXPECT_EQ(scored.top[0].logprob, best.top[0].logprob);
    // The very number that stands in the list: harnesses compare the two for equality.
    if (place < 5) {
      EXPECT_EQ(scored.logprob, scored.top[place].logprob);
    }
    EXPECT_EQ(sampler.Score(logits.data(), nullptr, order[place], 0).logprob, scored.logprob);
  }
  EXPECT_EQ(sampler.Score(logits.data(), nullptr, 100, 0).rank,
            sampler.Score(logits.data(), nullptr, 200, 0).rank)
      << "equals share a rank";
  logits[5] = kNan;
  EXPECT_FALSE(sampler.Score(logits.data(), nullptr, 0, 1).ok);
}

}  // namespace
}  // namespace kvrm
