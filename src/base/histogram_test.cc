#include "base/histogram.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

namespace kvrm {
namespace {

uint64_t CountOf(const HistogramCounts& counts) {
  return std::accumulate(counts.buckets.begin(), counts.buckets.end(), uint64_t{0});
}

TEST(Histogram, ADurationLiesInTheBucketOfTheFirstBoundThatHoldsIt) {
  for (size_t i = 0; i < kHistogramBoundsUs.size(); ++i) {
    Histogram histogram;
    histogram.Add(kHistogramBoundsUs[i]);
    EXPECT_EQ(histogram.Load().buckets[i], 1u) << kHistogramBoundsUs[i];
    histogram.Add(kHistogramBoundsUs[i] + 1);
    EXPECT_EQ(histogram.Load().buckets[i + 1], 1u) << kHistogramBoundsUs[i];
    EXPECT_EQ(histogram.Load().sum_us, 2 * kHistogramBoundsUs[i] + 1);
  }
}

TEST(Histogram, WhatLiesOutsideTheBoundsIsCountedToo) {
  Histogram histogram;
  histogram.Add(0);
  histogram.Add(-5);
  histogram.Add(int64_t{1} << 60);
  const HistogramCounts counts = histogram.Load();
  EXPECT_EQ(counts.buckets.front(), 2u);
  EXPECT_EQ(counts.buckets.back(), 1u);
  EXPECT_EQ(counts.sum_us, int64_t{1} << 60);
}

TEST(Histogram, AReaderSeesCountsThatOnlyGrowAndAllOfThemInTheEnd) {
  Histogram histogram;
  constexpr uint64_t kAdds = 200'000;
  std::thread writer([&] {
    for (uint64_t i = 0; i < kAdds; ++i) histogram.Add(static_cast<int64_t>(i % 5'000));
  });
  uint64_t last = 0;
  while (last < kAdds) {
    const uint64_t count = CountOf(histogram.Load());
    ASSERT_GE(count, last);
    last = count;
  }
  writer.join();
  EXPECT_EQ(last, kAdds);
}

}  // namespace
}  // namespace kvrm
