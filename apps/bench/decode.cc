// kvrm bench decode: single-token steps of a batch of distinct sequences at a given depth.
#include <fmt/format.h>

#include <cstdio>
#include <vector>

#include "bench/ceilings.h"
#include "bench/decode_batch.h"
#include "bench/step_bench.h"
#include "bench/step_work.h"
#include "kvrm/commands.h"

namespace kvrm::cli {
namespace {

std::string TestName(const DecodeSetting& setting) {
  std::string name = fmt::format("tg{}", setting.steps);
  if (setting.depth > 0) name += fmt::format(" @ d{}", setting.depth);
  if (setting.num_seqs > 1) name += fmt::format(" x {}", setting.num_seqs);
  return name;
}

// Bytes of the mean step over the bandwidth at just that working set.
Floor DecodeFloor(const StepDriver& driver, const DecodeSetting& setting) {
  const double mean_context = setting.depth + (setting.steps + 1) / 2.0;
  Floor floor;
  floor.bytes = DecodeStepBytes(driver.model(), driver.geometry(), setting.num_seqs, mean_context);
  floor.kv_bytes =
      floor.bytes - DecodeStepBytes(driver.model(), driver.geometry(), 0, mean_context);
  floor.ceiling_per_s = MeasureReadBandwidth(floor.bytes, driver.num_threads());
  floor.ms = 1e3 * static_cast<double>(floor.bytes) / floor.ceiling_per_s;
  return floor;
}

}  // namespace

int RunBenchDecode(const OptionValues& values) {
  DecodeSetting setting;
  setting.num_seqs = static_cast<uint32_t>(values.Int("slots"));
  setting.depth = static_cast<uint32_t>(values.Int("depth"));
  setting.steps = static_cast<uint32_t>(values.Int("n-gen"));
  setting.synthetic = values.Flag("synthetic");
  const auto bench = OpenStepBench(values, setting.num_seqs, setting.depth + setting.steps,
                                   {.beyond_context = setting.synthetic});
  if (!bench.ok()) return Failed(values, bench.error());

  StepDriver& driver = *bench->driver;
  DecodeBatch batch(driver, setting);
  const int64_t repeats = values.Int("repetitions");
  std::vector<double> tokens_per_s, ms;
  QuietGate gate;
  for (int64_t repeat = -1; repeat < repeats; ++repeat) {
    if (repeat == 0) gate = QuietGate();  // the first one only warms up
    const std::optional<double> seconds = batch.TimeSteps();
    if (!seconds) return Failed(values, InvalidInput("logits are not finite"));
    if (repeat < 0) continue;
    tokens_per_s.push_back(double(setting.num_seqs) * setting.steps / *seconds);
    ms.push_back(1e3 * *seconds / setting.steps);
  }
  BenchResult result = bench->NewResult(values, gate);
  result.test = TestName(setting);
  result.command = fmt::format("kvrm bench decode -np {} -d {} -n {} -r {} -t {}", setting.num_seqs,
                               setting.depth, setting.steps, repeats, driver.num_threads());
  if (setting.synthetic) result.command += " --synthetic";
  result.tokens_per_s = std::move(tokens_per_s);
  result.ms = std::move(ms);
  result.floor = DecodeFloor(driver, setting);
  PrintResult(values, result);
  return kExitDone;
}

}  // namespace kvrm::cli
