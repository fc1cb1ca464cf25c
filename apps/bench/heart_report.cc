#include "bench/heart_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "bench/result.h"
#include "bench/statistics.h"

namespace kvrm::cli {
namespace {

using Table = std::vector<std::vector<std::string>>;

// The largest value of what `value` gives for each row; nullopt: it gives none.
template <class Row, class Value>
std::optional<double> Largest(const std::vector<Row>& rows, Value&& value) {
  std::optional<double> largest;
  for (const Row& row : rows) {
    const std::optional<double> one = value(row);
    if (one) largest = std::max(largest.value_or(*one), *one);
  }
  return largest;
}

std::optional<double> VerbNs(const HeartReport& report, std::string_view verb,
                             std::string_view of) {
  return Largest(report.verbs, [&](const VerbRow& row) -> std::optional<double> {
    if (row.verb != verb || row.of != of) return std::nullopt;
    return row.call.median_cpu_ns();
  });
}

// ---- JSON

boost::json::object TimesJson(const TimeSamples& times) {
  return {{"cpu_ns", SummaryJson(times.cpu_ns)}, {"wall_ns", SummaryJson(times.wall_ns)}};
}

template <class Row, class ToObject>
boost::json::array RowsJson(const std::vector<Row>& rows, ToObject&& to_object) {
  boost::json::array array;
  for (const Row& row : rows) array.push_back(to_object(row));
  return array;
}

boost::json::object GoalJson(const HeartGoal& goal) {
  boost::json::object json{{"goal", goal.name},
                           {"limit", goal.limit},
                           {"unit", goal.unit},
                           {"direction", goal.at_least    ? "at least"
                                         : goal.inclusive ? "at most"
                                                          : "below"},
                           {"verdict", goal.Verdict()}};
  if (goal.measured) json["measured"] = *goal.measured;
  return json;
}

boost::json::object StepsJson(const StepGrid& grid) {
  boost::json::array flat;
  uint32_t last = 0;
  for (const StepRow& row : grid.rows) {
    if (row.num_seqs == last) continue;
    last = row.num_seqs;
    if (const auto growth = GrowthWithContext(grid, last)) {
      flat.push_back({{"sequences", last}, {"largest_over_smallest", *growth}});
    }
  }
  return {{"rows", RowsJson(grid.rows,
                            [](const StepRow& row) {
                              return boost::json::object{
                                  {"sequences", row.num_seqs},
                                  {"context", row.context},
                                  {"pool_pages", row.pool_pages},
                                  {"edit_commit", TimesJson(row.commit)},
                                  {"edit_commit_publish", TimesJson(row.publish)}};
                            })},
          {"flat", flat},
          {"skipped", RowsJson(grid.skipped, [](const StepGrid::Skipped& skipped) {
             return boost::json::object{{"sequences", skipped.num_seqs},
                                        {"context", skipped.context},
                                        {"pages", skipped.pages}};
           })}};
}

boost::json::object ChurnJson(const ChurnRow& row) {
  return {{"design", row.design},
          {"pool_pages", row.pool_pages},
          {"full_share", row.full_share},
          {"joins", row.joins},
          {"forks", row.forks},
          {"endings", row.endings},
          {"grown_tokens", row.grown_tokens},
          {"steps", row.steps},
          {"live_sequences", row.live_seqs},
          {"copies", row.copies},
          {"prompt_tokens", row.prompt_tokens},
          {"found_tokens", row.found_tokens},
          {"read_runs", row.runs.runs},
          {"pages_read", row.runs.pages},
          {"good_share", row.runs.good_share()},
          {"least_good_share", row.least_good_share},
          {"mean_run_bytes", row.runs.mean_run_bytes()},
          {"fresh_within_bound", row.fresh_within_bound},
          {"fresh_worst_excess", row.fresh_worst_excess},
          {"fresh_examined", row.examined},
          {"fresh_worst_excess_over_fewest", row.worst_excess_over_fewest},
          {"fresh_mean_runs", row.fresh_mean_runs},
          {"fresh_mean_bound", row.fresh_mean_bound},
          {"script", fmt::format("{:016x}", row.script_hash)},
          {"call", TimesJson(row.call)}};
}

// ---- text

// "23.1 (22.8..24.0)"
std::string TimeText(const std::vector<double>& samples, double unit_ns) {
  const Summary summary = Summarize(samples);
  return fmt::format("{:.4g} ({:.4g}..{:.4g})", summary.median / unit_ns, summary.min / unit_ns,
                     summary.max / unit_ns);
}

std::string GoalsText(const HeartReport& report) {
  Table table = {{"goal", "limit", "measured", "verdict"}};
  for (const HeartGoal& goal : GoalsOf(report)) {
    table.push_back({goal.name,
                     fmt::format("{} {:g} {}",
                                 goal.at_least    ? ">="
                                 : goal.inclusive ? "<="
                                                  : "<",
                                 goal.limit, goal.unit),
                     goal.measured ? fmt::format("{:.4g} {}", *goal.measured, goal.unit) : "",
                     goal.Verdict()});
  }
  return MarkdownTable(table);
}

std::string VerbsText(const std::vector<VerbRow>& rows) {
  Table table = {{"verb", "of", "pages", "CPU ns a call", "wall ns a call", "CPU ns a page"}};
  for (const VerbRow& row : rows) {
    table.push_back(
        {row.verb, row.of, std::to_string(row.pages), TimeText(row.call.cpu_ns, 1),
         TimeText(row.call.wall_ns, 1),
         row.pages > 1 ? fmt::format("{:.3g}", row.call.median_cpu_ns() / row.pages) : ""});
  }
  return MarkdownTable(table);
}

std::string StepsText(const StepGrid& grid) {
  Table table = {{"sequences", "context", "pages", "edit + commit, CPU us", "wall us",
                  "edit + commit + publish, CPU us", "wall us"}};
  for (const StepRow& row : grid.rows) {
    table.push_back({std::to_string(row.num_seqs), std::to_string(row.context),
                     std::to_string(row.pool_pages), TimeText(row.commit.cpu_ns, 1e3),
                     TimeText(row.commit.wall_ns, 1e3), TimeText(row.publish.cpu_ns, 1e3),
                     TimeText(row.publish.wall_ns, 1e3)});
  }
  std::string text = MarkdownTable(table) + "\nlargest over smallest of the contexts:";
  uint32_t last = 0;
  for (const StepRow& row : grid.rows) {
    if (row.num_seqs == last) continue;
    last = row.num_seqs;
    if (const auto growth = GrowthWithContext(grid, last)) {
      text += fmt::format(" {}: {:.2f}", last, *growth);
    }
  }
  text += "\nskipped, more pages than one pool of this run may have:";
  for (const StepGrid::Skipped& skipped : grid.skipped) {
    text += fmt::format(" {} x {}", skipped.num_seqs, skipped.context);
  }
  return text + (grid.skipped.empty() ? " none\n" : "\n");
}

std::string MatchText(const std::vector<MatchRow>& rows) {
  Table table = {{"pages in the index", "tokens", "found, CPU us", "wall us", "not found, CPU us"}};
  for (const MatchRow& row : rows) {
    table.push_back({std::to_string(row.pool_pages), std::to_string(row.tokens),
                     TimeText(row.hit.cpu_ns, 1e3), TimeText(row.hit.wall_ns, 1e3),
                     TimeText(row.miss.cpu_ns, 1e3)});
  }
  return MarkdownTable(table);
}

std::string ChurnText(const std::vector<ChurnRow>& rows) {
  // One column a design: there are more figures than designs.
  Table table = {{"after the churn"},
                 {"joins, forks, endings"},
                 {"steps, tokens grown"},
                 {"pool pages, mean share full"},
                 {"live sequences"},
                 {"share of bytes in runs >= 16 KiB"},
                 {"the least of 20 looks"},
                 {"mean run, weighted by bytes"},
                 {"read runs, pages read"},
                 {"fresh sequences within ceil(pages / P) + 2"},
                 {"their mean runs, mean bound, worst excess"},
                 {"beyond the bound, examined: worst excess over the fewest possible"},
                 {"copies on write"},
                 {"prompt tokens found"},
                 {"CPU ns a call"},
                 {"wall ns a call"}};
  for (const ChurnRow& row : rows) {
    const std::vector<std::string> cells = {
        row.design,
        fmt::format("{}, {}, {}", row.joins, row.forks, row.endings),
        fmt::format("{}, {}", row.steps, row.grown_tokens),
        fmt::format("{}, {:.1f} %", row.pool_pages, 100 * row.full_share),
        std::to_string(row.live_seqs),
        fmt::format("{:.1f} %", 100 * row.runs.good_share()),
        fmt::format("{:.1f} %", 100 * row.least_good_share),
        fmt::format("{:.1f} KiB", row.runs.mean_run_bytes() / 1024),
        fmt::format("{}, {}", row.runs.runs, row.runs.pages),
        fmt::format("{:.2f} %", 100.0 * static_cast<double>(row.fresh_within_bound) /
                                    static_cast<double>(std::max<uint64_t>(row.joins, 1))),
        fmt::format("{:.2f}, {:.2f}, {}", row.fresh_mean_runs, row.fresh_mean_bound,
                    row.fresh_worst_excess),
        row.examined == 0 ? "" : fmt::format("{}: {}", row.examined, row.worst_excess_over_fewest),
        std::to_string(row.copies),
        fmt::format("{:.1f} %", 100.0 * static_cast<double>(row.found_tokens) /
                                    static_cast<double>(std::max<uint64_t>(row.prompt_tokens, 1))),
        TimeText(row.call.cpu_ns, 1),
        TimeText(row.call.wall_ns, 1)};
    for (size_t i = 0; i < cells.size(); ++i) table[i].push_back(cells[i]);
  }
  return MarkdownTable(table);
}

}  // namespace

bool HeartGoal::met() const {
  KVRM_CHECK(measured.has_value(), "bench: a verdict is on something that was measured");
  if (at_least) return *measured >= limit;
  return inclusive ? *measured <= limit : *measured < limit;
}

std::string HeartGoal::Verdict() const {
  if (!measured) return "not measured";
  return met() ? "met" : "MISSED";
}

std::vector<HeartGoal> GoalsOf(const HeartReport& report) {
  const auto commit_us =
      Largest(report.steps.rows, [](const StepRow& row) -> std::optional<double> {
        if (row.num_seqs != 64) return std::nullopt;
        return row.commit.median_cpu_ns() / 1e3;
      });
  const auto match_us = Largest(report.match, [](const MatchRow& row) -> std::optional<double> {
    if (row.tokens != 8192) return std::nullopt;
    return row.hit.median_cpu_ns() / 1e3;
  });
  std::optional<double> good_percent, fresh_excess;
  if (!report.churn.empty()) {
    good_percent = 100 * report.churn.front().runs.good_share();
    fresh_excess = report.churn.front().fresh_worst_excess;
  }
  return {
      {"edit + commit of 64 decoding sequences, the slowest context", "us", 5, false, false,
       commit_us},
      {"Reserve, one page of decode growth", "ns", 100, false, false,
       VerbNs(report, "Reserve", "one page of decode growth")},
      {"Trim, one page", "ns", 100, false, false, VerbNs(report, "Trim", "one page")},
      {"prefix match of 8,192 tokens, the slowest pool", "us", 100, false, false, match_us},
      {"bytes in runs >= 16 KiB after the churn at 90 % full", "%", 90, true, false, good_percent},
      {"read runs of a fresh sequence beyond ceil(pages / P) + 2, the worst", "runs", 0, false,
       true, fresh_excess},
  };
}

boost::json::object ToJson(const HeartReport& report, const Machine& machine) {
  boost::json::object json{{"schema", kResultSchema},         {"test", "heart"},
                           {"command", report.command},       {"sizes", report.sizes},
                           {"check_tier", report.check_tier}, {"threads", 1}};
  json["goals"] = RowsJson(GoalsOf(report), GoalJson);
  json["verbs"] = RowsJson(report.verbs, [](const VerbRow& row) {
    return boost::json::object{
        {"verb", row.verb}, {"of", row.of}, {"pages", row.pages}, {"call", TimesJson(row.call)}};
  });
  json["steps"] = StepsJson(report.steps);
  json["match"] = RowsJson(report.match, [](const MatchRow& row) {
    return boost::json::object{{"pool_pages", row.pool_pages},
                               {"tokens", row.tokens},
                               {"hit", TimesJson(row.hit)},
                               {"miss", TimesJson(row.miss)}};
  });
  json["churn"] = RowsJson(report.churn, ChurnJson);
  if (report.others_percent) json["others_percent"] = *report.others_percent;
  json["noisy"] = report.noisy();
  json["machine"] = ToJson(machine);
  json["date"] = report.date;
  return json;
}

std::string ToText(const HeartReport& report, const Machine& machine) {
  std::string text;
  const auto add = [&](const char* head, const std::string& table, bool measured) {
    if (measured) text += fmt::format("## {}\n\n{}\n", head, table);
  };
  add("Goals", GoalsText(report), true);
  add("Verbs", VerbsText(report.verbs), !report.verbs.empty());
  add("A step of sequences that all decode", StepsText(report.steps), !report.steps.rows.empty());
  add("Prefix match", MatchText(report.match), !report.match.empty());
  add("Churn", ChurnText(report.churn), !report.churn.empty());
  text += fmt::format(
      "{} sizes, check tier {}, 1 thread, others {}; {}, {}, {}\n", report.sizes, report.check_tier,
      report.others_percent
          ? fmt::format("{:.1f} %{}", *report.others_percent, report.noisy() ? " NOISY" : "")
          : "unknown",
      machine.cpu, machine.compiler, report.date);
  return text;
}

}  // namespace kvrm::cli
