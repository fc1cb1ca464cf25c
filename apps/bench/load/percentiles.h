// Percentiles over all samples: kept whole and sorted, no buckets, no interpolation. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"

namespace kvrm::cli {

class Distribution {
 public:
  Distribution() = default;
  explicit Distribution(std::vector<double> samples) : sorted_(std::move(samples)) {
    std::sort(sorted_.begin(), sorted_.end());
  }

  bool empty() const { return sorted_.empty(); }
  size_t size() const { return sorted_.size(); }
  const std::vector<double>& sorted() const { return sorted_; }

  // The nearest rank: the smallest sample that at least `per_mille` of 1,000 samples do not exceed;
  // 1,000 is the largest, 0 the smallest. A whole number, because 99.9 as a double is a bit more
  // and its rank of 1,000 samples would be the last. Requires: not empty, per_mille <= 1000.
  double PerMille(uint32_t per_mille) const {
    KVRM_CHECK(!sorted_.empty() && per_mille <= 1000, "a percentile is of samples, at most 100");
    const size_t rank = (sorted_.size() * per_mille + 999) / 1000;
    return sorted_[rank == 0 ? 0 : rank - 1];
  }

 private:
  std::vector<double> sorted_;
};

}  // namespace kvrm::cli
