#include "eval/perplexity.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace kvrm::cli {

double NegativeLogLikelihood(std::span<const float> logits, TokenId target) {
  KVRM_CHECK(target >= 0 && static_cast<size_t>(target) < logits.size(),
             "a target lies in the vocabulary");
  const float max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float logit : logits) sum += std::exp(logit - max);
  return std::log(sum) - (static_cast<double>(logits[static_cast<size_t>(target)]) - max);
}

double PerplexitySum::Perplexity() const {
  KVRM_CHECK(count_ > 0, "perplexity is of at least one token");
  return std::exp(sum_ / static_cast<double>(count_));
}

double PerplexitySum::StandardError() const {
  if (count_ < 2) return 0;
  const auto n = static_cast<double>(count_);
  const double mean = sum_ / n;
  const double variance = std::max(0.0, sum_of_squares_ / n - mean * mean);
  return std::sqrt(variance / (n - 1)) * std::exp(mean);
}

}  // namespace kvrm::cli
