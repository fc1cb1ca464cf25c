// kvrm bench serve: a workload against any OpenAI-compatible server.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "bench/load/load_report.h"
#include "bench/load/load_run.h"
#include "bench/load/server_probe.h"
#include "bench/load/trace.h"
#include "bench/load/workload.h"
#include "bench/machine.h"
#include "bench/quiet_gate.h"
#include "bench/subprocess.h"
#include "kvrm/commands.h"
#include "options/read_all.h"

namespace kvrm::cli {
namespace {

Result<Workload> ReadWorkload(const OptionValues& values) {
  const std::string& path = values.Text("workload");
  KVRM_ASSIGN_OR_RETURN(const std::string text, ReadAll("--workload", path));
  KVRM_ASSIGN_OR_RETURN(Workload workload, ParseWorkload(text, path, values.Texts("set")));
  for (Source& source : workload.sources) {
    source.rate *= values.Float("speed");
    source.speed *= values.Float("speed");
  }
  return workload;
}

// Beside the workload first, then in the data folder.
Result<Trace> ReadTrace(const Workload& workload, const Source& source, const std::string& data) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (const std::string& dir : {workload.dir, data}) {
    const fs::path path = fs::path(dir) / source.trace;
    if (!fs::exists(path, error)) continue;
    KVRM_ASSIGN_OR_RETURN(const std::string text, ReadAll("trace", path.string()));
    KVRM_ASSIGN_OR_RETURN(Trace trace, ParseTrace(text, path.string()));
    if (trace.moved_rows > 0) {
      std::fprintf(stderr, "trace '%s': %u rows were out of order and are sorted\n", path.c_str(),
                   trace.moved_rows);
    }
    return trace;
  }
  return NotFound("trace '" + source.trace + "' of source '" + source.name +
                  "': neither beside the workload nor in --data '" + data + "'");
}

Result<LoadTarget> FindTarget(const OptionValues& values, const Workload& workload) {
  KVRM_ASSIGN_OR_RETURN(LoadTarget target, ParseTarget(values.positionals()[0]));
  for (const std::string& header : values.Texts("header")) {
    const size_t colon = header.find(": ");
    if (colon == std::string::npos || colon == 0 ||
        header.find_first_of("\r\n") != std::string::npos) {
      return InvalidInput("--header '" + header + "': takes one line 'NAME: VALUE'");
    }
    target.headers.emplace_back(header.substr(0, colon), header.substr(colon + 2));
  }
  target.model = values.Text("model-id");
  target.context_tokens = static_cast<uint32_t>(workload.context);
  if (!target.model.empty() && target.context_tokens > 0) return target;
  const Result<ServerFacts> facts = AskModels(target);
  if (!facts.ok() && target.model.empty()) return facts.error();
  if (!facts.ok()) return target;  // it need not list models to serve one
  if (target.model.empty()) target.model = facts->model;
  if (target.context_tokens == 0) target.context_tokens = facts->context_tokens;
  return target;
}

Status WriteFile(const char* option, const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file) return Ok();
  return Unavailable(std::string(option) + " '" + path + "' cannot be written");
}

// Before the load, so that no run is lost to a wrong path.
Status CheckWritable(const OptionValues& values) {
  for (const char* option : {"samples", "html"}) {
    if (values.Text(option).empty()) continue;
    KVRM_RETURN_IF_ERROR(WriteFile((std::string("--") + option).c_str(), values.Text(option), ""));
  }
  return Ok();
}

std::string CommandOf(const OptionValues& values) {
  std::vector<std::string> words = {
      "kvrm", "bench", "serve", values.positionals()[0], "--workload", values.Text("workload")};
  for (const std::string& change : values.Texts("set")) {
    words.insert(words.end(), {"--set", change});
  }
  if (values.Source("speed") != ValueSource::kDefault) {
    words.insert(words.end(), {"--speed", fmt::format("{:g}", values.Float("speed"))});
  }
  return CommandLine(words);
}

Status Write(const OptionValues& values, const LoadReport& report, const LoadRun& run) {
  if (!values.Text("samples").empty()) {
    std::string lines;
    for (const RequestRecord& record : run.records) {
      lines += SampleLine(record, run, report.workload) + "\n";
    }
    KVRM_RETURN_IF_ERROR(WriteFile("--samples", values.Text("samples"), lines));
  }
  if (!values.Text("html").empty()) {
    KVRM_RETURN_IF_ERROR(WriteFile("--html", values.Text("html"), LoadHtml(report, run)));
  }
  const std::string text =
      values.Flag("json") ? boost::json::serialize(LoadJson(report)) + "\n" : LoadText(report);
  std::fputs(text.c_str(), stdout);
  return Ok();
}

// User and system time of a process; nullopt: there is none, or the system does not say.
std::optional<double> ProcessCpuSeconds(int64_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (pid <= 0 || !std::getline(stat, line)) return std::nullopt;
  // The name, field 2, may hold anything; the last ')' ends it. utime and stime are fields 14, 15.
  std::istringstream fields(line.substr(std::min(line.rfind(')') + 1, line.size())));
  std::string skipped;
  double user = 0, system = 0;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  if (!(fields >> user >> system)) return std::nullopt;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// The number of requests that were answered whole.
Result<uint64_t> Measure(const OptionValues& values) {
  LoadReport report;
  KVRM_ASSIGN_OR_RETURN(report.workload, ReadWorkload(values));
  std::vector<Trace> traces(report.workload.sources.size());
  for (size_t i = 0; i < traces.size(); ++i) {
    const Source& source = report.workload.sources[i];
    if (source.arrivals != Arrivals::kTrace) continue;
    KVRM_ASSIGN_OR_RETURN(traces[i], ReadTrace(report.workload, source, values.Text("data")));
  }
  KVRM_ASSIGN_OR_RETURN(const LoadTarget target, FindTarget(values, report.workload));
  KVRM_RETURN_IF_ERROR(CheckWritable(values));
  const CountedWords words = CountWords(target);
  std::fprintf(stderr, "%s: %s, for %g s\n", report.workload.name.c_str(), target.model.c_str(),
               report.workload.duration_s);

  const int64_t server_pid = values.Int("server-pid");
  const std::optional<double> server_s = ProcessCpuSeconds(server_pid);
  if (server_pid > 0 && !server_s) {
    return NotFound("--server-pid " + std::to_string(server_pid) + ": no such process here");
  }
  const QuietGate gate;
  LoadHooks hooks;
  hooks.catch_interrupt = true;
  KVRM_ASSIGN_OR_RETURN(const LoadRun run,
                        RunLoad(report.workload, traces, target, words.words, hooks));
  report.others_percent = gate.OthersPercent();
  const double run_s = static_cast<double>(run.end_us - run.start_us) / 1e6;
  if (const auto server_end_s = ProcessCpuSeconds(server_pid); server_end_s && run_s > 0) {
    report.server_cpu_percent = 100 * (*server_end_s - *server_s) / run_s;
    const auto cpus = static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN));
    if (report.others_percent) {
      report.others_percent =
          std::max(0.0, *report.others_percent - *report.server_cpu_percent / cpus);
    }
  }
  report.max_others_percent = values.Float("max-others");
  report.command = CommandOf(values);
  report.url = values.positionals()[0];
  report.model = target.model;
  report.context_tokens = target.context_tokens;
  report.counted_words = words.counted;
  report.figures = FiguresOf(run, report.workload);
  report.dropped_turns = run.dropped_turns;
  report.interrupted = run.interrupted;
  const Machine machine = ThisMachine();
  report.machine = ToJson(machine);
  report.machine_text = fmt::format("{}, {} CPUs", machine.cpu, machine.cpus);
  report.date = DateUtc();
  KVRM_RETURN_IF_ERROR(Write(values, report, run));
  return report.figures.all.outcomes[static_cast<size_t>(Outcome::kDone)];
}

}  // namespace

int RunBenchServe(const OptionValues& values) {
  if (values.positionals().empty()) return UsageError(values, "needs the server's URL");
  if (values.Text("workload").empty()) return UsageError(values, "needs --workload FILE");
  const Result<uint64_t> done = Measure(values);
  if (!done.ok()) return Failed(values, done.error());
  if (*done == 0) return Failed(values, Unavailable("no request was answered whole"));
  return kExitDone;
}

}  // namespace kvrm::cli
