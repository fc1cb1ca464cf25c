// kvrm bench serve: a workload against any OpenAI-compatible server.
#include <cstdio>
#include <string>
#include <vector>

#include "bench/load/load_command.h"
#include "bench/load/server_probe.h"
#include "bench/subprocess.h"
#include "kvrm/commands.h"

namespace kvrm::cli {
namespace {

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

std::string ServeCommand(const OptionValues& values) {
  std::vector<std::string> words = {
      "kvrm", "bench", "serve", values.positionals()[0], "--workload", values.Text("workload")};
  const std::vector<std::string> changes = LoadJobWords(values);
  words.insert(words.end(), changes.begin(), changes.end());
  return CommandLine(words);
}

// The number of requests that were answered whole.
Result<uint64_t> MeasureServer(const OptionValues& values) {
  KVRM_ASSIGN_OR_RETURN(const LoadJob job, ReadLoadJob(values, values.Text("workload")));
  KVRM_ASSIGN_OR_RETURN(const LoadTarget target, FindTarget(values, job.workload));
  KVRM_RETURN_IF_ERROR(CheckWritable(values));
  std::fprintf(stderr, "%s: %s, for %g s\n", job.workload.name.c_str(), target.model.c_str(),
               job.workload.duration_s);
  KVRM_ASSIGN_OR_RETURN(ServerRun measured,
                        RunOnServer(values, job, target, values.Int("server-pid")));
  auto& [report, run] = measured;
  report.command = ServeCommand(values);
  report.url = values.positionals()[0];
  KVRM_RETURN_IF_ERROR(WriteRunFiles(values, report, run));
  const std::string text =
      values.Flag("json") ? boost::json::serialize(LoadJson(report)) + "\n" : LoadText(report);
  std::fputs(text.c_str(), stdout);
  return report.figures.all.outcomes[static_cast<size_t>(Outcome::kDone)];
}

}  // namespace

int RunBenchServe(const OptionValues& values) {
  if (values.positionals().empty()) return UsageError(values, "needs the server's URL");
  if (values.Text("workload").empty()) return UsageError(values, "needs --workload FILE");
  const Result<uint64_t> done = MeasureServer(values);
  if (!done.ok()) return Failed(values, done.error());
  if (*done == 0) return Failed(values, Unavailable("no request was answered whole"));
  return kExitDone;
}

}  // namespace kvrm::cli
