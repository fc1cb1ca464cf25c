// What a tail comparison is printed as.
#include <fmt/format.h>

#include "bench/load/plots.h"
#include "bench/result.h"
#include "bench/subprocess.h"
#include "bench/table.h"
#include "bench/tail/tail_plan.h"

namespace kvrm::cli {
namespace {

std::string At(const Distribution& samples, uint32_t per_mille) {
  return samples.empty() ? "none" : fmt::format("{:.1f}", samples.PerMille(per_mille));
}

std::string OthersText(const LoadReport& report) {
  if (!report.others_percent) return "unknown";
  return fmt::format("{:.1f} %{}", *report.others_percent, report.noisy() ? " NOISY" : "");
}

// Of the injected prompts where there are some, else of all.
const RequestFigures& PromptsOf(const LoadFigures& figures) {
  for (const RequestFigures& source : figures.sources) {
    if (source.name == "injected") return source;
  }
  return figures.all;
}

std::string RunTable(const std::vector<TailRun>& runs, char scenario) {
  std::vector<std::vector<std::string>> rows = {{"ms", "tok/s", "gap p50", "gap p99", "p99.9",
                                                 "longest", "TTFT p50", "TTFT max", "done",
                                                 "errors", "client CPU", "others"}};
  for (const TailRun& run : runs) {
    if (run.scenario != scenario) continue;
    const LoadFigures& figures = run.report.figures;
    const RequestFigures& all = figures.all;
    const Distribution& ttft = PromptsOf(figures).ttft_ms;
    std::string name = run.server.name;
    if (run.budget_ms) name += fmt::format(", budget {:.0f} ms", *run.budget_ms);
    rows.push_back({name, fmt::format("{:.1f}", figures.window_tokens_per_s), At(all.itl_ms, 500),
                    At(all.itl_ms, 990), At(all.itl_ms, 999), At(all.itl_ms, 1000), At(ttft, 500),
                    At(ttft, 1000),
                    std::to_string(all.outcomes[static_cast<size_t>(Outcome::kDone)]),
                    std::to_string(all.errors()), fmt::format("{:.1f} %", figures.own_cpu_percent),
                    OthersText(run.report)});
  }
  return MarkdownTable(rows);
}

std::string MetText(const TailGoal& goal) {
  if (!goal.quiet) return "no verdict: machine not quiet";
  if (!goal.met) return "not measured";
  const std::string of = goal.attempt > 1 ? fmt::format(" (run {})", goal.attempt) : "";
  return (*goal.met ? "met" : "MISSED") + of;
}

std::string GoalTable(const std::vector<TailGoal>& goals, char scenario) {
  std::vector<std::vector<std::string>> rows = {{"goal", "seen", ""}};
  for (const TailGoal& goal : goals) {
    if (goal.scenario == scenario) rows.push_back({goal.text, goal.seen, MetText(goal)});
  }
  return MarkdownTable(rows);
}

// The scenarios that ran, in order, by key and title.
std::vector<std::pair<char, std::string>> Scenarios(const std::vector<TailRun>& runs) {
  std::vector<std::pair<char, std::string>> scenarios;
  for (const TailRun& run : runs) {
    if (!scenarios.empty() && scenarios.back().first == run.scenario) continue;
    scenarios.emplace_back(run.scenario, run.report.workload.name);
  }
  return scenarios;
}

std::string CutText(const std::vector<TailRun>& runs, char scenario) {
  for (const TailRun& run : runs) {
    const RequestFigures& all = run.report.figures.all;
    if (run.scenario != scenario || all.cut_requests == 0 || all.wanted_tokens == 0) continue;
    return fmt::format(
        "cut to a context of {}: {} of {} requests, {:.1f} % of tokens\n",
        run.report.context_tokens, all.cut_requests, all.due,
        100 * static_cast<double>(all.cut_tokens) / static_cast<double>(all.wanted_tokens));
  }
  return "";
}

// Which runs were taken again and why, and which of them counts.
std::string RepeatText(const std::vector<TailRun>& runs, char scenario) {
  std::string text;
  for (const TailRun& run : runs) {
    if (run.scenario != scenario) continue;
    const size_t tries = run.set_aside.size() + 1;
    const std::string& name = run.server.name;
    for (size_t i = 0; i + 1 < tries; ++i) {
      text += fmt::format("{}: run {} of {} set aside and repeated: {}\n", name, i + 1, tries,
                          run.set_aside[i]);
    }
    const std::optional<std::string> still = NotQuiet(run);
    const bool counts = run.server.side != TailSide::kOurs || GivesVerdict(run);
    if (tries == 1 && !still) continue;
    text += fmt::format("{}: {}{}\n", name,
                        counts ? fmt::format("run {} of {} counts", tries, tries)
                               : fmt::format("none of {} runs counts", tries),
                        still ? ", machine not quiet: " + *still : "");
  }
  return text;
}

// What stands below a scenario's title.
std::string ScenarioText(const std::vector<TailRun>& runs, const std::vector<TailGoal>& goals,
                         char scenario) {
  return RunTable(runs, scenario) + CutText(runs, scenario) + RepeatText(runs, scenario) + "\n" +
         GoalTable(goals, scenario);
}

std::string Sitting(const std::vector<TailRun>& runs) {
  std::string text;
  for (const TailRun& run : runs) {
    const std::string line = CommandLine(run.server.command) + "\n";
    if (text.find(line) == std::string::npos) text += line;
  }
  if (!runs.empty()) {
    text += runs.front().report.machine_text + ", " + runs.front().report.date + "\n";
  }
  return text;
}

}  // namespace

std::string TailText(const std::vector<TailRun>& runs, const std::vector<TailGoal>& goals) {
  std::string text;
  for (const auto& [scenario, title] : Scenarios(runs)) {
    text += "## " + title + "\n\n" + ScenarioText(runs, goals, scenario) + "\n";
  }
  return text + Sitting(runs);
}

boost::json::object TailJson(const std::vector<TailRun>& runs, const std::vector<TailGoal>& goals,
                             const std::string& command) {
  boost::json::array run_array, goal_array;
  for (const TailRun& run : runs) {
    boost::json::object object{{"scenario", std::string(1, run.scenario)},
                               {"server", run.server.name},
                               {"server_command", CommandLine(run.server.command)},
                               {"load", LoadJson(run.report)}};
    if (run.budget_ms) object["budget_ms"] = *run.budget_ms;
    if (run.unexplained) {
      object["stolen_share"] = run.unexplained->stolen;
      object["other_share"] = run.unexplained->other;
    }
    object["set_aside"] = boost::json::array(run.set_aside.begin(), run.set_aside.end());
    const std::optional<std::string> not_quiet = NotQuiet(run);
    if (not_quiet) object["not_quiet"] = *not_quiet;
    run_array.push_back(std::move(object));
  }
  for (const TailGoal& goal : goals) {
    boost::json::object object{
        {"scenario", std::string(1, goal.scenario)}, {"goal", goal.text}, {"seen", goal.seen}};
    object["quiet"] = goal.quiet;
    object["run"] = goal.attempt;
    object["met"] = goal.met ? boost::json::value(*goal.met) : boost::json::value(nullptr);
    goal_array.push_back(std::move(object));
  }
  return {{"schema", kResultSchema},
          {"test", "tail"},
          {"command", command},
          {"runs", std::move(run_array)},
          {"goals", std::move(goal_array)}};
}

std::string TailHtml(const std::vector<TailRun>& runs, const std::vector<TailGoal>& goals,
                     const std::string& command) {
  std::string body;
  for (const auto& [scenario, title] : Scenarios(runs)) {
    std::vector<NamedSamples> gaps;
    for (const TailRun& run : runs) {
      if (run.scenario != scenario) continue;
      gaps.emplace_back(run.server.name, &run.report.figures.all.itl_ms);
    }
    body += "<h2>" + EscapedHtml(title) + "</h2>\n<pre>" +
            EscapedHtml(ScenarioText(runs, goals, scenario)) + "</pre>\n" +
            TailPlot("Share of gaps at or above", std::move(gaps));
  }
  return HtmlPage(
      "Tail: kvrm beside its rivals",
      body + "<h2>Commands</h2>\n<pre>" + EscapedHtml(command + "\n" + Sitting(runs)) + "</pre>\n");
}

}  // namespace kvrm::cli
