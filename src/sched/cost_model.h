// How long a step will take, told from counts:
//
//     time = scale * (a(M) + b * sum of prompt positions + c * sum of decode lengths)
//
// M = rows of the step. a(M), the linear work, is piecewise linear between measured row counts; b
// and c are what a prompt row and a decode row pay for each token that it sees. The shape of the
// curve is measured once, at warm-up; what it is worth on this machine now (others' load, real
// memory instead of a warm cache) is one factor for steps that only decode and one for steps with
// prompt rows, refined with each step.
//
// Refused: recursive least squares over all coefficients. In steady decode M and the lengths hardly
// move, the covariance winds up, and the first prompt gets an absurd prediction.
//
// Thread class: engine-thread-only. Pure arithmetic: the same observations give the same
// predictions, so a recorded run replays.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/step_sample.h"

namespace kvrm {

// What a step computes, as counts.
struct StepShape {
  uint32_t decode_rows = 0;
  uint32_t prompt_rows = 0;
  uint64_t decode_tokens = 0;  // sum over decode rows of the tokens that they see
  uint64_t prompt_tokens = 0;  // sum over prompt rows of the same
  uint32_t rows() const { return decode_rows + prompt_rows; }
};

class CostModel {
 public:
  // `samples`: at least two row counts at position 0, and, for b and c, row counts (one of them 1)
  // at a larger position, where most of the extra work is attention: they tell nothing of a.
  // Without samples it knows nothing, and whoever asks has to do with fixed bounds.
  explicit CostModel(std::span<const StepSample> samples);

  // A step of `shape` took `us`. Outliers count little: one observation moves a factor by at most
  // an eighth of the way, from a ratio cut to [1/4, 4] of what was expected.
  void Observe(const StepShape& shape, int64_t us);

  // False: no samples were given.
  bool known() const { return !knots_.empty(); }
  double PredictUs(const StepShape& shape) const;
  // The most prompt rows, beginning at `first_position`, that a step with `decoding` (no prompt
  // rows yet, or some) may add and stay within `budget_us`; 0 when not even one fits. Requires:
  // known().
  uint32_t PromptRowsWithin(double budget_us, const StepShape& decoding, uint32_t first_position,
                            uint32_t at_most) const;

  double decode_scale() const { return decode_scale_; }
  double prompt_scale() const { return prompt_scale_; }

 private:
  struct Knot {
    double rows;
    double us;
  };
  double LinearUs(double rows) const;
  double BaseUs(const StepShape& shape) const;

  std::vector<Knot> knots_;     // ascending rows
  double prompt_token_us_ = 0;  // b
  double decode_token_us_ = 0;  // c
  double decode_scale_ = 1;
  double prompt_scale_ = 1;
};

}  // namespace kvrm
