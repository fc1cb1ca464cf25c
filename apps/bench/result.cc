#include "bench/result.h"

#include <fmt/format.h>

#include "bench/statistics.h"

namespace kvrm::cli {
namespace {

std::string FloorText(const BenchResult& result) {
  if (!result.floor) return "not measured here";
  const Floor& floor = *result.floor;
  if (floor.bytes > 0) {
    return fmt::format("{:.2f} ms = {:.1f} MB / {:.1f} GB/s", floor.ms,
                       static_cast<double>(floor.bytes) / 1e6, floor.ceiling_per_s / 1e9);
  }
  return fmt::format("{:.2f} ms = {:.1f} GOP / {:.0f} GOP/s", floor.ms, floor.operations / 1e9,
                     floor.ceiling_per_s / 1e9);
}

std::string OthersText(const BenchResult& result) {
  if (!result.others_percent) return "unknown";
  return fmt::format("{:.1f} %{}", *result.others_percent, result.noisy() ? " NOISY" : "");
}

}  // namespace

std::optional<double> BenchResult::floor_share() const {
  if (!floor || ms.empty()) return std::nullopt;
  return floor->ms / Summarize(ms).median;
}

boost::json::object SummaryJson(const std::vector<double>& samples) {
  const Summary summary = Summarize(samples);
  return {{"median", summary.median},
          {"min", summary.min},
          {"max", summary.max},
          {"spread", summary.spread()},
          {"samples", boost::json::array(samples.begin(), samples.end())}};
}

boost::json::object ToJson(const BenchResult& result, const Machine& machine) {
  boost::json::object json{
      {"schema", kResultSchema},     {"test", result.test},
      {"command", result.command},   {"model", result.model},
      {"encoding", result.encoding}, {"executor", result.executor},
      {"threads", result.threads},   {"tokens_per_s", SummaryJson(result.tokens_per_s)},
      {"ms", SummaryJson(result.ms)}};
  if (result.floor) {
    json["floor"] = {{"ms", result.floor->ms},
                     {"bytes", result.floor->bytes},
                     {"kv_bytes", result.floor->kv_bytes},
                     {"operations", result.floor->operations},
                     {"ceiling_per_s", result.floor->ceiling_per_s},
                     {"share", *result.floor_share()}};
  }
  if (result.peak_resident_bytes > 0) json["peak_resident_bytes"] = result.peak_resident_bytes;
  if (result.others_percent) json["others_percent"] = *result.others_percent;
  json["noisy"] = result.noisy();
  json["machine"] = ToJson(machine);
  json["date"] = result.date;
  return json;
}

std::string ToText(const std::vector<BenchResult>& results, const Machine& machine) {
  std::vector<std::vector<std::string>> rows = {{"model", "encoding", "backend", "threads", "test",
                                                 "t/s", "ms", "floor", "of floor", "others"}};
  for (const BenchResult& result : results) {
    const Summary rate = Summarize(result.tokens_per_s), ms = Summarize(result.ms);
    const std::optional<double> share = result.floor_share();
    rows.push_back({result.model, result.encoding, result.executor, std::to_string(result.threads),
                    result.test,
                    fmt::format("{:.1f} ({:.1f}..{:.1f})", rate.median, rate.min, rate.max),
                    fmt::format("{:.2f}", ms.median), FloorText(result),
                    share ? fmt::format("{:.0f} %", 100 * *share) : "", OthersText(result)});
  }
  return MarkdownTable(rows) + fmt::format("\n{}, {} CPUs, {}, {}\n", machine.cpu, machine.cpus,
                                           machine.compiler,
                                           results.empty() ? DateUtc() : results.back().date);
}

}  // namespace kvrm::cli
