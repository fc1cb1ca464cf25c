#include "bench/load/load_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "bench/machine.h"
#include "bench/quiet_gate.h"
#include "options/read_all.h"

namespace kvrm::cli {
namespace {

Result<Workload> ReadWorkload(const OptionValues& values, const std::string& path) {
  KVRM_ASSIGN_OR_RETURN(const std::string text, ReadAll("workload", path));
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

// User and system time of a process alone; nullopt: there is none, or the system does not say.
std::optional<double> OwnCpuSeconds(int64_t pid) {
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

// The same with the processes that it started and that run: some servers compute in a child.
std::optional<double> ProcessCpuSeconds(int64_t pid) {
  std::optional<double> seconds = OwnCpuSeconds(pid);
  std::error_code error;
  const std::filesystem::path tasks = "/proc/" + std::to_string(pid) + "/task";
  for (std::filesystem::directory_iterator it(tasks, error), end; seconds && !error && it != end;
       it.increment(error)) {
    std::ifstream children(it->path() / "children");
    for (int64_t child = 0; children >> child;) *seconds += ProcessCpuSeconds(child).value_or(0);
  }
  return seconds;
}

}  // namespace

Result<LoadJob> ReadLoadJob(const OptionValues& values, const std::string& path) {
  KVRM_ASSIGN_OR_RETURN(Workload workload, ReadWorkload(values, path));
  return WithTraces(values, std::move(workload));
}

Result<LoadJob> WithTraces(const OptionValues& values, Workload workload) {
  LoadJob job;
  job.workload = std::move(workload);
  job.traces.resize(job.workload.sources.size());
  for (size_t i = 0; i < job.traces.size(); ++i) {
    const Source& source = job.workload.sources[i];
    if (source.arrivals != Arrivals::kTrace) continue;
    KVRM_ASSIGN_OR_RETURN(job.traces[i], ReadTrace(job.workload, source, values.Text("data")));
  }
  return job;
}

std::vector<std::string> LoadJobWords(const OptionValues& values) {
  std::vector<std::string> words;
  for (const std::string& change : values.Texts("set")) {
    words.insert(words.end(), {"--set", change});
  }
  if (values.Source("speed") != ValueSource::kDefault) {
    words.insert(words.end(), {"--speed", fmt::format("{:g}", values.Float("speed"))});
  }
  return words;
}

void DescribeSitting(const OptionValues& values, LoadReport& report) {
  report.max_others_percent = values.Float("max-others");
  const Machine machine = ThisMachine();
  report.machine = ToJson(machine);
  report.machine_text = fmt::format("{}, {} CPUs", machine.cpu, machine.cpus);
  report.date = DateUtc();
}

Result<ServerRun> RunOnBackend(const OptionValues& values, const LoadJob& job, LoadBackend& backend,
                               const CountedWords& words, int64_t server_pid) {
  ServerRun measured;
  auto& [report, run] = measured;
  const std::optional<double> server_s = ProcessCpuSeconds(server_pid);
  if (server_pid > 0 && !server_s) {
    return NotFound("--server-pid " + std::to_string(server_pid) + ": no such process here");
  }
  const QuietGate gate;
  LoadHooks hooks;
  hooks.catch_interrupt = true;
  KVRM_ASSIGN_OR_RETURN(run, RunLoad(job.workload, job.traces, backend, words.words, hooks));
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
  report.workload = job.workload;
  report.context_tokens = backend.context_tokens();
  report.counted_words = words.counted;
  report.figures = FiguresOf(run, job.workload);
  report.dropped_turns = run.dropped_turns;
  report.interrupted = run.interrupted;
  DescribeSitting(values, report);
  return measured;
}

Result<ServerRun> RunOnServer(const OptionValues& values, const LoadJob& job,
                              const LoadTarget& target, int64_t server_pid) {
  KVRM_ASSIGN_OR_RETURN(const auto backend, HttpBackend::Create(target));
  KVRM_ASSIGN_OR_RETURN(ServerRun measured,
                        RunOnBackend(values, job, *backend, CountWords(target), server_pid));
  measured.report.model = target.model;
  return measured;
}

Status WriteFile(const char* option, const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file) return Ok();
  return Unavailable(std::string(option) + " '" + path + "' cannot be written");
}

Status CheckWritable(const OptionValues& values) {
  for (const char* option : {"samples", "html"}) {
    if (values.Text(option).empty()) continue;
    KVRM_RETURN_IF_ERROR(WriteFile((std::string("--") + option).c_str(), values.Text(option), ""));
  }
  return Ok();
}

Status WriteRunFiles(const OptionValues& values, const LoadReport& report, const LoadRun& run) {
  if (!values.Text("samples").empty()) {
    std::string lines;
    for (const RequestRecord& record : run.records) {
      lines += SampleLine(record, run, report.workload) + "\n";
    }
    KVRM_RETURN_IF_ERROR(WriteFile("--samples", values.Text("samples"), lines));
  }
  if (values.Text("html").empty()) return Ok();
  return WriteFile("--html", values.Text("html"), LoadHtml(report, run));
}

}  // namespace kvrm::cli
