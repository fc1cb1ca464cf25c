// What a run's reader gets: text, JSON, a page with plots, and the raw samples. Pure.
#pragma once

#include <boost/json.hpp>
#include <optional>
#include <string>

#include "bench/load/figures.h"
#include "bench/load/load_run.h"
#include "bench/load/workload.h"

namespace kvrm::cli {

struct LoadReport {
  std::string command;  // that gives this run again
  std::string url, model;
  uint32_t context_tokens = 0;  // that lengths were cut to; 0: they were not
  bool counted_words = false;   // by the server's own tokenizer
  Workload workload;
  LoadFigures figures;
  uint64_t dropped_turns = 0;
  bool interrupted = false;
  std::optional<double> others_percent;      // the quiet gate
  std::optional<double> server_cpu_percent;  // of one core; then others_percent is without it
  double max_others_percent = 0;
  boost::json::object machine;
  std::string machine_text;  // one line
  std::string date;

  bool noisy() const { return others_percent && *others_percent > max_others_percent; }
};

std::string LoadText(const LoadReport& report);
boost::json::object LoadJson(const LoadReport& report);
// One page that needs nothing else: plots as inline SVG, no script.
std::string LoadHtml(const LoadReport& report, const LoadRun& run);
// One line of JSON, without its end; times in microseconds since the run's start.
std::string SampleLine(const RequestRecord& record, const LoadRun& run, const Workload& workload);

}  // namespace kvrm::cli
