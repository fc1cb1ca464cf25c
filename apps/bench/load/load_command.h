// What the commands that run a workload share: its file and traces, the report's frame, where the
// results go. Thread-compatible.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "bench/load/load_report.h"
#include "bench/load/load_run.h"
#include "bench/load/server_probe.h"
#include "bench/load/trace.h"
#include "bench/load/workload.h"
#include "options/option_values.h"

namespace kvrm::cli {

struct LoadJob {
  Workload workload;
  std::vector<Trace> traces;  // one a source, empty for those that need none
};
// The workload that `path` holds, with --set and --speed, and its traces: beside the workload, else
// in --data. Traces that are sorted get a note on standard error.
Result<LoadJob> ReadLoadJob(const OptionValues& values, const std::string& path);
// The traces that `workload` names, likewise.
Result<LoadJob> WithTraces(const OptionValues& values, Workload workload);
// --set and --speed as they were given.
std::vector<std::string> LoadJobWords(const OptionValues& values);

// Machine, date and --max-others of a report.
void DescribeSitting(const OptionValues& values, LoadReport& report);

struct ServerRun {
  LoadReport report;  // but for its command and url
  LoadRun run;
};
// Puts the job on whoever answers. Ctrl-C ends it early. `server_pid`: the process that answers, if
// it runs here, whose CPU time (with that of the processes it started) then is not others'; 0:
// none. Errors: those of RunLoad; no such process.
Result<ServerRun> RunOnBackend(const OptionValues& values, const LoadJob& job, LoadBackend& backend,
                               const CountedWords& words, int64_t server_pid);
// A server, in words that its tokenizer counts as one if it says.
Result<ServerRun> RunOnServer(const OptionValues& values, const LoadJob& job,
                              const LoadTarget& target, int64_t server_pid);

Status WriteFile(const char* option, const std::string& path, const std::string& text);
// Before the load, so that no run is lost to a wrong path: --samples and --html.
Status CheckWritable(const OptionValues& values);
// --samples and --html of one run.
Status WriteRunFiles(const OptionValues& values, const LoadReport& report, const LoadRun& run);

}  // namespace kvrm::cli
