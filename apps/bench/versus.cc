// kvrm bench versus: the same rows here and with the peer's own tools, interleaved in one sitting.
//
// Per row: each peer setting runs once (screening), the fastest two are kept, then rounds of (kvrm,
// peer, peer) follow, so that whatever slows the machine slows all of them. A row's figures are the
// medians over the rounds.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bench/ceilings.h"
#include "bench/contender.h"
#include "bench/machine.h"
#include "bench/quiet_gate.h"
#include "bench/result.h"
#include "bench/statistics.h"
#include "bench/subprocess.h"
#include "engine/loader.h"
#include "kvrm/commands.h"
#include "session/model_path.h"

namespace kvrm::cli {
namespace {

constexpr size_t kFinalists = 2;

struct Measured {
  Contender contender;
  std::vector<double> tokens_per_s;
  std::string last_output;
  double median() const { return Summarize(tokens_per_s).median; }
};

// The least milliseconds of the contender's unit of work (a step, a prompt), and the share reached.
struct FloorShare {
  double ms = 0;
  double share = 0;
  std::string Text() const { return fmt::format("{:.2f} ms, {:.0f} %", ms, 100 * share); }
};

struct RowResult {
  ComparisonRow row;
  Measured own;
  Measured best_peer;
  std::vector<std::pair<std::string, double>> screened;  // name, tokens/s of each peer setting
  std::optional<double> others_percent;
  std::optional<FloorShare> best_peer_floor;
  double ratio() const { return own.median() / best_peer.median(); }
};

Status RunOnce(Measured& measured) {
  KVRM_ASSIGN_OR_RETURN(measured.last_output, RunProgram(measured.contender.command));
  const auto rate = ParseTokensPerSecond(measured.contender.kind, measured.last_output);
  if (!rate.ok()) {
    return InvalidInput("'" + CommandLine(measured.contender.command) +
                        "': " + rate.error().message);
  }
  measured.tokens_per_s.push_back(*rate);
  std::fprintf(stderr, "  %-28s %9.1f t/s\n", measured.contender.name.c_str(), *rate);
  return Ok();
}

// Screens all settings; the fastest come back with their screening sample dropped. A setting that
// fails (a file type that a build cannot run) is left out with a note.
Result<std::vector<Measured>> Screen(const std::vector<Contender>& contenders, RowResult& result) {
  std::vector<Measured> measured;
  for (const Contender& contender : contenders) {
    Measured one{contender, {}, {}};
    if (const Status ran = RunOnce(one); !ran.ok()) {
      std::fprintf(stderr, "  left out: %s\n", ran.error().message.c_str());
      continue;
    }
    result.screened.emplace_back(contender.name, one.tokens_per_s[0]);
    measured.push_back(std::move(one));
  }
  if (measured.empty()) return Unavailable("no peer setting ran for row '" + result.row.name + "'");
  std::sort(measured.begin(), measured.end(), [](const Measured& a, const Measured& b) {
    return a.tokens_per_s[0] > b.tokens_per_s[0];
  });
  measured.resize(std::min(measured.size(), kFinalists));
  for (Measured& one : measured) one.tokens_per_s.clear();
  return measured;
}

Result<RowResult> RunRow(const ComparisonRow& row, const Contender& own,
                         const std::vector<Contender>& peers, int64_t rounds) {
  RowResult result;
  result.row = row;
  result.own.contender = own;
  std::fprintf(stderr, "%s: screening %zu peer settings\n", row.name.c_str(), peers.size());
  KVRM_ASSIGN_OR_RETURN(std::vector<Measured> finalists, Screen(peers, result));
  const QuietGate gate;
  for (int64_t round = 0; round < rounds; ++round) {
    std::fprintf(stderr, "%s: round %s of %s\n", row.name.c_str(),
                 std::to_string(round + 1).c_str(), std::to_string(rounds).c_str());
    KVRM_RETURN_IF_ERROR(RunOnce(result.own));
    for (Measured& peer : finalists) KVRM_RETURN_IF_ERROR(RunOnce(peer));
  }
  result.others_percent = gate.OthersPercent();
  result.best_peer =
      *std::max_element(finalists.begin(), finalists.end(),
                        [](const auto& a, const auto& b) { return a.median() < b.median(); });
  return result;
}

std::optional<FloorShare> OwnFloor(const RowResult& result) {
  const auto json = boost::json::parse(result.own.last_output).as_object();
  const auto* floor = json.if_contains("floor");
  if (floor == nullptr) return std::nullopt;
  return FloorShare{floor->at("ms").to_number<double>(), floor->at("share").to_number<double>()};
}

// The peer's own: the bytes of its file once and of its keys and values (as many as ours, in its
// format), over the bandwidth at that working set; or our operations at the peak of its arithmetic.
std::optional<FloorShare> PeerFloor(const RowResult& result, uint32_t threads) {
  const auto json = boost::json::parse(result.own.last_output).as_object();
  const auto* own = json.if_contains("floor");
  if (own == nullptr) return std::nullopt;
  const Contender& peer = result.best_peer.contender;
  FloorShare floor;
  if (result.row.prefill) {
    floor.ms = own->at("ms").to_number<double>();
    if (peer.model.ends_with(".F16.gguf")) {
      floor.ms = 1e3 * own->at("operations").to_number<double>() /
                 MeasureArithmeticPeak(threads).float_ops_per_s;
    }
    floor.share = floor.ms * result.best_peer.median() / (1e3 * result.row.tokens);
    return floor;
  }
  std::error_code error;
  const uint64_t weight_bytes = std::filesystem::file_size(peer.model, error);
  if (error) return std::nullopt;
  const double kv_bytes =
      own->at("kv_bytes").to_number<double>() * (peer.kv_q8_0 ? 34.0 / 64.0 : 1.0);
  const uint64_t bytes = weight_bytes + static_cast<uint64_t>(kv_bytes);
  floor.ms = 1e3 * static_cast<double>(bytes) / MeasureReadBandwidth(bytes, threads);
  floor.share = floor.ms * result.best_peer.median() / (1e3 * result.row.num_seqs);
  return floor;
}

std::string FloorText(const std::optional<FloorShare>& floor) {
  return floor ? floor->Text() : "not measured here";
}

void PrintText(const OptionValues& values, const std::vector<RowResult>& results) {
  std::vector<std::vector<std::string>> rows = {{"row", "kvrm t/s", "best peer t/s", "ratio",
                                                 "goal", "kvrm floor", "peer floor", "peer setting",
                                                 "others"}};
  for (const RowResult& result : results) {
    const bool noisy = result.others_percent && *result.others_percent > values.Float("max-others");
    rows.push_back({result.row.name, fmt::format("{:.1f}", result.own.median()),
                    fmt::format("{:.1f}", result.best_peer.median()),
                    fmt::format("{:.2f}x", result.ratio()),
                    fmt::format("{:.1f}x {}", result.row.goal,
                                result.ratio() >= result.row.goal ? "met" : "missed"),
                    FloorText(OwnFloor(result)), FloorText(result.best_peer_floor),
                    result.best_peer.contender.name,
                    result.others_percent
                        ? fmt::format("{:.1f} %{}", *result.others_percent, noisy ? " NOISY" : "")
                        : "unknown"});
  }
  const Machine machine = ThisMachine();
  std::printf("%s\n", MarkdownTable(rows).c_str());
  // What sharing a step is worth, at the same number of tokens in each cache; and beside an empty
  // cache, where the lone stream has less to read.
  const double eight = results[1].own.median();
  const double gain = eight / results[3].own.median();
  std::printf("8 streams x 512 over 1 stream x 512: %.2fx (goal 3.0x %s); over 1 stream: %.2fx\n",
              gain, gain >= 3 ? "met" : "missed", eight / results[0].own.median());
  for (const RowResult& result : results) {
    std::printf("%s:\n  %s\n  %s\n", result.row.name.c_str(),
                CommandLine(result.own.contender.command).c_str(),
                CommandLine(result.best_peer.contender.command).c_str());
  }
  std::printf("%s, %u CPUs, %s, %s\n", machine.cpu.c_str(), machine.cpus, machine.compiler.c_str(),
              DateUtc().c_str());
}

boost::json::object MeasuredJson(const Measured& measured) {
  return {
      {"setting", measured.contender.name},
      {"command", CommandLine(measured.contender.command)},
      {"median", measured.median()},
      {"samples", boost::json::array(measured.tokens_per_s.begin(), measured.tokens_per_s.end())}};
}

void PrintJson(const OptionValues& values, const std::vector<RowResult>& results) {
  boost::json::array rows;
  for (const RowResult& result : results) {
    boost::json::object screened;
    for (const auto& [name, rate] : result.screened) screened[name] = rate;
    boost::json::object row{{"row", result.row.name},
                            {"goal", result.row.goal},
                            {"ratio", result.ratio()},
                            {"kvrm", MeasuredJson(result.own)},
                            {"kvrm_last", boost::json::parse(result.own.last_output)},
                            {"best_peer", MeasuredJson(result.best_peer)},
                            {"screened_tokens_per_s", std::move(screened)}};
    if (result.best_peer_floor) {
      row["best_peer_floor"] = {{"ms", result.best_peer_floor->ms},
                                {"share", result.best_peer_floor->share}};
    }
    if (result.others_percent) {
      row["others_percent"] = *result.others_percent;
      row["noisy"] = *result.others_percent > values.Float("max-others");
    }
    rows.push_back(std::move(row));
  }
  const boost::json::object json{{"schema", kResultSchema},
                                 {"rows", std::move(rows)},
                                 {"machine", ToJson(ThisMachine())},
                                 {"date", DateUtc()}};
  std::printf("%s\n", boost::json::serialize(json).c_str());
}

Result<std::vector<RowResult>> RunAll(const OptionValues& values) {
  KVRM_ASSIGN_OR_RETURN(const std::string model, FindModel(values.Text("model"), ModelsDir()));
  const std::string dir =
      values.Text("rivals").empty() ? CacheDir() + "/rivals" : values.Text("rivals");
  KVRM_ASSIGN_OR_RETURN(const RivalPlaces places, FindRivals(dir, model));
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) return Unavailable("/proc/self/exe: " + error.message());
  const auto asked = static_cast<uint32_t>(values.Int("threads"));
  const uint32_t threads = asked != 0 ? asked : AllowedCpus();
  std::vector<RowResult> results;
  for (const ComparisonRow& row : ComparisonRows()) {
    KVRM_ASSIGN_OR_RETURN(RowResult result,
                          RunRow(row, OwnContender(row, program, model, threads),
                                 RivalContenders(row, places, threads), values.Int("repetitions")));
    result.best_peer_floor = PeerFloor(result, threads);
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace

int RunBenchVersus(const OptionValues& values) {
  const auto results = RunAll(values);
  if (!results.ok()) return Failed(values, results.error());
  if (values.Flag("json")) {
    PrintJson(values, *results);
  } else {
    PrintText(values, *results);
  }
  return kExitDone;
}

}  // namespace kvrm::cli
