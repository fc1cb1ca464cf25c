// A batch of distinct sequences of random tokens that decode greedily: what `bench decode` and
// `bench ops` time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/sampler.h"
#include "steps/step_driver.h"

namespace kvrm::cli {

struct DecodeSetting {
  uint32_t num_seqs = 1;
  uint32_t depth = 0;
  uint32_t steps = 128;
  bool synthetic = false;  // the cache at `depth` is filled, not computed
};

// Thread class: engine-thread-only. `driver` outlives it.
class DecodeBatch {
 public:
  DecodeBatch(StepDriver& driver, const DecodeSetting& setting);

  // Runs the setting's steps from its depth; returns seconds, nothing when logits were not finite.
  std::optional<double> TimeSteps();

 private:
  StepDriver& driver_;
  const DecodeSetting setting_;
  Sampler sampler_;
  SamplingParams greedy_;
  std::vector<SeqId> seqs_;            // in slot order
  std::vector<TokenId> first_tokens_;  // that each sequence computes first
};

}  // namespace kvrm::cli
