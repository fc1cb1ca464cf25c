#include "tests/soak/soak_goals.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

namespace kvrm::testing {
namespace {

constexpr double kLeastCancelledPercent = 30, kLeastComparedPercent = 1, kMostGrowthPercent = 1;
constexpr uint64_t kLeastOverCapacity = 10;

double PercentOf(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string Percent(double value) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(2) << value << " %";
  return text.str();
}

SoakGoal Growth(const char* what, uint64_t answered, uint64_t early, uint64_t late) {
  SoakGoal goal{std::string(what) +
                    " at rest grows by less than 1 % from a tenth of the run to its "
                    "end",
                "", std::nullopt};
  if (answered < kLeastToTellALeak) {
    goal.seen = "takes " + std::to_string(kLeastToTellALeak) + " requests";
  } else if (early == 0) {
    goal.seen = "nothing tells it here";
  } else {
    const double percent = PercentOf(late, early) - 100;
    goal.met = percent < kMostGrowthPercent;
    goal.seen = Percent(percent);
  }
  return goal;
}

SoakGoal NobodyIsLost(const SoakReport& report) {
  const uint64_t told = report.answered + report.cancelled + report.failed;
  const uint64_t lost = report.submitted - std::min(told, report.submitted);
  return {"each request is answered as long as it asked, or was cancelled",
          std::to_string(lost) + " lost, " + std::to_string(report.failed) + " failed, " +
              std::to_string(report.wrong_length) + " of a wrong length",
          told == report.submitted && report.failed == 0 && report.wrong_length == 0};
}

}  // namespace

std::vector<SoakGoal> SoakGoals(const SoakOptions& options, const SoakReport& report) {
  const double cancelled = PercentOf(report.cancelled, report.submitted);
  const double compared = PercentOf(report.compared, report.answered);
  std::vector<SoakGoal> goals;
  goals.push_back({std::to_string(options.answered) + " requests answered",
                   std::to_string(report.answered), report.answered >= options.answered});
  goals.push_back(NobodyIsLost(report));
  goals.push_back({"at least 30 % cancelled at random moments", Percent(cancelled),
                   cancelled >= kLeastCancelledPercent});
  goals.push_back({"10 times over capacity",
                   std::to_string(report.most_wanted_tokens) + " token places wanted of " +
                       std::to_string(report.kv_tokens),
                   report.most_wanted_tokens >= kLeastOverCapacity * report.kv_tokens});
  goals.push_back({"pages run out and sequences give way",
                   std::to_string(report.preemptions) + " preemptions", report.preemptions > 0});
  goals.push_back({"answers equal their solo runs, at least 1 % compared",
                   std::to_string(report.differed) + " of " + std::to_string(report.compared) +
                       " differ, " + Percent(compared),
                   report.differed == 0 && compared >= kLeastComparedPercent});
  goals.push_back({"books balanced",
                   std::to_string(report.violations.size()) + " violations, " +
                       std::to_string(report.books_checks) + " looks",
                   report.violations.empty() && report.books_checks > 0});
  goals.push_back(
      {"0 pages leaked", std::to_string(report.leaked_pages), report.leaked_pages == 0});
  goals.push_back(Growth("heap", report.answered, report.heap_bytes_early, report.heap_bytes_late));
  goals.push_back(Growth("resident memory", report.answered, report.resident_bytes_early,
                         report.resident_bytes_late));
  return goals;
}

std::string SoakGoalsText(const std::vector<SoakGoal>& goals) {
  std::string text;
  for (const SoakGoal& goal : goals) {
    const char* verdict = !goal.met ? "not measured" : *goal.met ? "met" : "MISSED";
    text += "goal, " + goal.text + ": " + verdict + " (" + goal.seen + ")\n";
  }
  return text;
}

}  // namespace kvrm::testing
