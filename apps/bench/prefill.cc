// kvrm bench prefill: the time of one prompt, from nothing to the logits of its last token.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <vector>

#include "bench/ceilings.h"
#include "bench/step_bench.h"
#include "bench/step_work.h"
#include "kvrm/commands.h"

namespace kvrm::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Linears at the peak of their arithmetic, attention at that of float; nullopt where this build
// cannot measure a peak.
std::optional<Floor> PrefillFloor(const StepDriver& driver, uint32_t prompt_tokens) {
  const ArithmeticPeak peak = MeasureArithmeticPeak(driver.num_threads());
  const PrefillOperations work = PrefillWork(driver.model(), prompt_tokens);
  const bool integer = driver.model().layers()[0].qkv.encoding != Encoding::kF32;
  const double linear_peak =
      integer && peak.int8_ops_per_s > 0 ? peak.int8_ops_per_s : peak.float_ops_per_s;
  if (linear_peak <= 0 || peak.float_ops_per_s <= 0) return std::nullopt;
  const double seconds = work.linear / linear_peak + work.attention / peak.float_ops_per_s;
  Floor floor;
  floor.ms = 1e3 * seconds;
  floor.operations = work.linear + work.attention;
  floor.ceiling_per_s = floor.operations / seconds;
  return floor;
}

// Seconds of the prompt on a fresh sequence; nothing when its logits were not finite.
std::optional<double> TimePrompt(StepDriver& driver, std::span<const TokenId> prompt) {
  const SeqId seq = driver.OpenSequence();
  const auto begin = SteadyClock::now();
  const StepResult result = driver.Prefill(seq, prompt, /*want_last=*/true);
  const std::chrono::duration<double> elapsed = SteadyClock::now() - begin;
  const size_t last_row = (prompt.size() - 1) % driver.max_rows();
  const bool finite = result.row_status[last_row] == kRowOk;
  driver.CloseSequence(seq);
  if (!finite) return std::nullopt;
  return elapsed.count();
}

}  // namespace

int RunBenchPrefill(const OptionValues& values) {
  const auto num_tokens = static_cast<uint32_t>(values.Int("n-prompt"));
  const auto bench = OpenStepBench(values, /*max_slots=*/1, num_tokens);
  if (!bench.ok()) return Failed(values, bench.error());

  StepDriver& driver = *bench->driver;
  const uint32_t vocab = driver.executor().info().vocab;
  const int64_t repeats = values.Int("repetitions");
  std::vector<double> tokens_per_s, ms;
  QuietGate gate;
  for (int64_t repeat = -1; repeat < repeats; ++repeat) {
    if (repeat == 0) gate = QuietGate();  // the first one only warms up
    const std::vector<TokenId> prompt =
        RandomTokens(vocab, num_tokens, static_cast<uint64_t>(repeat + 1));
    const std::optional<double> seconds = TimePrompt(driver, prompt);
    if (!seconds) return Failed(values, InvalidInput("logits are not finite"));
    if (repeat < 0) continue;
    tokens_per_s.push_back(num_tokens / *seconds);
    ms.push_back(1e3 * *seconds);
  }
  BenchResult result = bench->NewResult(values, gate);
  result.test = fmt::format("pp{}", num_tokens);
  result.command = fmt::format("kvrm bench prefill -p {} -r {} -t {}", num_tokens, repeats,
                               driver.num_threads());
  result.tokens_per_s = std::move(tokens_per_s);
  result.ms = std::move(ms);
  result.floor = PrefillFloor(driver, num_tokens);
  PrintResult(values, result);
  return kExitDone;
}

}  // namespace kvrm::cli
