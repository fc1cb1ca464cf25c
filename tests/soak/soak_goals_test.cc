#include "tests/soak/soak_goals.h"

#include <gtest/gtest.h>

namespace kvrm::testing {
namespace {

// A run of which each goal stands at its limit.
SoakReport ReportAtTheLimits() {
  SoakReport report;
  report.submitted = 150'000;
  report.answered = 100'000;
  report.cancelled = 50'000;
  report.preemptions = 1;
  report.compared = 1000;
  report.books_checks = 1;
  report.kv_tokens = 4000;
  report.most_wanted_tokens = 40'000;
  report.heap_bytes_early = report.resident_bytes_early = 1'000'000;
  report.heap_bytes_late = report.resident_bytes_late = 1'009'999;
  return report;
}

constexpr SoakOptions kFull{.answered = 100'000};

// The goals that are missed once `change` was made, by what their lines begin with.
template <class ChangeFn>
std::vector<std::string> MissedAfter(const ChangeFn& change) {
  SoakReport report = ReportAtTheLimits();
  change(report);
  std::vector<std::string> missed;
  for (const SoakGoal& goal : SoakGoals(kFull, report)) {
    if (goal.met == false) missed.push_back(goal.text.substr(0, goal.text.find(' ', 9)));
  }
  return missed;
}

using Names = std::vector<std::string>;

TEST(SoakGoals, AreMetAtTheirLimits) {
  const auto goals = SoakGoals(kFull, ReportAtTheLimits());
  EXPECT_EQ(goals.size(), 10u);
  for (const SoakGoal& goal : goals) EXPECT_EQ(goal.met, true) << SoakGoalsText({goal});
}

TEST(SoakGoals, EachIsMissedAloneBehindItsLimit) {
  EXPECT_EQ(MissedAfter([](SoakReport& r) { --r.answered, ++r.cancelled; }),
            Names{"100000 requests"});
  EXPECT_EQ(MissedAfter([](SoakReport& r) { ++r.submitted; }), Names{"each request"}) << "lost";
  EXPECT_EQ(MissedAfter([](SoakReport& r) { ++r.failed, ++r.submitted; }), Names{"each request"});
  EXPECT_EQ(MissedAfter([](SoakReport& r) { ++r.wrong_length; }), Names{"each request"});
  EXPECT_EQ(MissedAfter([](SoakReport& r) { r.cancelled = 42'000, r.submitted = 142'000; }),
            Names{"at least 30"});
  EXPECT_EQ(MissedAfter([](SoakReport& r) { --r.most_wanted_tokens; }), Names{"10 times over"});
  EXPECT_EQ(MissedAfter([](SoakReport& r) { r.preemptions = 0; }), Names{"pages run"});
  EXPECT_EQ(MissedAfter([](SoakReport& r) { ++r.differed; }), Names{"answers equal"});
  EXPECT_EQ(MissedAfter([](SoakReport& r) { --r.compared; }), Names{"answers equal"});
  EXPECT_EQ(MissedAfter([](SoakReport& r) { r.violations = {"PAGER-4"}; }),
            Names{"books balanced"});
  EXPECT_EQ(MissedAfter([](SoakReport& r) { r.books_checks = 0; }), Names{"books balanced"});
  EXPECT_EQ(MissedAfter([](SoakReport& r) { r.leaked_pages = 1; }), Names{"0 pages leaked"});
  EXPECT_EQ(MissedAfter([](SoakReport& r) { ++r.heap_bytes_late; }), Names{"heap at rest"});
  EXPECT_EQ(MissedAfter([](SoakReport& r) { ++r.resident_bytes_late; }), Names{"resident memory"});
}

TEST(SoakGoals, EachIsALineThatSaysWhatWasSeen) {
  SoakReport report = ReportAtTheLimits();
  report.leaked_pages = 3;
  report.heap_bytes_early = 0;
  const std::string text = SoakGoalsText(SoakGoals(kFull, report));
  EXPECT_NE(text.find("goal, 100000 requests answered: met (100000)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("goal, 0 pages leaked: MISSED (3)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("its end: not measured (nothing tells it here)\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("33.33 %"), std::string::npos) << text;
}

TEST(SoakGoals, AShortRunSaysNothingOfMemory) {
  SoakReport report = ReportAtTheLimits();
  report.answered = kLeastToTellALeak - 1;
  report.compared = report.answered;
  report.heap_bytes_late = 2 * report.heap_bytes_early;
  uint32_t not_measured = 0;
  for (const SoakGoal& goal : SoakGoals({.answered = 1}, report)) {
    not_measured += goal.met.has_value() ? 0 : 1;
  }
  EXPECT_EQ(not_measured, 2u);
}

}  // namespace
}  // namespace kvrm::testing
