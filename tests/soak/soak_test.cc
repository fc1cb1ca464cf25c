// Requests without end. A slice here; 100,000 with tools/soak.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/soak/scale.h"
#include "tests/soak/soak.h"

namespace kvrm::testing {
namespace {

TEST(Soak, AnswersAreRightNobodyIsLostAndNothingLeaks) {
  const uint64_t answered = ScaleOf("KVRM_SOAK_REQUESTS", 400);
  const SoakReport report = RunSoak({.answered = answered});
  std::fputs(SoakText(report).c_str(), stdout);
  EXPECT_GE(report.answered, answered);
  EXPECT_EQ(report.answered + report.cancelled, report.submitted);
  EXPECT_EQ(report.failed, 0u);
  EXPECT_GE(100 * report.cancelled, 25 * report.submitted);
  EXPECT_EQ(report.wrong_length, 0u);
  EXPECT_GE(report.most_wanted_tokens, 10 * report.kv_tokens);
  EXPECT_GT(report.preemptions, 0u);
  EXPECT_GT(report.compared, 0u);
  EXPECT_EQ(report.differed, 0u);
  EXPECT_TRUE(report.violations.empty());
  EXPECT_EQ(report.leaked_pages, 0u);
  if (answered < 10'000) return;  // what is allocated once weighs more than a leak
  EXPECT_LE(100 * report.heap_bytes_late, 101 * report.heap_bytes_early);
  EXPECT_LE(100 * report.resident_bytes_late, 101 * report.resident_bytes_early);
}

}  // namespace
}  // namespace kvrm::testing
