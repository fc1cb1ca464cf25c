#include "pager/written_marks.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace kvrm {
namespace {

TEST(WrittenMarks, APlaceIsWrittenWhenItsEpochHasCompleted) {
  WrittenMarks marks;
  EXPECT_EQ(marks.Completed(0), 0u);
  marks.Add(1, 10, /*completed_epoch=*/0);
  EXPECT_EQ(marks.Completed(0), 0u);
  EXPECT_EQ(marks.Completed(1), 10u);
  marks.Add(2, 20, 0);
  EXPECT_EQ(marks.Completed(1), 10u);
  EXPECT_EQ(marks.Completed(7), 20u);
}

TEST(WrittenMarks, WhatWasShortenedIsNotWrittenThoughItWasOnce) {
  WrittenMarks marks;
  marks.Add(1, 10, 0);
  marks.Add(2, 20, 0);
  marks.Shorten(5);
  marks.Add(3, 30, 1);  // places 5..29 are new
  EXPECT_EQ(marks.Completed(1), 5u);
  EXPECT_EQ(marks.Completed(2), 5u);
  EXPECT_EQ(marks.Completed(3), 30u);
  marks.Shorten(0);
  EXPECT_EQ(marks.Completed(3), 0u);
}

// Against the epoch that wrote each place.
TEST(WrittenMarks, ExactUpToThreeEpochsBehindAndNeverTooMuch) {
  std::mt19937 random(1);
  WrittenMarks marks;
  std::vector<uint64_t> written_in;  // [places]
  uint64_t completed = 0;
  for (uint64_t epoch = 1; epoch < 20'000; ++epoch) {
    if (random() % 3 != 0) {
      if (random() % 4 == 0) {
        written_in.resize(random() % (written_in.size() + 1));
        marks.Shorten(static_cast<uint32_t>(written_in.size()));
      }
      written_in.resize(written_in.size() + random() % 3, epoch);
      marks.Add(epoch, static_cast<uint32_t>(written_in.size()), completed);
    }
    const uint64_t behind = random() % (epoch / 5'000 + 2);  // 0..1, later 0..4
    completed = std::max(completed, epoch - std::min(epoch, behind));
    uint32_t expected = 0;
    while (expected < written_in.size() && written_in[expected] <= completed) ++expected;
    ASSERT_LE(marks.Completed(completed), expected);
    ASSERT_TRUE(epoch >= 10'000 || marks.Completed(completed) == expected) << epoch;
  }
}

}  // namespace
}  // namespace kvrm
