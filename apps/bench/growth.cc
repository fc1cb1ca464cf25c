// kvrm bench growth: how a decode step grows with the tokens in the cache, beside how its bytes do.
#include <fmt/format.h>

#include <boost/json.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bench/ceilings.h"
#include "bench/decode_batch.h"
#include "bench/machine.h"
#include "bench/statistics.h"
#include "bench/step_bench.h"
#include "bench/step_work.h"
#include "bench/table.h"
#include "kvrm/commands.h"

namespace kvrm::cli {
namespace {

namespace json = boost::json;

constexpr uint32_t kDepths[] = {512, 2048, 8192, 32768};
constexpr double kAtMost = 1.5, kGoal = 1.2;

struct Depth {
  uint32_t tokens = 0;
  std::unique_ptr<DecodeBatch> batch;
  uint64_t bytes = 0;              // that the mean step reads
  double ceiling_bytes_per_s = 0;  // read bandwidth at just that working set, measured afterwards
  std::vector<double> ms;
  double median_ms() const { return Summarize(ms).median; }
};

// Time at the depth over time at the first one, over the same of the bytes: 1 where a step takes as
// long as its bytes are many.
double Growth(const Depth& depth, const Depth& first) {
  const double bytes = static_cast<double>(depth.bytes) / static_cast<double>(first.bytes);
  return depth.median_ms() / first.median_ms() / bytes;
}

json::object ToJson(const std::vector<Depth>& depths, const BenchResult& about) {
  json::array rows;
  for (const Depth& depth : depths) {
    rows.push_back({{"depth", depth.tokens},
                    {"bytes", depth.bytes},
                    {"ms", SummaryJson(depth.ms)},
                    {"ceiling_bytes_per_s", depth.ceiling_bytes_per_s},
                    {"growth", Growth(depth, depths.front())}});
  }
  json::object result{{"schema", kResultSchema},
                      {"test", "growth"},
                      {"command", about.command},
                      {"model", about.model},
                      {"encoding", about.encoding},
                      {"executor", about.executor},
                      {"threads", about.threads},
                      {"rows", std::move(rows)},
                      {"noisy", about.noisy()},
                      {"at_most", kAtMost},
                      {"goal", kGoal},
                      {"date", about.date},
                      {"machine", ToJson(ThisMachine())}};
  if (about.others_percent) result["others_percent"] = *about.others_percent;
  return result;
}

std::string ToText(const std::vector<Depth>& depths, const BenchResult& about) {
  std::vector<std::vector<std::string>> table = {
      {"tokens in the cache", "ms a step", "MB a step", "GB/s", "of GB/s at most", "growth"}};
  for (const Depth& depth : depths) {
    const Summary ms = Summarize(depth.ms);
    const double bytes = static_cast<double>(depth.bytes);
    table.push_back({std::to_string(depth.tokens),
                     fmt::format("{:.2f} ({:.2f}..{:.2f})", ms.median, ms.min, ms.max),
                     fmt::format("{:.1f}", bytes / 1e6),
                     fmt::format("{:.1f}", bytes / 1e6 / ms.median),
                     fmt::format("{:.1f}", depth.ceiling_bytes_per_s / 1e9),
                     fmt::format("{:.2f}", Growth(depth, depths.front()))});
  }
  const double growth = Growth(depths.back(), depths.front());
  const char* verdict = growth <= kGoal ? "goal" : growth <= kAtMost ? "met" : "MISSED";
  const Machine machine = ThisMachine();
  return MarkdownTable(table) +
         fmt::format("\ngrowth to {} tokens: {:.2f} (at most {:.1f}, goal {:.1f}: {})\n",
                     depths.back().tokens, growth, kAtMost, kGoal, verdict) +
         fmt::format("{}, {}, {} threads, others {:.1f} %{}\n{}, {} CPUs, {}, {}\n", about.model,
                     about.encoding, about.threads, about.others_percent.value_or(0),
                     about.noisy() ? " NOISY" : "", machine.cpu, machine.cpus, machine.compiler,
                     about.date);
}

}  // namespace

int RunBenchGrowth(const OptionValues& values) {
  const auto steps = static_cast<uint32_t>(values.Int("n-gen"));
  constexpr uint32_t kDeepest = kDepths[std::size(kDepths) - 1];
  const auto bench =
      OpenStepBench(values, std::size(kDepths), kDeepest + steps, {.beyond_context = true});
  if (!bench.ok()) return Failed(values, bench.error());
  StepDriver& driver = *bench->driver;
  std::vector<Depth> depths;
  for (const uint32_t tokens : kDepths) {
    Depth depth{.tokens = tokens};
    const DecodeSetting setting{.depth = tokens, .steps = steps, .synthetic = true};
    depth.batch = std::make_unique<DecodeBatch>(driver, setting);
    depth.bytes = DecodeStepBytes(driver.model(), driver.geometry(), 1, tokens + (steps + 1) / 2.0);
    depths.push_back(std::move(depth));
  }
  const int64_t repeats = values.Int("repetitions");
  QuietGate gate;
  for (int64_t repeat = -1; repeat < repeats; ++repeat) {
    if (repeat == 0) gate = QuietGate();  // the first one only warms up
    for (Depth& depth : depths) {
      const std::optional<double> seconds = depth.batch->TimeSteps();
      if (!seconds) return Failed(values, InvalidInput("logits are not finite"));
      if (repeat >= 0) depth.ms.push_back(1e3 * *seconds / steps);
    }
  }
  for (Depth& depth : depths) {
    depth.ceiling_bytes_per_s = MeasureReadBandwidth(depth.bytes, driver.num_threads());
  }
  BenchResult about = bench->NewResult(values, gate);
  about.command = fmt::format("kvrm bench growth -n {} -r {} -t {} --kv {}", steps, repeats,
                              driver.num_threads(), values.Text("kv"));
  return WriteOutput(values, values.Flag("json") ? json::serialize(ToJson(depths, about)) + "\n"
                                                 : ToText(depths, about));
}

}  // namespace kvrm::cli
