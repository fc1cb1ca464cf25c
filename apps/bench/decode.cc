// kvrm bench decode: single-token steps of a batch of distinct sequences at a given depth.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <vector>

#include "bench/ceilings.h"
#include "bench/step_bench.h"
#include "bench/step_work.h"
#include "engine/sampler.h"
#include "kvrm/commands.h"

namespace kvrm::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct DecodeSetting {
  uint32_t num_seqs = 1;
  uint32_t depth = 0;
  uint32_t steps = 128;
};

// The batch: sequences in slot order with the token that each computes next.
class Batch {
 public:
  Batch(StepDriver& driver, const DecodeSetting& setting)
      : driver_(driver), setting_(setting), sampler_(driver.executor().info().vocab) {
    greedy_.temperature = 0;
    const uint32_t vocab = driver.executor().info().vocab;
    for (uint32_t i = 0; i < setting.num_seqs; ++i) {
      const SeqId seq = driver.OpenSequence();
      const std::vector<TokenId> tokens = RandomTokens(vocab, setting.depth + 1, i);
      driver.Prefill(seq, std::span(tokens).first(setting.depth), /*want_last=*/false);
      seqs_.push_back(seq);
      first_tokens_.push_back(tokens.back());
    }
  }

  // Runs the setting's steps from its depth; returns seconds, nothing when logits were not finite.
  std::optional<double> TimeSteps() {
    std::vector<TokenId> next = first_tokens_;
    std::vector<TokenRun> runs(seqs_.size());
    const auto begin = SteadyClock::now();
    for (uint32_t step = 0; step < setting_.steps; ++step) {
      for (size_t i = 0; i < seqs_.size(); ++i) runs[i] = {seqs_[i], {&next[i], 1}, 1};
      const StepResult result = driver_.Run(runs);
      for (size_t i = 0; i < seqs_.size(); ++i) {
        // Opened one after another, the sequences stand in slot order, and so do their logits.
        const float* logits = result.logits + i * result.logits_stride;
        const float* hint = result.panel_max + i * result.num_panels;
        const Sample sample = sampler_.Run(greedy_, logits, hint, {}, step);
        if (!sample.ok) return std::nullopt;
        next[i] = sample.id;
      }
    }
    const std::chrono::duration<double> elapsed = SteadyClock::now() - begin;
    for (SeqId seq : seqs_) driver_.Trim(seq, setting_.depth);
    return elapsed.count();
  }

 private:
  StepDriver& driver_;
  const DecodeSetting setting_;
  Sampler sampler_;
  SamplingParams greedy_;
  std::vector<SeqId> seqs_;
  std::vector<TokenId> first_tokens_;
};

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
  const auto bench = OpenStepBench(values, setting.num_seqs, setting.depth + setting.steps);
  if (!bench.ok()) return Failed(values, bench.error());

  StepDriver& driver = *bench->driver;
  Batch batch(driver, setting);
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
  result.tokens_per_s = std::move(tokens_per_s);
  result.ms = std::move(ms);
  result.floor = DecodeFloor(driver, setting);
  PrintResult(values, result);
  return kExitDone;
}

}  // namespace kvrm::cli
