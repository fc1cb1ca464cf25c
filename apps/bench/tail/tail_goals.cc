// Which runs count, and what they are held to.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <utility>

#include "bench/tail/tail_plan.h"

namespace kvrm::cli {
namespace {

using Figure = std::function<std::optional<double>(const TailRun&)>;

std::optional<double> P99Gap(const TailRun& run) {
  const Distribution& gaps = run.report.figures.all.itl_ms;
  return gaps.empty() ? std::nullopt : std::optional(gaps.PerMille(990));
}
std::optional<double> LongestGap(const TailRun& run) {
  const Distribution& gaps = run.report.figures.all.itl_ms;
  return gaps.empty() ? std::nullopt : std::optional(gaps.PerMille(1000));
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

std::string UnexplainedText(const UnexplainedGaps& gaps) {
  return fmt::format("{:.3f} % (stolen {:.3f}, other {:.3f})", 100 * gaps.total(),
                     100 * gaps.stolen, 100 * gaps.other);
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
  if (ours.unexplained) {
    cause.met = ours.unexplained->total() <= kMostUnexplained;
    cause.seen = UnexplainedText(*ours.unexplained);
  }
  goals.push_back(std::move(cause));
}

void LlamaGoals(const std::vector<TailRun>& runs, const TailRun& ours,
                std::vector<TailGoal>& goals) {
  const char scenario = ours.scenario;
  const auto by_default = Least(runs, scenario, TailSide::kLlamaDefault, P99Gap);
  const auto tuned = Least(runs, scenario, TailSide::kLlamaTuned, P99Gap);
  goals.push_back(AtMost(scenario, "p99 of all gaps, ms, <= 1/10 of llama-server's default",
                         P99Gap(ours), 0.1, by_default));
  goals.push_back(AtMost(scenario, "p99 of all gaps, ms, <= 1/4 of its best tuning", P99Gap(ours),
                         0.25, tuned));
  if (scenario != 'a') return;
  std::optional<double> ttft = Least(runs, 'a', TailSide::kLlamaDefault, InjectedTtft);
  const auto tuned_ttft = Least(runs, 'a', TailSide::kLlamaTuned, InjectedTtft);
  if (tuned_ttft && (!ttft || *tuned_ttft < *ttft)) ttft = tuned_ttft;
  goals.push_back(AtMost('a', "TTFT p50 of injected prompts, ms, <= 1/3 of its best",
                         InjectedTtft(ours), 1.0 / 3, ttft));
}

void ThroughputGoal(const std::vector<TailRun>& runs, const TailRun& ours,
                    std::vector<TailGoal>& goals) {
  const auto unbounded = Least(runs, 'a', TailSide::kOursWithoutBudget, TokensPerSecond);
  TailGoal rate = AtMost('a', "output tokens/s >= 95 % of ours without a budget", unbounded,
                         1 / 0.95, TokensPerSecond(ours));
  if (unbounded) rate.seen = fmt::format("{:.1f} of {:.1f}", *TokensPerSecond(ours), *unbounded);
  goals.push_back(std::move(rate));
}

// Half of the gaps and of the wait of one setting of a rival, at no less throughput.
TailGoal HalfOf(const TailRun& ours, const TailRun& rival, bool best) {
  TailGoal goal{'a',
                fmt::format("p99 and longest gap <= 1/2, TTFT p50 of injected <= 1/2, at no less "
                            "tokens/s: {}{}",
                            rival.server.name, best ? " (its least p99)" : ""),
                "not measured", std::nullopt};
  const Figure figures[] = {P99Gap, LongestGap, InjectedTtft};
  std::string seen;
  bool met = true;
  for (const Figure& figure : figures) {
    const auto own = figure(ours), other = figure(rival);
    if (!own || !other) return goal;
    seen += fmt::format("{:.1f} of {:.1f}, ", *own, *other);
    met = met && *own <= 0.5 * *other;
  }
  const double own_rate = *TokensPerSecond(ours), other_rate = *TokensPerSecond(rival);
  goal.met = met && own_rate >= other_rate;
  goal.seen = seen + fmt::format("{:.1f} of {:.1f} tok/s", own_rate, other_rate);
  return goal;
}

void HalfGoals(const std::vector<TailRun>& runs, const TailRun& ours, TailSide side,
               std::vector<TailGoal>& goals) {
  const auto least = Least(runs, 'a', side, P99Gap);
  for (const TailRun& run : runs) {
    if (run.scenario != 'a' || run.server.side != side) continue;
    goals.push_back(HalfOf(ours, run, least && P99Gap(run) == least));
  }
}

bool HasSide(const std::vector<TailRun>& runs, TailSide side) {
  return std::any_of(runs.begin(), runs.end(),
                     [side](const TailRun& run) { return run.server.side == side; });
}

std::vector<TailGoal> GoalsOf(const std::vector<TailRun>& runs, const TailRun& ours) {
  std::vector<TailGoal> goals;
  OwnGoals(ours, goals);
  if (ours.scenario == 'a') ThroughputGoal(runs, ours, goals);
  if (HasSide(runs, TailSide::kLlamaDefault)) LlamaGoals(runs, ours, goals);
  if (ours.scenario == 'a') {
    HalfGoals(runs, ours, TailSide::kOpenVino, goals);
    HalfGoals(runs, ours, TailSide::kVllm, goals);
  }
  return goals;
}

}  // namespace

std::optional<UnexplainedGaps> UnexplainedIn(const std::string& metrics) {
  double gaps = 0;
  UnexplainedGaps counts;
  for (size_t begin = 0; begin < metrics.size();) {
    const size_t end = std::min(metrics.find('\n', begin), metrics.size());
    const std::string line = metrics.substr(begin, end - begin);
    begin = end + 1;
    const auto value = [&] { return std::strtod(line.c_str() + line.rfind(' '), nullptr); };
    if (line.starts_with("kvrm_inter_token_seconds_count")) gaps = value();
    if (!line.starts_with("kvrm_gaps_over_budget_total{")) continue;
    if (line.find("cause=\"stolen\"") != std::string::npos) counts.stolen += value();
    if (line.find("cause=\"other\"") != std::string::npos) counts.other += value();
  }
  if (gaps == 0) return std::nullopt;
  return UnexplainedGaps{counts.stolen / gaps, counts.other / gaps};
}

bool GivesVerdict(const TailRun& ours) {
  return !ours.unexplained || ours.unexplained->total() <= kMostUnexplained;
}

std::optional<std::string> NotQuiet(const TailRun& run) {
  if (!GivesVerdict(run)) {
    return "gaps over budget for stolen or other causes: " + UnexplainedText(*run.unexplained);
  }
  if (run.report.noisy()) {
    return fmt::format("others used {:.1f} % of the machine", *run.report.others_percent);
  }
  return std::nullopt;
}

std::vector<TailGoal> TailGoals(const std::vector<TailRun>& runs) {
  std::vector<TailGoal> goals;
  for (const char scenario : {'a', 'b', 'c'}) {
    const TailRun* ours = OurRun(runs, scenario);
    if (ours == nullptr) continue;
    for (TailGoal& goal : GoalsOf(runs, *ours)) {
      goal.quiet = GivesVerdict(*ours);
      goal.attempt = ours->set_aside.size() + 1;
      if (!goal.quiet) goal.met = std::nullopt;
      goals.push_back(std::move(goal));
    }
  }
  return goals;
}

}  // namespace kvrm::cli
