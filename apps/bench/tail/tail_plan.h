// What a tail comparison consists of: the servers, the three scenarios, which runs are taken again,
// and the goals as a pure function of what was seen. Plain data; thread-safe.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/load/figures.h"
#include "bench/load/load_report.h"
#include "bench/load/trace.h"

namespace kvrm::cli {

enum class TailSide : uint8_t {
  kOurs,
  kOursWithoutBudget,
  kLlamaDefault,
  kLlamaTuned,
  kOpenVino,  // in (a) alone, and so vLLM
  kVllm
};

struct TailServer {
  std::string name;
  TailSide side = TailSide::kOurs;
  std::vector<std::string> command;  // of a server but for the port: `--port N` comes last
  bool piped = false;                // no server: piped_engine.h
};

struct TailSetup {
  std::string own_program, model;
  std::string llama_server, open_vino_driver, vllm;  // empty: not in this sitting
  std::string vllm_model;  // what vLLM reads: a folder, of `model` or made from it
  uint32_t slots = 16;
  uint32_t ctx = 4096;     // of a slot
  uint32_t threads = 2;    // of engines that have to be told
  std::string kv = "f16";  // format of our keys and values; each rival has its own
};
// Ours with and without a gap budget; each rival as it comes, and its tunings.
std::vector<TailServer> TailServers(const TailSetup& setup);

// Scenario (a): eight streams, and every 8 s a prompt of 1,500 tokens.
std::string InjectedScenario(uint32_t seconds);
// (b): mixed chat, `rate` requests a second. (c): the peak minute of a trace, `speed` times as
// fast.
std::string MixedScenario(uint32_t seconds, double rate);
std::string TraceScenario(uint32_t seconds, double speed);
// The same requests as fast as `slots` at once are answered: what a server is capable of.
std::string MixedCapacity(uint32_t seconds, uint32_t slots);
std::string TraceCapacity(uint32_t seconds, uint32_t slots);
inline constexpr const char* kTailTrace = "azure_llm_2023/peak60s_conv.csv";

// Requests a second at which a server that gives `tokens_per_s` to the requests of `run` is loaded
// to `share`. 0: nothing was seen.
double RateAtShare(double share, double tokens_per_s, const LoadRun& run);
// Requests a second of a trace at its own speed.
double TraceRate(const Trace& trace);

// Shares of all gaps that were over the budget for these causes.
struct UnexplainedGaps {
  double stolen = 0;  // others had the CPU
  double other = 0;   // none that the server knows
  double total() const { return stolen + other; }
};
inline constexpr double kMostUnexplained = 0.002;
// From our server's /metrics; nullopt: it does not say, or no gap was seen.
std::optional<UnexplainedGaps> UnexplainedIn(const std::string& metrics);

// One server under one scenario.
struct TailRun {
  char scenario = 'a';
  TailServer server;
  LoadReport report;
  std::optional<double> budget_ms;             // ours, as it said at its start
  std::optional<UnexplainedGaps> unexplained;  // ours
  std::vector<std::string> set_aside;  // earlier tries of this run: why each of them does not count
};
inline constexpr size_t kMostTries = 3;
// Why a run should be taken again: somebody else had the machine. nullopt: it counts.
std::optional<std::string> NotQuiet(const TailRun& run);
// Whether goals can be told from a run of ours: its gaps are explained, however busy others were.
bool GivesVerdict(const TailRun& ours);

struct TailGoal {
  char scenario = 'a';
  std::string text;         // "p99 of all gaps <= budget + 10 ms"
  std::string seen;         // "58.1 <= 60.0 ms"
  std::optional<bool> met;  // nullopt: something that it needs was not seen, or as follows
  bool quiet = true;        // false: each try was disturbed, so there is no verdict
  size_t attempt = 1;       // the try of our run that it is about
};
// Rivals that no run is of have no goals.
std::vector<TailGoal> TailGoals(const std::vector<TailRun>& runs);

// ---- reports
std::string TailText(const std::vector<TailRun>& runs, const std::vector<TailGoal>& goals);
boost::json::object TailJson(const std::vector<TailRun>& runs, const std::vector<TailGoal>& goals,
                             const std::string& command);
std::string TailHtml(const std::vector<TailRun>& runs, const std::vector<TailGoal>& goals,
                     const std::string& command);

}  // namespace kvrm::cli
