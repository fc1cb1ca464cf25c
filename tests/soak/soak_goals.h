// What a long run is held to, a line a goal. Pure; thread-safe. Test code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/soak/soak.h"

namespace kvrm::testing {

struct SoakGoal {
  std::string text;
  std::string seen;
  std::optional<bool> met;  // nullopt: this run cannot tell, `seen` says why
};

// Answered requests below which a run cannot tell of its memory: what is allocated once weighs more
// than a leak.
inline constexpr uint64_t kLeastToTellALeak = 10'000;

std::vector<SoakGoal> SoakGoals(const SoakOptions& options, const SoakReport& report);

// "goal, 0 pages leaked: met (0)", one line each.
std::string SoakGoalsText(const std::vector<SoakGoal>& goals);

}  // namespace kvrm::testing
