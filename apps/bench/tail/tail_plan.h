// What a tail comparison consists of: the servers, the three scenarios, and the goals as a pure
// function of what was seen. Plain data; thread-safe.
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

enum class TailSide : uint8_t { kOurs, kOursWithoutBudget, kPeerDefault, kPeerTuned };

struct TailServer {
  std::string name;
  TailSide side = TailSide::kOurs;
  std::vector<std::string> command;  // but for the port: `--port N` comes last
};

struct TailSetup {
  std::string own_program, peer_program, model;
  uint32_t slots = 16;
  uint32_t ctx = 4096;  // of a slot
};
// Ours with and without a gap budget, the peer as it comes, and its tunings.
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

// One server under one scenario.
struct TailRun {
  char scenario = 'a';
  TailServer server;
  LoadReport report;
  std::optional<double> budget_ms;  // ours, as it said at its start
  // Of all gaps, those over the budget whose cause was stolen CPU time or none that it knows.
  std::optional<double> unexplained_share;
};

struct TailGoal {
  char scenario = 'a';
  std::string text;         // "p99 of all gaps <= budget + 10 ms"
  std::string seen;         // "58.1 <= 60.0 ms"
  std::optional<bool> met;  // nullopt: something that it needs was not seen
};
// From our server's /metrics; nullopt: it does not say, or no gap was seen.
std::optional<double> UnexplainedShare(const std::string& metrics);
std::vector<TailGoal> TailGoals(const std::vector<TailRun>& runs);

// ---- reports
std::string TailText(const std::vector<TailRun>& runs, const std::vector<TailGoal>& goals);
boost::json::object TailJson(const std::vector<TailRun>& runs, const std::vector<TailGoal>& goals,
                             const std::string& command);
std::string TailHtml(const std::vector<TailRun>& runs, const std::vector<TailGoal>& goals,
                     const std::string& command);

}  // namespace kvrm::cli
