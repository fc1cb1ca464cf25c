#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>

#include "engine/sampler_oracle.h"

namespace kvrm {
namespace {

using namespace testing;

struct Trial {
  std::vector<float> logits;
  SamplingParams params;
  std::vector<TokenId> history, banned;
  std::optional<BitMask> mask;
};

// Random rows of every temper: smooth, with many ties, with one giant, all equal.
Trial RandomTrial(std::mt19937& rng, uint32_t vocab) {
  const auto pick = [&](uint32_t n) { return static_cast<uint32_t>(rng() % n); };
  Trial trial;
  std::normal_distribution<float> normal(0, 3);
  for (uint32_t i = 0; i < vocab; ++i) trial.logits.push_back(normal(rng));
  switch (pick(4)) {
    case 0:
      for (float& x : trial.logits) x = std::round(x);
      break;
    case 1:
      trial.logits[pick(vocab)] = 1e30f;
      break;
    case 2:
      if (pick(3) == 0) std::fill(trial.logits.begin(), trial.logits.end(), -2.5f);
      break;
    default:
      break;
  }
  constexpr std::array<float, 6> kTemperatures = {0.0f, 1e-6f, 0.3f, 0.8f, 1.5f, 100.0f};
  constexpr std::array<float, 5> kTopP = {1.0f, 0.95f, 0.5f, 1e-9f, 0.999f};
  constexpr std::array<float, 5> kMinP = {0.0f, 0.05f, 0.3f, 1.0f, 1e-4f};
  constexpr std::array<float, 4> kPenalty = {1.0f, 1.3f, 0.7f, 5.0f};
  constexpr std::array<float, 6> kTypical = {1.0f, 1.0f, 1.0f, 0.9f, 0.2f, 1e-6f};
  constexpr std::array<float, 6> kCountPenalty = {0.0f, 0.0f, 0.0f, 0.5f, 2.0f, -2.0f};
  const std::array<uint32_t, 9> top_k = {0, 1, 2, 5, 40, vocab - 1, vocab, vocab + 1, 0xFFFFFFFFu};
  trial.params.temperature = kTemperatures[pick(kTemperatures.size())];
  trial.params.top_p = kTopP[pick(kTopP.size())];
  trial.params.min_p = kMinP[pick(kMinP.size())];
  trial.params.top_k = top_k[pick(top_k.size())];
  trial.params.repetition_penalty = kPenalty[pick(kPenalty.size())];
  trial.params.repetition_last_n = pick(12);
  trial.params.typical_p = kTypical[pick(kTypical.size())];
  trial.params.presence_penalty = kCountPenalty[pick(kCountPenalty.size())];
  trial.params.frequency_penalty = kCountPenalty[pick(kCountPenalty.size())];
  for (uint32_t i = pick(3) == 0 ? pick(6) : 0; i > 0; --i) {
    const auto bias = static_cast<float>(pick(201)) - 100.0f;
    trial.params.logit_bias.push_back({static_cast<TokenId>(pick(vocab)), bias});
  }
  trial.params.seed = rng();
  trial.params.choice = pick(3);
  for (uint32_t i = pick(20); i > 0; --i) {
    trial.history.push_back(static_cast<TokenId>(pick(vocab)));
  }
  if (pick(3) == 0) {
    for (uint32_t i = pick(4); i > 0; --i) {
      trial.banned.push_back(static_cast<TokenId>(pick(vocab)));
    }
  }
  if (pick(4) == 0) {
    trial.mask.emplace(vocab);
    for (uint32_t i = 0; i < 1 + vocab / 2; ++i) {
      trial.mask->Allow(static_cast<TokenId>(pick(vocab)));
    }
  }
  return trial;
}

TEST(Sampler, EqualsTheOracleThatSortsEverything) {
  std::mt19937 rng(20240607);
  uint32_t compared = 0;
  for (const uint32_t vocab : {1u, 2u, 63u, 256u, 257u, 1000u, 5000u}) {
    Sampler sampler(vocab);
    for (uint32_t round = 0; round < 400; ++round) {
      const Trial t = RandomTrial(rng, vocab);
      const TokenMask* mask = t.mask ? &*t.mask : nullptr;
      const std::vector<float> panels = PanelMaxima(t.logits);
      const std::vector<float> before = t.logits;
      const uint32_t output_idx = rng() % 25;
      Oracle oracle(t.params, t.logits, t.history, t.banned, mask, output_idx);
      const Sample hinted = sampler.Run(t.params, t.logits.data(), panels.data(), t.history,
                                        output_idx, t.banned, mask);
      const Sample plain =
          sampler.Run(t.params, t.logits.data(), nullptr, t.history, output_idx, t.banned, mask);
      ASSERT_EQ(t.logits, before) << "the row was changed";
      ASSERT_EQ(hinted.id, plain.id) << "the hint changed the choice";
      ASSERT_EQ(hinted.ok, plain.ok);
      if (oracle.Sorted().empty()) {
        ASSERT_FALSE(plain.ok);
        continue;
      }
      ASSERT_TRUE(plain.ok);
      const TokenId expected = oracle.Choose(t.params, output_idx);
      if (oracle.near_boundary) continue;
      ++compared;
      ASSERT_EQ(plain.id, expected)
          << "vocab " << vocab << " round " << round << " T " << t.params.temperature << " k "
          << t.params.top_k << " p " << t.params.top_p << " min_p " << t.params.min_p;
    }
  }
  EXPECT_GT(compared, 2500u);  // boundary cases are the exception
}

TEST(Sampler, TiesGoToTheLowestId) {
  std::vector<float> logits(1000, 1.0f);
  logits[700] = logits[300] = logits[301] = 2.0f;
  Sampler sampler(1000);
  SamplingParams params = Plain();
  params.temperature = 0;
  EXPECT_EQ(sampler.Run(params, logits.data(), nullptr, {}, 0).id, 300);
  params.temperature = 1;
  params.top_k = 2;  // of three equal ones the two lowest survive
  std::set<TokenId> seen;
  for (uint32_t i = 0; i < 200; ++i) {
    seen.insert(sampler.Run(params, logits.data(), nullptr, {}, i).id);
  }
  EXPECT_EQ(seen, (std::set<TokenId>{300, 301}));
}

// Pearson's chi-square against the exact softmax. The bounds are the 1e-6 quantiles, the seeds are
// fixed: the test fails only when the distribution is wrong.
double ChiSquare(const SamplingParams& params, const std::vector<float>& logits, uint32_t draws) {
  Sampler sampler(static_cast<uint32_t>(logits.size()));
  std::vector<double> seen(logits.size(), 0);
  for (uint32_t i = 0; i < draws; ++i) {
    ++seen[static_cast<size_t>(sampler.Run(params, logits.data(), nullptr, {}, i).id)];
  }
  const Oracle oracle(params, logits, {}, {}, nullptr);
  double total = 0;
  for (const auto& k : oracle.kept) total += k.weight;
  double chi = 0;
  double expected_seen = 0;
  for (const auto& k : oracle.kept) {
    const double expected = draws * k.weight / total;
    const double difference = seen[static_cast<size_t>(k.id)] - expected;
    chi += difference * difference / expected;
    expected_seen += seen[static_cast<size_t>(k.id)];
  }
  EXPECT_EQ(expected_seen, draws) << "a token outside the kept set was drawn";
  return chi;
}

TEST(Sampler, DrawsFollowTheSoftmax) {
  std::vector<float> logits;
  for (int i = 0; i < 20; ++i) logits.push_back(0.1f * static_cast<float>(i));
  for (const uint64_t seed : {1ull, 2ull, 0xFFFFFFFFFFFFFFFFull}) {
    SamplingParams params = Plain();
    params.seed = seed;
    EXPECT_LT(ChiSquare(params, logits, 40000), 65.0);  // 19 degrees of freedom
    params.temperature = 0.5f;
    params.top_k = 8;
    EXPECT_LT(ChiSquare(params, logits, 40000), 41.0);  // 7
  }
}

TEST(Sampler, DrawsOfNeighbouringSeedsChoicesAndIndicesAreIndependent) {
  // Pairs of draws that differ by one in one coordinate fill a 16 x 16 grid evenly.
  const auto grid_chi = [](auto first, auto second) {
    std::array<double, 256> cells{};
    constexpr uint32_t kPairs = 65536;
    for (uint32_t i = 0; i < kPairs; ++i) {
      const auto row = static_cast<uint32_t>(first(i) * 16);
      const auto column = static_cast<uint32_t>(second(i) * 16);
      ++cells[row * 16 + column];
    }
    double chi = 0;
    for (const double cell : cells) chi += (cell - 256) * (cell - 256) / 256;
    return chi;
  };
  constexpr double kBound = 380;  // 255 degrees of freedom, 1e-6 quantile
  EXPECT_LT(grid_chi([](uint32_t i) { return UniformDraw(i, 0, 0); },
                     [](uint32_t i) { return UniformDraw(i + 1, 0, 0); }),
            kBound);
  EXPECT_LT(grid_chi([](uint32_t i) { return UniformDraw(7, 0, i); },
                     [](uint32_t i) { return UniformDraw(7, 0, i + 1); }),
            kBound);
  EXPECT_LT(grid_chi([](uint32_t i) { return UniformDraw(7, 0, i); },
                     [](uint32_t i) { return UniformDraw(7, 1, i); }),
            kBound);
  EXPECT_LT(grid_chi([](uint32_t i) { return UniformDraw(7, i, 3); },
                     [](uint32_t i) { return UniformDraw(8, i, 3); }),
            kBound);
}

TEST(Sampler, DrawIsAPureFunctionOfSeedChoiceAndIndex) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(5000);
  for (float& x : logits) x = normal(rng);
  SamplingParams params;
  params.seed = 99;
  Sampler fresh(5000);
  Sampler used(5000);
  for (uint32_t i = 0; i < 50; ++i) {  // unrelated work in between leaves no trace
    SamplingParams other = Plain();
    other.seed = i;
    used.Run(other, logits.data(), nullptr, {}, i * 7);
  }
  for (uint32_t i = 0; i < 50; ++i) {
    const TokenId expected = Sampler(5000).Run(params, logits.data(), nullptr, {}, i).id;
    EXPECT_EQ(fresh.Run(params, logits.data(), nullptr, {}, i).id, expected);
    EXPECT_EQ(used.Run(params, logits.data(), nullptr, {}, i).id, expected);
  }
}

TEST(Sampler, NonFiniteLogitsAreToldNeverSampled) {
  for (const float bad : {kNan, kInf, -kInf}) {
    for (const size_t where : {size_t{0}, size_t{255}, size_t{256}, size_t{599}}) {
      std::vector<float> logits(600, 0.5f);
      logits[where] = bad;
      Sampler sampler(600);
      for (const float temperature : {0.0f, 0.8f}) {
        SamplingParams params;
        params.temperature = temperature;
        EXPECT_FALSE(sampler.Run(params, logits.data(), nullptr, {}, 0).ok);
        std::vector<float> panels = {0.5f, 0.5f, 0.5f};
        panels[where / 256] = bad;
        EXPECT_FALSE(sampler.Run(params, logits.data(), panels.data(), {}, 0).ok);
      }
    }
  }
}

TEST(Sampler, EverythingMaskedIsToldAndOneAllowedTokenIsTaken) {
  const std::vector<float> logits(300, 1.0f);
  Sampler sampler(300);
  BitMask mask(300);
  EXPECT_FALSE(sampler.Run({}, logits.data(), nullptr, {}, 0, {}, &mask).ok);
  mask.Allow(299);
  const Sample sample = sampler.Run({}, logits.data(), nullptr, {}, 0, {}, &mask);
  EXPECT_TRUE(sample.ok);
  EXPECT_EQ(sample.id, 299);
  const std::vector<TokenId> banned = {299};
  EXPECT_FALSE(sampler.Run({}, logits.data(), nullptr, {}, 0, banned, &mask).ok);
}

TEST(Sampler, LogprobsAreThoseOfTheRawLogits) {
  std::mt19937 rng(11);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> logits(777);
  for (float& x : logits) x = normal(rng);
  SamplingParams params;
  params.temperature = 0.2f;
  params.repetition_penalty = 3.0f;
  params.num_logprobs = 20;
  const std::vector<TokenId> history = {1, 2, 3, 4, 5};
  Sampler sampler(777);
  const Sample sample = sampler.Run(params, logits.data(), nullptr, history, 0);
  double sum = 0;
  for (const float x : logits) sum += std::exp(double{x});
  const auto expected = [&](TokenId id) { return logits[static_cast<size_t>(id)] - std::log(sum); };
  EXPECT_NEAR(sample.logprob, expected(sample.id), 1e-5);
  SamplingParams raw = Plain();
  const std::vector<TokenId> order = Oracle(raw, logits, {}, {}, nullptr).Sorted();
  ASSERT_EQ(sample.top.size(), 20u);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(sample.top[i].id, order[i]);
    EXPECT_NEAR(sample.top[i].logprob, expected(order[i]), 1e-5);
  }
  Sampler tiny(3);
  EXPECT_EQ(tiny.Run(params, logits.data(), nullptr, {}, 0).top.size(), 3u);
}

TEST(Sampler, RepetitionPenaltyLooksBackOnlyAsFarAsAsked) {
  std::vector<float> logits(10, 0.0f);
  logits[4] = 2.0f;
  logits[5] = 1.5f;
  SamplingParams params = Plain();
  params.temperature = 0;
  params.repetition_penalty = 2.0f;
  params.repetition_last_n = 2;
  Sampler sampler(10);
  const std::vector<TokenId> near = {0, 4, 9};
  const std::vector<TokenId> far = {4, 9, 9};
  EXPECT_EQ(sampler.Run(params, logits.data(), nullptr, near, 0).id, 5);
  EXPECT_EQ(sampler.Run(params, logits.data(), nullptr, far, 0).id, 4);
  // Extreme penalties stay finite: the row is still sampled.
  params.repetition_penalty = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(sampler.Run(params, logits.data(), nullptr, near, 0).id, 4);
  params.repetition_penalty = std::numeric_limits<float>::max();
  logits.assign(10, -3.0f);
  params.repetition_last_n = 64;
  const std::vector<TokenId> all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const Sample sample = sampler.Run(params, logits.data(), nullptr, all, 0);
  EXPECT_TRUE(sample.ok);
  EXPECT_EQ(sample.id, 0);
}

// B040: a range test of the form "x < low" lets NaN through.
TEST(B040, EveryParameterOutOfRangeIsRefusedByName) {
  const auto refused = [](const char* name, auto set) {
    for (const float bad : {kNan, kInf, -kInf, -1.0f, -1e-9f, 1e6f}) {
      SamplingParams params;
      set(params, bad);
      const Status status = CheckSampling(params);
      if (std::string(name) == "repetition_penalty" && bad == 1e6f) continue;
      ASSERT_FALSE(status.ok()) << name << " " << bad;
      EXPECT_NE(status.error().message.find(name), std::string::npos) << status.error().message;
    }
  };
  refused("temperature", [](SamplingParams& p, float x) { p.temperature = x; });
  refused("top_p", [](SamplingParams& p, float x) { p.top_p = x; });
  refused("min_p", [](SamplingParams& p, float x) { p.min_p = x; });
  refused("typical_p", [](SamplingParams& p, float x) { p.typical_p = x; });
  refused("repetition_penalty", [](SamplingParams& p, float x) { p.repetition_penalty = x; });
  SamplingParams params;
  params.num_logprobs = 21;
  EXPECT_FALSE(CheckSampling(params).ok());
  params.num_logprobs = 20;
  EXPECT_TRUE(CheckSampling(params).ok());
  params.top_p = 0;
  EXPECT_FALSE(CheckSampling(params).ok());
}

TEST(B040, TinyTemperatureActsAsGreedy) {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(500);
  for (float& x : logits) x = normal(rng);
  Sampler sampler(500);
  SamplingParams greedy = Plain();
  greedy.temperature = 0;
  const TokenId best = sampler.Run(greedy, logits.data(), nullptr, {}, 0).id;
  for (const float temperature : {1e-6f, 1e-30f, std::numeric_limits<float>::denorm_min()}) {
    SamplingParams params = Plain();
    params.temperature = temperature;
    ASSERT_TRUE(CheckSampling(params).ok());
    for (uint32_t i = 0; i < 20; ++i) {
      EXPECT_EQ(sampler.Run(params, logits.data(), nullptr, {}, i).id, best);
    }
  }
}

// B041: top_k above the vocabulary is no index.
TEST(B041, TopKOfAnySizeIsServedAndOneEqualsGreedy) {
  constexpr uint32_t kVocab = 300;
  std::mt19937 rng(6);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(kVocab);
  for (float& x : logits) x = normal(rng);
  Sampler sampler(kVocab);
  const TokenId best =
      static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  for (const uint32_t top_k : {0u, 1u, kVocab - 1, kVocab, kVocab + 1, 9999999u, 2147483648u}) {
    for (const float top_p : {1e-9f, 1.0f}) {
      SamplingParams params = Plain();
      params.top_k = top_k;
      params.top_p = top_p;
      const Sample sample = sampler.Run(params, logits.data(), nullptr, {}, 3);
      ASSERT_TRUE(sample.ok);
      if (top_k == 1 || top_p < 0.5f) {
        EXPECT_EQ(sample.id, best);
      }
    }
  }
}

}  // namespace
}  // namespace kvrm
