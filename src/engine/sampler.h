// The sampler: from a row of logits to a token id. Stateless but for what it is given; thread-safe
// on different rows.
//
// Stages in order: bias, repetition penalty, frequency and presence penalties, constraint mask (a
// hook), greedy or temperature, top-k, typical-p, top-p, min-p, draw. Draws come from a
// counter-based generator keyed by (seed, choice, output index): they never depend on batch, order
// or time. Ties go to the lowest id.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace kvrm {

inline constexpr uint32_t kMaxLogitBiases = 300;
inline constexpr float kMaxLogitBias = 100.0f;   // to either side
inline constexpr float kMaxCountPenalty = 2.0f;  // of presence and frequency, to either side
inline constexpr uint32_t kMaxTopLogprobs = 20;

struct LogitBias {
  TokenId id = -1;
  float bias = 0;  // added to the logit
};

struct SamplingParams {
  float temperature = 0.8f;         // 0 = greedy; 0..100
  uint32_t top_k = 40;              // 0 = off
  float top_p = 0.95f;              // 0 < p <= 1; 1 = off
  float min_p = 0.05f;              // 0..1; 0 = off
  float typical_p = 1.0f;           // 0 < p <= 1; 1 = off
  float repetition_penalty = 1.0f;  // > 0; 1 = off
  uint32_t repetition_last_n = 64;  // tokens looked back at, prompt and output
  // Of tokens in the output so far, however far back, never of the prompt's; 0 = off. A token that
  // came c > 0 times loses c * frequency + presence.
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::vector<LogitBias>
      logit_bias;  // at most kMaxLogitBiases; ids outside the vocabulary: no effect
  uint64_t seed = 0;
  uint32_t choice = 0;
  uint32_t num_logprobs =
      0;  // top log-probabilities of the raw logits to report, 0..kMaxTopLogprobs
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
  uint32_t rank = 0;              // of Score: 1 + the tokens whose logit is larger
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
  // and output so far, for penalties; `output_idx`: how many tokens this choice has produced, the
  // last ones of `history`;
  // `banned`: ids that may not be chosen (min_tokens). Does not change `logits`. Scratch is the
  // sampler's own and sized at construction; no allocation but in Sample::top.
  Sample Run(const SamplingParams& params, const float* logits, const float* panel_max,
             std::span<const TokenId> history, uint32_t output_idx,
             std::span<const TokenId> banned = {}, const TokenMask* mask = nullptr);
  // What the row said of a token that is known already (a prompt's): its log-probability, its rank
  // and the `num_top` likeliest. Requires: `target` in the vocabulary, num_top <= kMaxTopLogprobs.
  Sample Score(const float* logits, const float* panel_max, TokenId target, uint32_t num_top);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The counter-based generator: uniform in [0, 1), 24 bits.
float UniformDraw(uint64_t seed, uint32_t choice, uint32_t output_idx);

}  // namespace kvrm
