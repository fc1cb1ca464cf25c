// What warm-up measures for the scheduler's cost model: counts, never how long anything took.
#include <gtest/gtest.h>

#include "exec/test_stack.h"

namespace kvrm::testing {
namespace {

TEST(WarmUp, MeasuresACurveOfRowCountsForAnyNumberOfSlots) {
  for (const uint32_t slots : {1u, 2u, 16u, 32u, 40u}) {
    TestStack stack({.spec = SmallSpec(), .max_slots = slots});
    const ExecutorInfo& info = stack.executor().info();
    std::vector<uint32_t> near;
    for (const StepSample& sample : info.step_samples) {
      EXPECT_GE(sample.us, 1);
      EXPECT_LE(sample.rows, info.max_rows[kNumPrograms - 1]);
      if (sample.position == 0) near.push_back(sample.rows);
    }
    ASSERT_GE(near.size(), 2u) << slots << " slots: one row count tells nothing of a second row";
    EXPECT_EQ(near.front(), 1u);
    for (size_t i = 1; i < near.size(); ++i) EXPECT_GT(near[i], near[i - 1]) << slots << " slots";
  }
}

}  // namespace
}  // namespace kvrm::testing
