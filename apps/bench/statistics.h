// Median and spread of a few samples. Pure.
#pragma once

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace kvrm::cli {

struct Summary {
  double median = 0, min = 0, max = 0;
  // (max - min) / median
  double spread() const { return median > 0 ? (max - min) / median : 0; }
};

// Requires: samples not empty.
inline Summary Summarize(std::vector<double> samples) {
  KVRM_CHECK(!samples.empty(), "a summary is of at least one sample");
  std::sort(samples.begin(), samples.end());
  const size_t middle = samples.size() / 2;
  const double median =
      samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
  return {median, samples.front(), samples.back()};
}

}  // namespace kvrm::cli
