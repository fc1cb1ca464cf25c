#include "bench/load/trace.h"

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <chrono>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

namespace kvrm::cli {
namespace {

// Reads the number at the front of `text` and drops it; nullopt: there is none or it is too large.
std::optional<uint64_t> TakeNumber(std::string_view& text) {
  uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(stop - text.data()));
  return value;
}

bool Take(std::string_view& text, char c) {
  if (text.empty() || text[0] != c) return false;
  text.remove_prefix(1);
  return true;
}

// "2023-11-16 18:15:46.6805900", any number of digits behind the point.
std::optional<int64_t> ParseDateTime(std::string_view text) {
  uint64_t fields[6] = {};
  constexpr char kEnds[6] = {'-', '-', ' ', ':', ':', '\0'};
  for (size_t i = 0; i < 6; ++i) {
    const auto field = TakeNumber(text);
    if (!field || *field > 9999 || (kEnds[i] != '\0' && !Take(text, kEnds[i]))) return std::nullopt;
    fields[i] = *field;
  }
  int64_t fraction_us = 0;
  if (Take(text, '.')) {
    int64_t unit = 100'000;
    for (; !text.empty() && text[0] >= '0' && text[0] <= '9'; unit /= 10) {
      fraction_us += unit * (text[0] - '0');
      text.remove_prefix(1);
    }
  }
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(fields[0])),
                                         std::chrono::month(static_cast<unsigned>(fields[1])),
                                         std::chrono::day(static_cast<unsigned>(fields[2]))};
  if (!text.empty() || !date.ok() || fields[3] > 23 || fields[4] > 59 || fields[5] > 60) {
    return std::nullopt;
  }
  const int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  const auto seconds = static_cast<int64_t>(fields[3] * 3600 + fields[4] * 60 + fields[5]);
  return (days * 86'400 + seconds) * 1'000'000 + fraction_us;
}

std::optional<uint32_t> ParseCount(std::string_view text) {
  const auto value = TakeNumber(text);
  if (!value || !text.empty() || *value > std::numeric_limits<uint32_t>::max()) return std::nullopt;
  return static_cast<uint32_t>(*value);
}

std::vector<std::string_view> Split(std::string_view line) {
  std::vector<std::string_view> cells;
  while (true) {
    const size_t comma = line.find(',');
    cells.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return cells;
    line.remove_prefix(comma + 1);
  }
}

// Both CSV forms end in time, prompt, output.
Result<TraceRow> ParseCsvRow(std::string_view line, size_t num_cells, bool date_time) {
  const std::vector<std::string_view> cells = Split(line);
  if (cells.size() != num_cells) {
    return InvalidInput("has " + std::to_string(cells.size()) + " fields, not " +
                        std::to_string(num_cells));
  }
  std::string_view time = cells[num_cells - 3];
  const std::string time_text(time);
  std::optional<int64_t> arrival_us;
  if (date_time) {
    arrival_us = ParseDateTime(time);
  } else if (const auto value = TakeNumber(time);
             value && time.empty() && *value < (uint64_t{1} << 53)) {
    arrival_us = static_cast<int64_t>(*value);
  }
  if (!arrival_us) return InvalidInput("'" + time_text + "' is no time");
  const auto prompt = ParseCount(cells[num_cells - 2]), output = ParseCount(cells[num_cells - 1]);
  if (!prompt || !output) return InvalidInput("token counts are no whole numbers");
  return TraceRow{*arrival_us, *prompt, *output, {}};
}

Result<TraceRow> ParseJsonRow(std::string_view line) {
  boost::json::error_code error;
  const boost::json::value root = boost::json::parse(line, error);
  if (error || !root.is_object()) return InvalidInput("is no JSON object");
  const auto number = [&](const char* name, double max) -> std::optional<double> {
    const boost::json::value* value = root.get_object().if_contains(name);
    if (value == nullptr || !value->is_number()) return std::nullopt;
    const auto taken = value->to_number<double>();
    return taken >= 0 && taken <= max ? std::optional(taken) : std::nullopt;
  };
  const auto time_ms = number("timestamp", 1e13);
  if (!time_ms) return InvalidInput("timestamp is no time in ms");
  const auto prompt = number("input_length", 4e9), output = number("output_length", 4e9);
  if (!prompt || !output) return InvalidInput("input_length or output_length is no count");
  TraceRow row{static_cast<int64_t>(*time_ms * 1000),
               static_cast<uint32_t>(*prompt),
               static_cast<uint32_t>(*output),
               {}};
  const boost::json::value* blocks = root.get_object().if_contains("hash_ids");
  if (blocks == nullptr) return row;
  if (!blocks->is_array()) return InvalidInput("hash_ids is no list");
  for (const boost::json::value& id : blocks->get_array()) {
    const auto value = id.to_number<uint32_t>(error);
    if (error) return InvalidInput("hash_ids holds what is no id");
    row.blocks.push_back(value);
  }
  return row;
}

void SortByArrival(Trace& trace) {
  int64_t latest = std::numeric_limits<int64_t>::min();
  for (const TraceRow& row : trace.rows) {
    if (row.arrival_us < latest) ++trace.moved_rows;
    latest = std::max(latest, row.arrival_us);
  }
  std::vector<size_t> order(trace.rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(trace.rows[a].arrival_us, a) < std::pair(trace.rows[b].arrival_us, b);
  });
  std::vector<TraceRow> sorted;
  sorted.reserve(order.size());
  for (size_t row : order) sorted.push_back(std::move(trace.rows[row]));
  trace.rows = std::move(sorted);
  const int64_t first = trace.rows.front().arrival_us;
  for (TraceRow& row : trace.rows) row.arrival_us -= first;
}

}  // namespace

Result<Trace> ParseTrace(const std::string& text, const std::string& path) {
  constexpr std::string_view kAzureHead = "TIMESTAMP,ContextTokens,GeneratedTokens";
  constexpr std::string_view kWindowHead = "row,arrival_us,prompt_tokens,output_tokens";
  enum class Format { kUnknown, kAzure, kWindow, kMooncake } format = Format::kUnknown;
  Trace trace;
  std::string_view rest = text;
  for (size_t number = 1; !rest.empty(); ++number) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    if (format == Format::kUnknown) {
      format = line == kAzureHead    ? Format::kAzure
               : line == kWindowHead ? Format::kWindow
               : line[0] == '{'      ? Format::kMooncake
                                     : Format::kUnknown;
      if (format == Format::kUnknown) {
        return InvalidInput("trace '" + path + "': takes a line of Mooncake JSON, '" +
                            std::string(kAzureHead) + "' or '" + std::string(kWindowHead) +
                            "' first");
      }
      if (format != Format::kMooncake) continue;
    }
    Result<TraceRow> row = format == Format::kMooncake ? ParseJsonRow(line)
                           : format == Format::kAzure  ? ParseCsvRow(line, 3, /*date_time=*/true)
                                                       : ParseCsvRow(line, 4, /*date_time=*/false);
    if (!row.ok()) {
      return InvalidInput("trace '" + path + "', line " + std::to_string(number) + ": " +
                          row.error().message);
    }
    trace.rows.push_back(std::move(row).value());
  }
  if (trace.rows.empty()) return InvalidInput("trace '" + path + "' holds no request");
  SortByArrival(trace);
  return trace;
}

}  // namespace kvrm::cli
