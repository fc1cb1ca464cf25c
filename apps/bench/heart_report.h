// What `kvrm bench heart` found, as one JSON of the result schema and as tables. Pure.
#pragma once

#include <boost/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/heart.h"
#include "bench/heart_churn.h"
#include "bench/machine.h"

namespace kvrm::cli {

struct HeartReport {
  std::string sizes;  // HeartSizes::name
  int check_tier = 0;
  std::string command;
  std::vector<VerbRow> verbs;
  StepGrid steps;
  std::vector<MatchRow> match;
  std::vector<ChurnRow> churn;
  std::optional<double> others_percent;
  double max_others_percent = 0;
  std::string date;

  bool noisy() const { return others_percent && *others_percent > max_others_percent; }
};

// A law of the issue as a number that was measured; nullopt: this run did not measure it.
struct HeartGoal {
  std::string name;
  std::string unit;
  double limit = 0;
  bool at_least = false;   // false: measured < limit
  bool inclusive = false;  // of the limit, where the goal is an upper one
  std::optional<double> measured;

  bool met() const;             // Requires: measured
  std::string Verdict() const;  // "met", "MISSED", "not measured"
};
// Always the same goals in the same order.
std::vector<HeartGoal> GoalsOf(const HeartReport& report);

boost::json::object ToJson(const HeartReport& report, const Machine& machine);
std::string ToText(const HeartReport& report, const Machine& machine);

}  // namespace kvrm::cli
