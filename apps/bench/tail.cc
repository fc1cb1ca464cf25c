// kvrm bench tail: the gaps between tokens here and at the rivals, in one sitting. It starts and
// stops them itself, one at a time.
#include <fmt/format.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "bench/load/load_command.h"
#include "bench/load/server_probe.h"
#include "bench/replay/counted_words.h"
#include "bench/subprocess.h"
#include "bench/tail/piped_engine.h"
#include "bench/tail/rival_places.h"
#include "bench/tail/server_process.h"
#include "bench/tail/tail_plan.h"
#include "engine/loader.h"
#include "kvrm/commands.h"
#include "session/model_path.h"
#include "session/session.h"
#include "session/tokenizer_source.h"
#include "text/tokenizer.h"

namespace kvrm::cli {
namespace {

namespace fs = std::filesystem;

constexpr double kReadyWithinS = 900;  // vLLM compiles before it is ready
constexpr double kShareOfCapacity = 0.6;

// Where the servers of one sitting write what they print.
class LogFile {
 public:
  LogFile() : path_(fs::temp_directory_path() / fmt::format("kvrm-tail-{}.log", getpid())) {}
  ~LogFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  std::string path() const { return path_.string(); }

 private:
  const fs::path path_;
};

// "gap budget 50 ms" of our own server's first line.
std::optional<double> BudgetMs(const std::string& log) {
  static const std::regex kBudget("gap budget ([0-9]+) ms");
  std::smatch match;
  if (!std::regex_search(log, match, kBudget)) return std::nullopt;
  return std::stod(match[1]);
}

class Sitting {
 public:
  Sitting(const OptionValues& values, TailSetup setup)
      : values_(values), setup_(std::move(setup)), servers_(TailServers(setup_)) {}

  Status Run();
  const std::vector<TailRun>& runs() const { return runs_; }

 private:
  Result<LoadJob> Job(const std::string& toml) const;
  Result<ServerRun> Load(const TailServer& server, const LoadJob& job, TailRun* told);
  Result<ServerRun> LoadPiped(const TailServer& server, const LoadJob& job);
  Result<TailRun> RunUntilQuiet(char scenario, const LoadJob& job, const TailServer& server);
  Status RunAll(char scenario, const std::string& toml, const std::vector<TailServer>& servers);
  Result<double> TokensPerSecond(const TailServer& server, const LoadJob& job, double* rate);
  Status RunMixed();
  Status RunTrace();
  std::vector<TailServer> Finalists() const;
  uint32_t seconds() const { return static_cast<uint32_t>(values_.Int("seconds")); }

  const OptionValues& values_;
  const TailSetup setup_;
  const std::vector<TailServer> servers_;
  const LogFile log_;
  std::vector<TailRun> runs_;
  bool interrupted_ = false;
};

Result<LoadJob> Sitting::Job(const std::string& toml) const {
  LoadJob job;
  KVRM_ASSIGN_OR_RETURN(job.workload, ParseWorkload(toml, "tail", {}));
  return WithTraces(values_, std::move(job.workload));
}

Result<ServerRun> Sitting::Load(const TailServer& server, const LoadJob& job, TailRun* told) {
  std::fprintf(stderr, "%s: %s\n", job.workload.name.c_str(), server.name.c_str());
  if (server.piped) return LoadPiped(server, job);
  KVRM_ASSIGN_OR_RETURN(const uint16_t port, FreePort());
  std::vector<std::string> command = server.command;
  command.insert(command.end(), {"--port", std::to_string(port)});
  KVRM_ASSIGN_OR_RETURN(ServerProcess process,
                        ServerProcess::Start(std::move(command), log_.path()));
  KVRM_ASSIGN_OR_RETURN(LoadTarget target, ParseTarget(fmt::format("http://127.0.0.1:{}", port)));
  KVRM_ASSIGN_OR_RETURN(const ServerFacts facts, process.AwaitReady(target, kReadyWithinS));
  target.model = facts.model;
  target.context_tokens = setup_.ctx;
  KVRM_ASSIGN_OR_RETURN(ServerRun measured, RunOnServer(values_, job, target, process.pid()));
  measured.report.url = server.name;
  interrupted_ = interrupted_ || measured.run.interrupted;
  if (told != nullptr && server.side == TailSide::kOurs) {
    told->budget_ms = BudgetMs(process.Log());
    told->unexplained = UnexplainedIn(AskText(target, "/metrics"));
  }
  return measured;
}

// The tokenizer is ours, so the rival gets the same tokens and none of its time goes into them.
Result<ServerRun> Sitting::LoadPiped(const TailServer& server, const LoadJob& job) {
  KVRM_ASSIGN_OR_RETURN(TokenizerSpec spec, TokenizerSpecOf(values_));
  KVRM_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Create(std::move(spec)));
  const auto encode = [&](const std::string& text) { return EncodePrompt(*tokenizer, text); };
  KVRM_ASSIGN_OR_RETURN(const auto engine, PipedEngine::Start(server.command, log_.path(),
                                                              kReadyWithinS, setup_.ctx, encode));
  const CountedWords words{WordsCountedBy(*tokenizer), /*counted=*/true};
  KVRM_ASSIGN_OR_RETURN(ServerRun measured,
                        RunOnBackend(values_, job, *engine, words, engine->pid()));
  measured.report.url = server.name;
  measured.report.model = engine->version();
  interrupted_ = interrupted_ || measured.run.interrupted;
  return measured;
}

// A run that others disturbed is taken again, a few times at most.
Result<TailRun> Sitting::RunUntilQuiet(char scenario, const LoadJob& job,
                                       const TailServer& server) {
  std::vector<std::string> set_aside;
  for (;;) {
    TailRun run;
    run.scenario = scenario;
    run.server = server;
    KVRM_ASSIGN_OR_RETURN(ServerRun measured, Load(server, job, &run));
    run.report = std::move(measured.report);
    run.report.command = CommandLine(server.command);
    const std::optional<std::string> why = NotQuiet(run);
    if (!why || interrupted_ || set_aside.size() + 1 >= kMostTries) {
      run.set_aside = std::move(set_aside);
      return run;
    }
    std::fprintf(stderr, "  set aside and repeated: %s\n", why->c_str());
    set_aside.push_back(*why);
  }
}

Status Sitting::RunAll(char scenario, const std::string& toml,
                       const std::vector<TailServer>& servers) {
  KVRM_ASSIGN_OR_RETURN(const LoadJob job, Job(toml));
  for (const TailServer& server : servers) {
    if (interrupted_) return Ok();
    KVRM_ASSIGN_OR_RETURN(TailRun run, RunUntilQuiet(scenario, job, server));
    runs_.push_back(std::move(run));
  }
  return Ok();
}

// What the server gives when it is asked for all at once; `rate`: requests a second at which it is
// loaded to the share that scenarios want.
Result<double> Sitting::TokensPerSecond(const TailServer& server, const LoadJob& job,
                                        double* rate) {
  KVRM_ASSIGN_OR_RETURN(const ServerRun measured, Load(server, job, nullptr));
  const double tokens_per_s = measured.report.figures.window_tokens_per_s;
  *rate = RateAtShare(kShareOfCapacity, tokens_per_s, measured.run);
  std::fprintf(stderr, "  %.1f tokens/s; 60 %% of that: %.3f requests/s\n", tokens_per_s, *rate);
  if (*rate > 0) return tokens_per_s;
  return Unavailable(server.name + " answered nothing while its capacity was measured");
}

// Ours, the peer as it comes, and the tuning whose p99 was least in (a), or the first.
std::vector<TailServer> Sitting::Finalists() const {
  std::vector<TailServer> finalists;
  const TailServer* tuned = nullptr;
  double least_ms = 0;
  for (const TailServer& server : servers_) {
    if (server.side == TailSide::kOurs || server.side == TailSide::kLlamaDefault) {
      finalists.push_back(server);
    }
    if (server.side == TailSide::kLlamaTuned && tuned == nullptr) tuned = &server;
  }
  for (const TailRun& run : runs_) {
    const Distribution& gaps = run.report.figures.all.itl_ms;
    if (run.scenario != 'a' || run.server.side != TailSide::kLlamaTuned || gaps.empty()) continue;
    if (least_ms > 0 && gaps.PerMille(990) >= least_ms) continue;
    least_ms = gaps.PerMille(990);
    for (const TailServer& server : servers_) {
      if (server.name == run.server.name) tuned = &server;
    }
  }
  if (tuned != nullptr) finalists.push_back(*tuned);
  return finalists;
}

Status Sitting::RunMixed() {
  KVRM_ASSIGN_OR_RETURN(const LoadJob capacity,
                        Job(MixedCapacity(std::max(seconds() / 2, 5u), setup_.slots)));
  double rate = 0;
  for (const TailSide side : {TailSide::kOurs, TailSide::kLlamaDefault}) {
    for (const TailServer& server : servers_) {
      if (server.side != side || interrupted_) continue;
      double of_this = 0;
      KVRM_RETURN_IF_ERROR(TokensPerSecond(server, capacity, &of_this));
      rate = rate == 0 ? of_this : std::min(rate, of_this);
    }
  }
  return RunAll('b', MixedScenario(seconds(), rate), Finalists());
}

Status Sitting::RunTrace() {
  KVRM_ASSIGN_OR_RETURN(const LoadJob capacity, Job(TraceCapacity(seconds(), setup_.slots)));
  double rate = 0;
  KVRM_RETURN_IF_ERROR(TokensPerSecond(servers_[0], capacity, &rate));
  const double speed = rate / TraceRate(capacity.traces[0]);
  return RunAll('c', TraceScenario(seconds(), speed), Finalists());
}

Status Sitting::Run() {
  const std::string& scenario = values_.Text("scenario");
  const auto wanted = [&](const char* name) {
    return !interrupted_ && (scenario == "all" || scenario == name);
  };
  if (wanted("a")) KVRM_RETURN_IF_ERROR(RunAll('a', InjectedScenario(seconds()), servers_));
  if (wanted("b")) KVRM_RETURN_IF_ERROR(RunMixed());
  if (scenario == "all" && values_.Text("data").empty()) {
    std::fprintf(stderr, "scenario c is left out: its trace needs --data\n");
  } else if (wanted("c")) {
    KVRM_RETURN_IF_ERROR(RunTrace());
  }
  return Ok();
}

std::string TailCommand(const OptionValues& values) {
  return CommandLine({"kvrm", "bench", "tail", "--rival", values.Text("rival"), "--scenario",
                      values.Text("scenario"), "--seconds", std::to_string(values.Int("seconds")),
                      "--slots", std::to_string(values.Int("slots")), "--ctx",
                      std::to_string(values.Int("ctx")), "--kv", values.Text("kv")});
}

Status MeasureTail(const OptionValues& values) {
  TailSetup setup;
  std::error_code error;
  setup.own_program = fs::read_symlink("/proc/self/exe", error).string();
  if (error) return Unavailable("this program's own path: " + error.message());
  KVRM_ASSIGN_OR_RETURN(setup.model, ModelPathOf(values));
  KVRM_RETURN_IF_ERROR(FindTailRivals(values, setup));
  setup.threads = AllowedCpus();
  setup.slots = static_cast<uint32_t>(values.Int("slots"));
  setup.ctx = static_cast<uint32_t>(values.Int("ctx"));
  setup.kv = values.Text("kv");
  if (!values.Text("html").empty()) {
    KVRM_RETURN_IF_ERROR(WriteFile("--html", values.Text("html"), ""));
  }
  Sitting sitting(values, std::move(setup));
  KVRM_RETURN_IF_ERROR(sitting.Run());
  const std::vector<TailGoal> goals = TailGoals(sitting.runs());
  const std::string command = TailCommand(values);
  if (!values.Text("html").empty()) {
    KVRM_RETURN_IF_ERROR(
        WriteFile("--html", values.Text("html"), TailHtml(sitting.runs(), goals, command)));
  }
  const std::string text =
      values.Flag("json") ? boost::json::serialize(TailJson(sitting.runs(), goals, command)) + "\n"
                          : TailText(sitting.runs(), goals);
  std::fputs(text.c_str(), stdout);
  return Ok();
}

}  // namespace

int RunBenchTail(const OptionValues& values) {
  const Status measured = MeasureTail(values);
  return measured.ok() ? kExitDone : Failed(values, measured.error());
}

}  // namespace kvrm::cli
