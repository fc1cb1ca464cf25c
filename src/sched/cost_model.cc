#include "sched/cost_model.h"

#include <algorithm>

namespace kvrm {
namespace {

constexpr double kWeight = 0.125;  // of one observation
constexpr double kMostSurprise = 4;

// Tokens that `rows` rows see, the last of which stands at `position`.
double TokensSeen(uint32_t rows, uint32_t position) {
  const double last = position + 1.0;
  return rows * (last - (rows - 1.0) / 2);
}

// Its rows see so much that it tells of attention, not of the linear work.
bool IsFar(const StepSample& sample) { return sample.position >= 2 * sample.rows; }

}  // namespace

CostModel::CostModel(std::span<const StepSample> samples) {
  // Linear work: for each row count the sample at the lowest position.
  std::vector<StepSample> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end(), [](const StepSample& x, const StepSample& y) {
    return x.rows != y.rows ? x.rows < y.rows : x.position < y.position;
  });
  for (const StepSample& sample : sorted) {
    if (IsFar(sample) || (!knots_.empty() && knots_.back().rows == sample.rows)) continue;
    // More rows never cost less: a sample that says so met a disturbance.
    const double us =
        std::max<double>(static_cast<double>(sample.us), knots_.empty() ? 1.0 : knots_.back().us);
    knots_.push_back({static_cast<double>(sample.rows), us});
  }
  // Attention: what is above the linear work, per token seen; the mean over the samples of a kind.
  double seen[2] = {}, extra_us[2] = {};
  for (const StepSample& sample : sorted) {
    if (!IsFar(sample)) continue;
    const int kind = sample.rows == 1 ? 0 : 1;
    seen[kind] += TokensSeen(sample.rows, sample.position);
    extra_us[kind] += std::max(0.0, static_cast<double>(sample.us) - LinearUs(sample.rows));
  }
  if (seen[0] > 0) decode_token_us_ = extra_us[0] / seen[0];
  prompt_token_us_ = seen[1] > 0 ? extra_us[1] / seen[1] : decode_token_us_;
}

double CostModel::LinearUs(double rows) const {
  if (knots_.empty()) return 0;
  if (rows <= knots_.front().rows || knots_.size() == 1) return knots_.front().us;
  size_t right = 1;
  while (right + 1 < knots_.size() && knots_[right].rows < rows) ++right;
  const Knot& low = knots_[right - 1];
  const Knot& high = knots_[right];  // the last pair also tells what lies beyond it
  return low.us + (high.us - low.us) * (rows - low.rows) / (high.rows - low.rows);
}

double CostModel::BaseUs(const StepShape& shape) const {
  return LinearUs(shape.rows()) + prompt_token_us_ * static_cast<double>(shape.prompt_tokens) +
         decode_token_us_ * static_cast<double>(shape.decode_tokens);
}

double CostModel::PredictUs(const StepShape& shape) const {
  if (shape.rows() == 0) return 0;
  return BaseUs(shape) * (shape.prompt_rows > 0 ? prompt_scale_ : decode_scale_);
}

void CostModel::Observe(const StepShape& shape, int64_t us) {
  if (!known() || shape.rows() == 0 || us <= 0) return;
  double& scale = shape.prompt_rows > 0 ? prompt_scale_ : decode_scale_;
  const double seen = static_cast<double>(us) / BaseUs(shape);
  const double believed = std::clamp(seen, scale / kMostSurprise, scale * kMostSurprise);
  scale += kWeight * (believed - scale);
}

uint32_t CostModel::PromptRowsWithin(double budget_us, const StepShape& decoding,
                                     uint32_t first_position, uint32_t at_most) const {
  const auto fits = [&](uint32_t rows) {
    StepShape shape = decoding;
    shape.prompt_rows += rows;
    shape.prompt_tokens += static_cast<uint64_t>(TokensSeen(rows, first_position + rows - 1));
    return PredictUs(shape) <= budget_us;
  };
  uint32_t within = 0, beyond = at_most + 1;  // the prediction rises with rows
  while (within + 1 < beyond) {
    const uint32_t middle = within + (beyond - within) / 2;
    (fits(middle) ? within : beyond) = middle;
  }
  return within;
}

}  // namespace kvrm
