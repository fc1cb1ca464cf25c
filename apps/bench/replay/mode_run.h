// One mode under a workload, in this process: what its users saw, and what it held for them.
// Thread-compatible.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/load/load_command.h"
#include "bench/load/load_report.h"
#include "engine/gap_causes.h"
#include "session/session.h"

namespace kvrm::cli {

inline constexpr double kMostControlShare = 0.005;  // law I3's goal

struct ModeRun {
  std::string name;     // of the mode; with "+ strict" where all rows are computed
  std::string refused;  // why it cannot be; then nothing below is set
  LoadReport report;
  LoadRun run;
  uint32_t slots = 0, ctx = 0;
  uint64_t kv_bytes = 0;
  uint64_t mean_tokens = 0;  // of the run's requests, prompt and answer
  uint64_t holds = 0;        // requests of so many tokens for which kv_bytes are enough
  uint64_t reserved_ready_bytes = 0, reserved_most_bytes = 0;
  uint64_t resident_ready_bytes = 0, resident_end_bytes = 0;  // as the system counts
  uint32_t most_running = 0;
  uint64_t preempted = 0;
  double rows_computed_per_row = 0;  // 1 but for strict shapes
  double control_share = 0;          // as EngineMetrics::control_share
  int64_t max_itl_us = 0;            // the gap budget; 0 = none
  GapCounters gaps;                  // over it, by cause (law I7)

  bool control_goal_met() const { return control_share < kMostControlShare; }
};

// Loads the model in `options`' mode and runs the workload. Modes that refuse the options come back
// with `refused`. Errors: the workload does not fit the context.
Result<ModeRun> RunMode(const OptionValues& values, const RuntimeOptions& options,
                        const LoadJob& job);

// One row a mode; ratios are to the first that ran.
std::string ModesText(const std::vector<ModeRun>& runs);
boost::json::object ModeJson(const ModeRun& run);

}  // namespace kvrm::cli
