#include "bench/decode_batch.h"

#include <chrono>

#include "bench/step_bench.h"

namespace kvrm::cli {

using SteadyClock = std::chrono::steady_clock;

DecodeBatch::DecodeBatch(StepDriver& driver, const DecodeSetting& setting)
    : driver_(driver), setting_(setting), sampler_(driver.executor().info().vocab) {
  greedy_.temperature = 0;
  const uint32_t vocab = driver.executor().info().vocab;
  for (uint32_t i = 0; i < setting.num_seqs; ++i) {
    const SeqId seq = driver.OpenSequence();
    const std::vector<TokenId> tokens = RandomTokens(vocab, setting.depth + 1, i);
    if (setting.synthetic) {
      driver.FillSynthetic(seq, setting.depth);
    } else {
      driver.Prefill(seq, std::span(tokens).first(setting.depth), /*want_last=*/false);
    }
    seqs_.push_back(seq);
    first_tokens_.push_back(tokens.back());
  }
}

std::optional<double> DecodeBatch::TimeSteps() {
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

}  // namespace kvrm::cli
