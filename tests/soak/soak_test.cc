// Requests without end. A slice here; 100,000 with tools/soak.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/soak/scale.h"
#include "tests/soak/soak.h"
#include "tests/soak/soak_goals.h"

namespace kvrm::testing {
namespace {

TEST(Soak, AnswersAreRightNobodyIsLostAndNothingLeaks) {
  const SoakOptions options{.answered = ScaleOf("KVRM_SOAK_REQUESTS", 400)};
  const SoakReport report = RunSoak(options);
  const std::vector<SoakGoal> goals = SoakGoals(options, report);
  std::printf("%s\n%s", SoakText(report).c_str(), SoakGoalsText(goals).c_str());
  for (const SoakGoal& goal : goals) EXPECT_NE(goal.met, false) << SoakGoalsText({goal});
}

}  // namespace
}  // namespace kvrm::testing
