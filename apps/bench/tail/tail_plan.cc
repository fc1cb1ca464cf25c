#include "bench/tail/tail_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <utility>

namespace kvrm::cli {
namespace {

std::string Head(const char* name, const char* api, uint32_t seconds) {
  return fmt::format("name = \"{}\"\napi = \"{}\"\nduration-s = {}\nwarmup-s = {}\ndrain-s = 8\n",
                     name, api, seconds, std::min(seconds / 5, 4u));
}

// What a chat service sees: mostly short talk, some documents.
std::string MixedSources(double rate) {
  return fmt::format(
      "[talk]\narrivals = \"poisson\"\nrate = {}\nprompt-tokens = \"lognormal 120 0.8\"\n"
      "output-tokens = \"lognormal 90 0.6\"\n"
      "[documents]\narrivals = \"poisson\"\nrate = {}\nprompt-tokens = \"uniform 600 1500\"\n"
      "output-tokens = \"uniform 50 200\"\n",
      0.85 * rate, 0.15 * rate);
}

std::string TraceSource(double speed) {
  return fmt::format(
      "[conversations]\narrivals = \"trace\"\ntrace = \"{}\"\nspeed = {}\n"
      "prompt-tokens = \"trace\"\noutput-tokens = \"trace\"\n",
      kTailTrace, speed);
}

// Everything is due at once, and as many are open as there are slots. The warm-up is for the first
// prompts, which all stand at the beginning: what follows is the mix that a server is to keep up.
std::string CapacityHead(const char* name, const char* api, uint32_t seconds, uint32_t warmup,
                         uint32_t slots) {
  return fmt::format(
      "name = \"{}\"\napi = \"{}\"\nduration-s = {}\nwarmup-s = {}\ndrain-s = 0\nmax-open = {}\n",
      name, api, seconds, warmup, slots);
}

}  // namespace

std::vector<TailServer> TailServers(const TailSetup& setup) {
  const std::string slots = std::to_string(setup.slots), ctx = std::to_string(setup.ctx);
  const std::string all_ctx = std::to_string(uint64_t{setup.slots} * setup.ctx);
  const auto own = [&](std::string name, TailSide side, const char* budget) {
    return TailServer{std::move(name),
                      side,
                      {setup.own_program, "serve", "-m", setup.model, "--slots", slots, "--ctx",
                       ctx, "--max-itl-ms", budget}};
  };
  const auto peer = [&](std::string name, TailSide side, const std::vector<std::string>& flags) {
    TailServer server{std::move(name),
                      side,
                      {setup.peer_program, "-m", setup.model, "-np", slots, "-c", all_ctx}};
    server.command.insert(server.command.end(), flags.begin(), flags.end());
    return server;
  };
  return {
      own("kvrm", TailSide::kOurs, "auto"),
      own("kvrm, no budget", TailSide::kOursWithoutBudget, "0"),
      peer("llama-server", TailSide::kPeerDefault, {}),
      peer("llama-server -b 128", TailSide::kPeerTuned, {"-b", "128", "-ub", "128", "-fa", "off"}),
      peer("llama-server -b 128 -fa on", TailSide::kPeerTuned,
           {"-b", "128", "-ub", "128", "-fa", "on"})};
}

std::string InjectedScenario(uint32_t seconds) {
  return Head("a: 8 streams, a prompt of 1,500 tokens every 8 s", "completions", seconds) +
         "[streams]\narrivals = \"closed\"\nclients = 8\nprompt-tokens = 64\n"
         "output-tokens = \"uniform 300 500\"\n"
         "[injected]\narrivals = \"constant\"\nrate = 0.125\n"
         "start-s = 2\nprompt-tokens = 1500\noutput-tokens = 16\n";
}

std::string MixedScenario(uint32_t seconds, double rate) {
  return Head("b: mixed chat at 60 % of the slower side's capacity", "chat", seconds) +
         MixedSources(rate);
}

std::string TraceScenario(uint32_t seconds, double speed) {
  return Head("c: Azure conversations, peak minute, at 60 % of our capacity", "completions",
              seconds) +
         TraceSource(speed);
}

std::string MixedCapacity(uint32_t seconds, uint32_t slots) {
  return CapacityHead("capacity of mixed chat", "chat", seconds, seconds / 3, slots) +
         MixedSources(1000);
}

std::string TraceCapacity(uint32_t seconds, uint32_t slots) {
  return CapacityHead("capacity of Azure conversations", "completions", seconds, seconds / 2,
                      slots) +
         TraceSource(1000);
}

double RateAtShare(double share, double tokens_per_s, const LoadRun& run) {
  double tokens = 0;
  for (const RequestRecord& record : run.records) tokens += record.asked_output_tokens;
  return tokens == 0 ? 0 : share * tokens_per_s * static_cast<double>(run.records.size()) / tokens;
}

double TraceRate(const Trace& trace) {
  if (trace.rows.size() < 2) return 0;
  const int64_t span_us = trace.rows.back().arrival_us - trace.rows.front().arrival_us;
  return span_us <= 0
             ? 0
             : static_cast<double>(trace.rows.size() - 1) * 1e6 / static_cast<double>(span_us);
}

// ---- goals

namespace {

using Figure = std::function<std::optional<double>(const TailRun&)>;

std::optional<double> P99Gap(const TailRun& run) {
  const Distribution& gaps = run.report.figures.all.itl_ms;
  return gaps.empty() ? std::nullopt : std::optional(gaps.PerMille(990));
}
std::optional<double> TokensPerSecond(const TailRun& run) {
  return run.report.figures.window_tokens_per_s;
}
// The median over the injected prompts.
std::optional<double> InjectedTtft(const TailRun& run) {
  for (const RequestFigures& source : run.report.figures.sources) {
    if (source.name == "injected" && !source.ttft_ms.empty()) return source.ttft_ms.PerMille(500);
  }
  return std::nullopt;
}

// The least of `figure` over a side's runs of a scenario.
std::optional<double> Least(const std::vector<TailRun>& runs, char scenario, TailSide side,
                            const Figure& figure) {
  std::optional<double> least;
  for (const TailRun& run : runs) {
    if (run.scenario != scenario || run.server.side != side) continue;
    const std::optional<double> value = figure(run);
    if (value && (!least || *value < *least)) least = value;
  }
  return least;
}

// `value` <= `share` x `other`.
TailGoal AtMost(char scenario, std::string text, std::optional<double> value, double share,
                std::optional<double> other) {
  TailGoal goal{scenario, std::move(text), "not measured", std::nullopt};
  if (!value || !other) return goal;
  goal.met = *value <= share * *other;
  goal.seen = fmt::format("{:.1f}, limit {:.1f} ({:.3f} of {:.1f})", *value, share * *other,
                          *other > 0 ? *value / *other : 0, *other);
  return goal;
}

const TailRun* OurRun(const std::vector<TailRun>& runs, char scenario) {
  for (const TailRun& run : runs) {
    if (run.scenario == scenario && run.server.side == TailSide::kOurs) return &run;
  }
  return nullptr;
}

void OwnGoals(const TailRun& ours, std::vector<TailGoal>& goals) {
  const std::optional<double> limit =
      ours.budget_ms ? std::optional(*ours.budget_ms + 10) : std::nullopt;
  goals.push_back(
      AtMost(ours.scenario, "p99 of all gaps, ms, <= budget + 10 ms", P99Gap(ours), 1, limit));
  const uint64_t refused = ours.report.figures.all.outcomes[static_cast<size_t>(Outcome::kHttp429)];
  goals.push_back({ours.scenario, "no request is refused with 429",
                   fmt::format("{} refused", refused), refused == 0});
  TailGoal cause{ours.scenario, "gaps over budget for stolen or other causes <= 0.2 %",
                 "not told by the server", std::nullopt};
  if (ours.unexplained_share) {
    cause.met = *ours.unexplained_share <= 0.002;
    cause.seen = fmt::format("{:.3f} %", 100 * *ours.unexplained_share);
  }
  goals.push_back(std::move(cause));
}

}  // namespace

std::optional<double> UnexplainedShare(const std::string& metrics) {
  double gaps = 0, unexplained = 0;
  for (size_t begin = 0; begin < metrics.size();) {
    const size_t end = std::min(metrics.find('\n', begin), metrics.size());
    const std::string line = metrics.substr(begin, end - begin);
    begin = end + 1;
    const auto value = [&] { return std::strtod(line.c_str() + line.rfind(' '), nullptr); };
    if (line.starts_with("kvrm_inter_token_seconds_count")) gaps = value();
    if (!line.starts_with("kvrm_gaps_over_budget_total{")) continue;
    for (const char* cause : {"cause=\"stolen\"", "cause=\"other\""}) {
      if (line.find(cause) != std::string::npos) unexplained += value();
    }
  }
  return gaps > 0 ? std::optional(unexplained / gaps) : std::nullopt;
}

std::vector<TailGoal> TailGoals(const std::vector<TailRun>& runs) {
  std::vector<TailGoal> goals;
  for (const char scenario : {'a', 'b', 'c'}) {
    const TailRun* ours = OurRun(runs, scenario);
    if (ours == nullptr) continue;
    OwnGoals(*ours, goals);
    const auto by_default = Least(runs, scenario, TailSide::kPeerDefault, P99Gap);
    const auto tuned = Least(runs, scenario, TailSide::kPeerTuned, P99Gap);
    goals.push_back(AtMost(scenario, "p99 of all gaps, ms, <= 1/10 of llama-server's default",
                           P99Gap(*ours), 0.1, by_default));
    goals.push_back(AtMost(scenario, "p99 of all gaps, ms, <= 1/4 of its best tuning",
                           P99Gap(*ours), 0.25, tuned));
    if (scenario != 'a') continue;
    const auto unbounded = Least(runs, 'a', TailSide::kOursWithoutBudget, TokensPerSecond);
    TailGoal rate = AtMost('a', "output tokens/s >= 95 % of ours without a budget", unbounded,
                           1 / 0.95, TokensPerSecond(*ours));
    if (unbounded) {
      rate.seen = fmt::format("{:.1f} of {:.1f}", *TokensPerSecond(*ours), *unbounded);
    }
    goals.push_back(std::move(rate));
    std::optional<double> ttft = Least(runs, 'a', TailSide::kPeerDefault, InjectedTtft);
    const auto tuned_ttft = Least(runs, 'a', TailSide::kPeerTuned, InjectedTtft);
    if (tuned_ttft && (!ttft || *tuned_ttft < *ttft)) ttft = tuned_ttft;
    goals.push_back(AtMost('a', "TTFT p50 of injected prompts, ms, <= 1/3 of its best",
                           InjectedTtft(*ours), 1.0 / 3, ttft));
  }
  return goals;
}

}  // namespace kvrm::cli
