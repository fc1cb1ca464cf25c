#include "base/largest_difference.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace kvrm::testing {
namespace {

double Of(const std::vector<float>& got, const std::vector<float>& wanted) {
  return LargestDifference(got, wanted);
}

TEST(LargestDifference, IsTheLargestOfAll) {
  EXPECT_EQ(Of({1, 2, 3}, {1, 4.5f, 2}), 2.5);
  EXPECT_EQ(Of({}, {}), 0);
  const std::vector<float> numbers = {1, -7, 3};
  EXPECT_EQ(LargestNumber(numbers), 7);
}

TEST(LargestDifference, WhatIsNoNumberIsFartherThanAnything) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  constexpr double kFar = std::numeric_limits<double>::infinity();
  for (const std::vector<float>& bad :
       {std::vector<float>{nan, 2, 3}, {1, nan, 3}, {1, 2, nan}, {inf, 2, 3}, {1, 2, -inf}}) {
    EXPECT_EQ(Of(bad, {1, 2, 3}), kFar);
    EXPECT_EQ(Of({1, 2, 3}, bad), kFar);
    EXPECT_EQ(Of(bad, bad), kFar);
    EXPECT_EQ(LargestNumber(bad), kFar);
  }
  EXPECT_EQ(Of({1, 2}, {1, 2, 3}), kFar);
  EXPECT_EQ(Of({1, 2, 3}, {1, 2}), kFar);
}

}  // namespace
}  // namespace kvrm::testing
