// kvrm bench replay: a workload of the load generator against the engine in this process, mode by
// mode, without HTTP.
#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/replay/mode_run.h"
#include "bench/result.h"
#include "bench/subprocess.h"
#include "kvrm/commands.h"
#include "session/model_path.h"

namespace kvrm::cli {
namespace {

// "all", or names with commas between.
Result<std::vector<Mode>> ReadModes(const std::string& text) {
  std::vector<Mode> modes;
  if (text == "all") {
    for (const ModeTraits& mode : AllModes()) modes.push_back(mode.mode);
    return modes;
  }
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    const std::optional<Mode> mode = FindMode(name);
    if (!mode) {
      std::string known;
      for (const ModeTraits& each : AllModes()) known += ", " + std::string(each.name);
      return InvalidInput("--modes '" + name + "': takes all" + known);
    }
    modes.push_back(*mode);
    begin = end + 1;
  }
  return modes;
}

std::string CommandOf(const OptionValues& values) {
  std::vector<std::string> words = {
      "kvrm", "bench", "replay", values.positionals()[0], "--modes", values.Text("modes")};
  const std::vector<std::string> changes = LoadJobWords(values);
  words.insert(words.end(), changes.begin(), changes.end());
  return CommandLine(words);
}

void Print(const OptionValues& values, const std::vector<ModeRun>& runs) {
  if (values.Flag("json")) {
    boost::json::array modes;
    for (const ModeRun& run : runs) modes.push_back(ModeJson(run));
    const boost::json::object object{{"schema", kResultSchema},
                                     {"test", "replay"},
                                     {"command", CommandOf(values)},
                                     {"modes", std::move(modes)}};
    std::printf("%s\n", boost::json::serialize(object).c_str());
    return;
  }
  if (runs.size() == 1 && runs[0].refused.empty()) {
    std::printf("%s\n", LoadText(runs[0].report).c_str());
  }
  std::printf("%s", ModesText(runs).c_str());
}

// The number of modes that ran.
Result<size_t> Measure(const OptionValues& values) {
  KVRM_ASSIGN_OR_RETURN(const LoadJob job, ReadLoadJob(values, values.positionals()[0]));
  KVRM_ASSIGN_OR_RETURN(const std::vector<Mode> modes, ReadModes(values.Text("modes")));
  KVRM_ASSIGN_OR_RETURN(const std::string model_path, ModelPathOf(values));
  const bool strict = values.Flag("strict-shape");
  if ((modes.size() > 1 || strict) &&
      !(values.Text("html").empty() && values.Text("samples").empty())) {
    return InvalidInput("--html and --samples are of one run: name one mode in --modes");
  }
  KVRM_RETURN_IF_ERROR(CheckWritable(values));
  std::vector<ModeRun> runs;
  for (const Mode mode : modes) {
    for (const bool all_rows : {false, true}) {
      if (all_rows && (!strict || TraitsOf(mode).exact_shapes)) continue;
      RuntimeOptions options = RuntimeOptionsOf(values, model_path);
      UseMode(values, mode, options);
      options.strict_shape = all_rows;
      KVRM_ASSIGN_OR_RETURN(ModeRun run, RunMode(values, options, job));
      run.report.command = CommandOf(values);
      const bool interrupted = run.run.interrupted;
      if (run.refused.empty()) {
        KVRM_RETURN_IF_ERROR(WriteRunFiles(values, run.report, run.run));
      }
      runs.push_back(std::move(run));
      if (interrupted) break;
    }
    if (!runs.empty() && runs.back().run.interrupted) break;
  }
  Print(values, runs);
  const auto ran = static_cast<size_t>(std::count_if(
      runs.begin(), runs.end(), [](const ModeRun& run) { return run.refused.empty(); }));
  if (ran == 0) return Unavailable("no mode ran: " + runs[0].refused);
  return ran;
}

}  // namespace

int RunBenchReplay(const OptionValues& values) {
  if (values.positionals().empty()) return UsageError(values, "needs the workload's file");
  const Result<size_t> ran = Measure(values);
  return ran.ok() ? kExitDone : Failed(values, ran.error());
}

}  // namespace kvrm::cli
