// How far two lists of numbers are apart, for tests that allow some distance. Test code only.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>

namespace kvrm::testing {

// The largest |got - wanted|. Infinity where one is no number, or the lists differ in length: a
// maximum by std::max passes over a NaN, and what computes nothing would be equal to anything.
template <class Got, class Wanted>
double LargestDifference(const Got& got, const Wanted& wanted) {
  double worst = got.size() == wanted.size() ? 0 : std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < got.size() && i < wanted.size(); ++i) {
    const double difference =
        std::fabs(static_cast<double>(got[i]) - static_cast<double>(wanted[i]));
    if (!(difference <= worst)) worst = difference;
    if (std::isnan(worst)) return std::numeric_limits<double>::infinity();
  }
  return worst;
}

// The largest |number|, by the same rule.
template <class Numbers>
double LargestNumber(const Numbers& numbers) {
  double worst = 0;
  for (const auto number : numbers) {
    const double size = std::fabs(static_cast<double>(number));
    if (std::isnan(size)) return std::numeric_limits<double>::infinity();
    if (size > worst) worst = size;
  }
  return worst;
}

}  // namespace kvrm::testing
