// The one result schema behind every benchmark: samples, their median and spread, the floor beside
// them, who else used the machine, and on what it was taken. Text and JSON come from here alone.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/machine.h"
#include "bench/table.h"

namespace kvrm::cli {

inline constexpr int kResultSchema = 1;

// What the machine allows at most, and from what it was reckoned. Absent where it could not be
// measured.
struct Floor {
  double ms = 0;             // the least time of what one sample's unit of work does
  uint64_t bytes = 0;        // read, of a memory-bound row; else 0
  uint64_t kv_bytes = 0;     // of these, keys and values; the rest are weights
  double operations = 0;     // done, of a compute-bound row; else 0
  double ceiling_per_s = 0;  // bytes or operations per second, measured beside the figure
};

struct BenchResult {
  std::string test;     // as llama-bench names it: "pp512", "tg128 @ d512", "tg128 @ d512 x 8"
  std::string command;  // that gives this row again
  std::string model;
  std::string encoding;
  std::string executor;
  uint32_t threads = 0;
  std::vector<double> tokens_per_s;  // one a repeat
  std::vector<double> ms;            // one a repeat: of a decode step, or of the whole prompt
  std::optional<Floor> floor;
  // The most that the process had resident when the last sample was taken; 0: not told.
  uint64_t peak_resident_bytes = 0;
  std::optional<double> others_percent;  // the quiet gate
  double max_others_percent = 0;         // above it the row is marked noisy
  std::string date;

  bool noisy() const { return others_percent && *others_percent > max_others_percent; }
  // Floor over measured time: 1 = the machine's limit.
  std::optional<double> floor_share() const;
};

boost::json::object ToJson(const BenchResult& result, const Machine& machine);
// Median, min, max, spread and the samples themselves. Requires: a sample.
boost::json::object SummaryJson(const std::vector<double>& samples);
// A table in llama-bench's columns, with floor, share and others behind them.
std::string ToText(const std::vector<BenchResult>& results, const Machine& machine);

}  // namespace kvrm::cli
