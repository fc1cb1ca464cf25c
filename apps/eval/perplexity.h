// The arithmetic of perplexity, apart from the model: sums of negative log-likelihoods.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"

namespace kvrm::cli {

// -log softmax(logits)[target], the sum taken in double. `logits` [vocab], all finite.
double NegativeLogLikelihood(std::span<const float> logits, TokenId target);

class PerplexitySum {
 public:
  void Add(double negative_log_likelihood) {
    sum_ += negative_log_likelihood;
    sum_of_squares_ += negative_log_likelihood * negative_log_likelihood;
    ++count_;
  }
  uint64_t count() const { return count_; }
  // exp of the mean; Requires: count() > 0.
  double Perplexity() const;
  // One standard error of Perplexity(), by the delta method; 0 below two values.
  double StandardError() const;

 private:
  double sum_ = 0, sum_of_squares_ = 0;
  uint64_t count_ = 0;
};

}  // namespace kvrm::cli
