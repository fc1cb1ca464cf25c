#include "eval/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace kvrm::cli {
namespace {

TEST(Perplexity, EqualLogitsOverNTokensGivePerplexityN) {
  const std::vector<float> logits(10, 3.5f);
  PerplexitySum sum;
  for (TokenId target = 0; target < 10; ++target) sum.Add(NegativeLogLikelihood(logits, target));
  EXPECT_NEAR(sum.Perplexity(), 10.0, 1e-6);
  EXPECT_NEAR(sum.StandardError(), 0.0, 1e-6);
}

TEST(Perplexity, LargeLogitsDoNotOverflow) {
  const std::vector<float> logits = {1000.0f, 0.0f, -1000.0f};
  EXPECT_NEAR(NegativeLogLikelihood(logits, 0), 0.0, 1e-12);
  EXPECT_NEAR(NegativeLogLikelihood(logits, 1), 1000.0, 1e-9);
  EXPECT_NEAR(NegativeLogLikelihood(logits, 2), 2000.0, 1e-9);
}

TEST(Perplexity, IsTheExpOfTheMean) {
  PerplexitySum sum;
  sum.Add(1.0);
  sum.Add(3.0);
  EXPECT_NEAR(sum.Perplexity(), std::exp(2.0), 1e-9);
  // Values 1 and 3: variance 1, one degree of freedom.
  EXPECT_NEAR(sum.StandardError(), std::exp(2.0), 1e-9);
  EXPECT_EQ(sum.count(), 2u);
}

}  // namespace
}  // namespace kvrm::cli
