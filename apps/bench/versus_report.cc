#include "bench/versus_report.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/statistics.h"
#include "bench/table.h"

namespace kvrm::cli {
namespace {

namespace json = boost::json;

double Number(const json::value& object, std::string_view key) {
  return object.at(key).to_number<double>();
}
std::string Text(const json::value& object, std::string_view key) {
  return std::string(object.at(key).as_string());
}

std::string FloorText(const json::object& holder) {
  const auto* floor = holder.if_contains("floor");
  if (floor == nullptr) return "not measured here";
  return fmt::format("{:.2f} ms, {:.0f} %", Number(*floor, "ms"), 100 * Number(*floor, "share"));
}

std::string GoalText(const json::value& family) {
  const double at_least = Number(family, "at_least"), goal = Number(family, "goal");
  const double ratio = Number(family, "ratio");
  if (at_least == 0) return "";
  const char* verdict = ratio < at_least ? "MISSED" : goal > 0 && ratio >= goal ? "goal" : "met";
  if (goal == 0) return fmt::format("{:.1f}x: {}", at_least, verdict);
  return fmt::format("{:.1f}x / {:.1f}x: {}", at_least, goal, verdict);
}

std::string OthersText(const json::object& row) {
  const auto* others = row.if_contains("others_percent");
  if (others == nullptr) return "unknown";
  return fmt::format("{:.1f} %{}", others->to_number<double>(),
                     row.at("noisy").as_bool() ? " NOISY" : "");
}

Summary SummaryOf(const json::value& measured) {
  std::vector<double> samples;
  for (const json::value& sample : measured.at("samples").as_array()) {
    samples.push_back(sample.to_number<double>());
  }
  return Summarize(std::move(samples));
}

std::string SpreadText(const json::value& measured) {
  const Summary rates = SummaryOf(measured);
  return fmt::format("{:.1f} ({:.1f}..{:.1f})", rates.median, rates.min, rates.max);
}

std::optional<double> MedianOf(const json::array& rows, std::string_view key) {
  for (const json::value& row : rows) {
    if (Text(row, "key") == key) return Number(row.at("kvrm"), "median");
  }
  return std::nullopt;
}

std::string RatesTable(const json::array& rows) {
  std::vector<std::vector<std::string>> table = {
      {"row", "kvrm", "kvrm t/s", "kvrm floor, share", "rivals", "their best t/s",
       "their floor, share", "ratio", "at least / goal", "their setting", "others"}};
  for (const json::value& row : rows) {
    for (const json::value& family : row.at("families").as_array()) {
      table.push_back({Text(row, "row"), Text(row.at("kvrm"), "setting").substr(6),
                       SpreadText(row.at("kvrm")), FloorText(row.at("kvrm_last").as_object()),
                       Text(family, "family"), SpreadText(family.at("best")),
                       FloorText(family.as_object()),
                       fmt::format("{:.2f}x", Number(family, "ratio")), GoalText(family),
                       Text(family.at("best"), "setting"), OthersText(row.as_object())});
    }
  }
  return MarkdownTable(table);
}

std::string FigureText(const json::value& row, const json::value& measured) {
  const Summary figures = SummaryOf(measured);
  if (Text(row, "unit") == "bytes") return fmt::format("{:.1f} MB", figures.median / 1e6);
  return fmt::format("{:.2f} s ({:.2f}..{:.2f})", figures.median, figures.min, figures.max);
}

std::string LessGoalText(const json::value& pair) {
  const double own_at_most = Number(pair, "own_at_most"), own_goal = Number(pair, "own_goal");
  std::string text = fmt::format("{:.2f}x", Number(pair, "at_most"));
  if (own_at_most > 0) text += fmt::format(", {:.1f} s", own_at_most);
  if (const double goal = Number(pair, "goal"); goal > 0) text += fmt::format(" / {:.2f}x", goal);
  if (own_goal > 0) text += fmt::format(" / {:.1f} s", own_goal);
  return text + ": " + Text(pair, "verdict");
}

std::string FootprintTable(const json::array& rows) {
  std::vector<std::vector<std::string>> table = {{"row", "kvrm", "rivals", "their least", "share",
                                                  "at most / goal", "their setting", "others"}};
  for (const json::value& row : rows) {
    for (const json::value& pair : row.at("pairs").as_array()) {
      table.push_back({Text(row, "row"), FigureText(row, pair.at("kvrm")), Text(pair, "rivals"),
                       FigureText(row, pair.at("best")),
                       fmt::format("{:.2f}x", Number(pair, "share")), LessGoalText(pair),
                       Text(pair.at("best"), "setting"), OthersText(row.as_object())});
    }
  }
  return MarkdownTable(table);
}

std::string LossText(const json::object& loss) {
  if (loss.empty()) {
    return "Perplexity of the rivals' files: not measured (no text), so all file types count.\n";
  }
  std::string text = "Perplexity over f32 of the default file:";
  for (const auto& type : loss) {
    text += fmt::format(" {} {:+.2f} %", std::string(type.key()),
                        100 * type.value().to_number<double>());
  }
  return text + " (a type above +1 % is shown, not counted)\n";
}

}  // namespace

std::string VersusText(const json::array& sheet, const json::object& loss) {
  json::array rows, footprints;
  for (const json::value& row : sheet) {
    (row.as_object().contains("pairs") ? footprints : rows).push_back(row);
  }
  std::string text;
  if (!rows.empty()) text += RatesTable(rows) + "\n";
  if (!footprints.empty()) text += FootprintTable(footprints) + "\n";
  text += LossText(loss);
  for (const json::value& row : rows) {
    for (const json::value& family : row.at("families").as_array()) {
      const auto* uncounted = family.as_object().if_contains("not_counted");
      if (uncounted == nullptr) continue;
      text += fmt::format("not counted, {}: {}, {:.1f} t/s when screened\n", Text(row, "row"),
                          Text(*uncounted, "setting"), Number(*uncounted, "tokens_per_s"));
    }
  }
  // What sharing a step is worth, at the same number of tokens in each cache.
  const auto eight = MedianOf(rows, "8x512"), one = MedianOf(rows, "1x512");
  if (eight && one) {
    text += fmt::format("8 streams x 512 over 1 stream x 512: {:.2f}x (goal 3.0x {})\n",
                        *eight / *one, *eight / *one >= 3 ? "met" : "missed");
  }
  for (const json::value& row : rows) {
    text += fmt::format("{}, {}:\n  {}\n", Text(row, "row"), Text(row, "date"),
                        Text(row.at("kvrm"), "command"));
    for (const json::value& family : row.at("families").as_array()) {
      text += "  " + Text(family.at("best"), "command") + "\n";
    }
  }
  for (const json::value& row : footprints) {
    for (const json::value& pair : row.at("pairs").as_array()) {
      text += fmt::format("{}, {}, {}:\n  {}\n  {}\n", Text(row, "row"), Text(pair, "rivals"),
                          Text(row, "date"), Text(pair.at("kvrm"), "command"),
                          Text(pair.at("best"), "command"));
    }
  }
  return text;
}

}  // namespace kvrm::cli
