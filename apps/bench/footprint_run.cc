#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "bench/footprint.h"
#include "bench/load/server_probe.h"
#include "bench/machine.h"
#include "bench/quiet_gate.h"
#include "bench/result.h"
#include "bench/subprocess.h"
#include "bench/tail/piped_engine.h"
#include "bench/tail/server_process.h"

namespace kvrm::cli {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using Clock = std::chrono::steady_clock;

constexpr double kReadyWithinS = 120;
constexpr auto kAskAgain = std::chrono::milliseconds(2);

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string LogPath() {
  return (fs::temp_directory_path() / ("kvrm-ready-" + std::to_string(getpid()) + ".log")).string();
}

Result<double> SecondsToReadyPipe(const Contender& contender, const std::string& log) {
  const auto nothing = [](const std::string&) { return std::vector<TokenId>(); };
  const auto begin = Clock::now();
  KVRM_ASSIGN_OR_RETURN(const auto engine,
                        PipedEngine::Start(contender.command, log, kReadyWithinS, 1, nothing));
  return SecondsSince(begin);
}

Result<double> SecondsToReady(const Contender& contender) {
  const std::string log = LogPath();
  if (contender.kind == OutputKind::kOpenVinoBench) return SecondsToReadyPipe(contender, log);
  KVRM_ASSIGN_OR_RETURN(const uint16_t port, FreePort());
  std::vector<std::string> command = contender.command;
  command.insert(command.end(), {"--port", std::to_string(port)});
  LoadTarget target;
  target.host = "127.0.0.1";
  target.port = port;
  const char* path = contender.kind == OutputKind::kKvrm ? "/ready" : "/health";
  const auto begin = Clock::now();
  KVRM_ASSIGN_OR_RETURN(ServerProcess process, ServerProcess::Start(std::move(command), log));
  while (AskText(target, path).empty()) {
    if (process.HasEnded()) return process.NotReady("ended before it was ready");
    if (SecondsSince(begin) > kReadyWithinS) return process.NotReady("was not ready in time");
    std::this_thread::sleep_for(kAskAgain);
  }
  return SecondsSince(begin);
}

// kvrm measures the machine's bandwidth behind its figure, which takes memory as well, so it says
// itself how much it had until then: the same figure of the system's.
Result<double> PeakBytes(const Contender& contender, const std::vector<std::string>& command) {
  KVRM_ASSIGN_OR_RETURN(const ProgramRun run, RunMeasuredProgram(command));
  if (contender.kind != OutputKind::kKvrm) return static_cast<double>(run.peak_resident_bytes);
  boost::system::error_code error;
  const json::value said = json::parse(run.output, error);
  const json::value* peak =
      error || !said.is_object() ? nullptr : said.get_object().if_contains("peak_resident_bytes");
  if (peak == nullptr) return InvalidInput("'" + CommandLine(command) + "' does not tell its peak");
  return peak->to_number<double>();
}

class PairRun {
 public:
  PairRun(const FootprintRow& row, FootprintPair pair) : row_(row), pair_(std::move(pair)) {}

  // The pair as it is kept; empty: none of the rivals' settings ran.
  Result<json::object> Run(int64_t rounds) {
    std::fprintf(stderr, "%s: %s\n", row_.name.c_str(), pair_.name.c_str());
    ScreenRivals();
    if (rivals_.empty()) return json::object();
    Measured own{pair_.own, {}, {}};
    for (int64_t round = 0; round < rounds; ++round) {
      KVRM_RETURN_IF_ERROR(Take(own, pair_.own.command));
      for (Measured& rival : rivals_) KVRM_RETURN_IF_ERROR(Take(rival, rival.contender.command));
    }
    SortByMedian(Best::kLeast, rivals_);
    return Json(own, rivals_[0]);
  }

 private:
  Status Take(Measured& figure, const std::vector<std::string>& command) {
    const bool ready = row_.kind == FootprintKind::kReady;
    KVRM_ASSIGN_OR_RETURN(const double sample, ready ? SecondsToReady(figure.contender)
                                                     : PeakBytes(figure.contender, command));
    figure.samples.push_back(sample);
    std::fprintf(stderr, ready ? "  %-44s %9.3f s\n" : "  %-44s %12.0f bytes\n",
                 figure.contender.name.c_str(), sample);
    return Ok();
  }

  void ScreenRivals() {
    rivals_ =
        Screen(pair_.rivals, [this](Measured& rival, const std::vector<std::string>& command) {
          return Take(rival, command);
        });
    for (const Measured& rival : rivals_) screened_[rival.contender.name] = rival.samples[0];
    KeepFinalists(Best::kLeast, rivals_);
    for (Measured& rival : rivals_) rival.samples.clear();
  }

  json::object Json(const Measured& own, const Measured& best) const {
    const FootprintGoal& goal = pair_.goal;
    const double share = own.median() / best.median();
    return {{"rivals", pair_.name},
            {"kvrm", SettingJson(own.contender, own.samples)},
            {"best", SettingJson(best.contender, best.samples)},
            {"share", share},
            {"at_most", goal.at_most},
            {"goal", goal.goal},
            {"own_at_most", goal.own_at_most},
            {"own_goal", goal.own_goal},
            {"verdict", FootprintVerdict(goal, own.median(), share)},
            {"screened", screened_}};
  }

  const FootprintRow& row_;
  const FootprintPair pair_;
  std::vector<Measured> rivals_;
  json::object screened_;
};

}  // namespace

Result<json::object> RunFootprint(const FootprintRow& row, const VersusSetting& setting,
                                  double max_others_percent) {
  const bool ready = row.kind == FootprintKind::kReady;
  const QuietGate gate;
  json::array pairs;
  for (FootprintPair& pair : FootprintPairs(row, setting)) {
    // Memory is the same in each round, and takes half a minute to see.
    KVRM_ASSIGN_OR_RETURN(json::object done,
                          PairRun(row, std::move(pair)).Run(ready ? setting.rounds : 1));
    if (!done.empty()) pairs.push_back(std::move(done));
  }
  std::error_code ignored;
  if (ready) fs::remove(LogPath(), ignored);
  json::object kept{{"key", row.key},
                    {"row", row.name},
                    {"unit", ready ? "s" : "bytes"},
                    {"pairs", std::move(pairs)},
                    {"machine", ToJson(ThisMachine())},
                    {"date", DateUtc()}};
  if (const auto others = gate.OthersPercent()) {
    kept["others_percent"] = *others;
    kept["noisy"] = *others > max_others_percent;
  }
  return kept;
}

}  // namespace kvrm::cli
