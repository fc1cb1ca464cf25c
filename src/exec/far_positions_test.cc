// B065: what position scaling does near the beginning of a text it does far out as well. (That it
// does the right thing near the beginning is tests/golden.)
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "exec/test_stack.h"
#include "model/yarn.h"

namespace kvrm::testing {
namespace {

constexpr uint32_t kTail = 64;  // more than two layers with a window of 16 see

std::vector<TokenId> RandomTokens(std::mt19937& random, uint32_t count, uint32_t vocab) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % vocab);
  return tokens;
}

struct Scaling {
  const char* name;
  std::vector<float> factors;
};

// Rotation counts distances alone: the same last tokens give the same logits wherever they stand.
TEST(B065, TheSameWindowGivesTheSameLogitsAtAnyPosition) {
  const Scaling kinds[] = {
      {"none", {}},
      {"linear", std::vector<float>(8, 4.0f)},
      {"llama3", {1, 1, 1, 1.5f, 2.3f, 8, 8, 8}},
      {"yarn", YarnDivisors({.factor = 4, .original_context = 8192}, 500'000, 16)},
  };
  for (const Scaling& kind : kinds) {
    SCOPED_TRACE(kind.name);
    TestStackConfig config;
    config.spec.hidden = config.spec.ffn = 32;
    config.spec.heads = 2;
    config.spec.kv_heads = 1;
    config.spec.context = 32'768;
    config.spec.window = 16;
    config.spec.rope_base = 500'000;
    config.spec.rope_factors = kind.factors;
    config.spec.linear_type = config.spec.embedding_type = DType::kF32;
    config.load.weights = WeightChoice::kF32;
    config.kv_format = KvFormat::kF32;
    TestStack stack(config);
    std::mt19937 random(7);
    const uint32_t vocab = stack.model().config().vocab;
    const std::vector<TokenId> tail = RandomTokens(random, kTail, vocab);
    const SeqId seq = stack.Open();
    const std::vector<float> near = stack.Logits(stack.Step({{seq, tail}}), 0);
    float greatest = 0;
    for (const float logit : near) greatest = std::max(greatest, std::fabs(logit));
    uint32_t position = kTail;
    for (const uint32_t last : {127u, 5'000u, 9'000u, 20'000u}) {
      while (position < last + 1 - kTail) {
        const uint32_t count = std::min(kTail, last + 1 - kTail - position);
        stack.Step({{seq, RandomTokens(random, count, vocab)}});
        position += count;
      }
      const std::vector<float> far = stack.Logits(stack.Step({{seq, tail}}), 0);
      position += kTail;
      float worst = 0;
      for (uint32_t i = 0; i < vocab; ++i) worst = std::max(worst, std::fabs(far[i] - near[i]));
      EXPECT_LE(worst, 1e-5f * greatest) << "the last token at " << position - 1;
    }
  }
}

}  // namespace
}  // namespace kvrm::testing
