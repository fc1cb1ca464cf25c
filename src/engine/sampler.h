// The sampler: from a row of logits to a token id. Stateless but for what it is given; thread-safe
// on different rows.
//
// Stages in order: bias and penalties, constraint mask (a hook), greedy or temperature, top-k,
// top-p, min-p, draw. Draws come from a counter-based generator keyed by (seed, choice, output
// index): they never depend on batch, order or time. Ties go to the lowest id.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace kvrm {

struct SamplingParams {
  float temperature = 0.8f;         // 0 = greedy; 0..100
  uint32_t top_k = 40;              // 0 = off
  float top_p = 0.95f;              // 0 < p <= 1; 1 = off
  float min_p = 0.05f;              // 0..1; 0 = off
  float repetition_penalty = 1.0f;  // > 0; 1 = off
  uint32_t repetition_last_n = 64;  // tokens looked back at
  uint64_t seed = 0;
  uint32_t choice = 0;
  uint32_t num_logprobs = 0;  // top log-probabilities of the raw logits to report, 0..20
};
// Errors name the parameter, its value and its range; NaN and infinities are refused (B040).
Status CheckSampling(const SamplingParams& params);

struct TokenLogprob {
  TokenId id = -1;
  float logprob = 0;
};
struct Sample {
  TokenId id = -1;
  bool ok = true;                 // false: logits not finite, or everything masked
  float logprob = 0;              // of id, raw logits; set when num_logprobs > 0
  std::vector<TokenLogprob> top;  // [num_logprobs], best first
};

// The hook where constraints enter: clears bits of tokens that may not come next.
class TokenMask {
 public:
  virtual ~TokenMask() = default;
  virtual std::span<const uint64_t> allowed() const = 0;  // bit set = allowed, [(vocab + 63) / 64]
};

class Sampler {
 public:
  explicit Sampler(uint32_t vocab);
  ~Sampler();
  // `logits` [vocab]; `panel_max` [(vocab + 255) / 256] or nullptr, a hint only; `history`: prompt
  // and output so far, for penalties; `output_idx`: how many tokens this choice has produced;
  // `banned`: ids that may not be chosen (min_tokens). Does not change `logits`. Scratch is the
  // sampler's own and sized at construction; no allocation but in Sample::top.
  Sample Run(const SamplingParams& params, const float* logits, const float* panel_max,
             std::span<const TokenId> history, uint32_t output_idx,
             std::span<const TokenId> banned = {}, const TokenMask* mask = nullptr);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The counter-based generator: uniform in [0, 1), 24 bits.
float UniformDraw(uint64_t seed, uint32_t choice, uint32_t output_idx);

}  // namespace kvrm
