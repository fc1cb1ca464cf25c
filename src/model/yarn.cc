#include "model/yarn.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kvrm {
namespace {

// Which pair turns `turns` times within `context` tokens, as a number between pairs.
double PairThatTurns(double turns, double context, double base, uint32_t dims) {
  return dims * std::log(context / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
}

}  // namespace

std::vector<float> YarnDivisors(const YarnScaling& yarn, double base, uint32_t dims) {
  const double context = yarn.original_context;
  const double fast = std::floor(PairThatTurns(yarn.beta_fast, context, base, dims));
  const double slow = std::ceil(PairThatTurns(yarn.beta_slow, context, base, dims));
  const double low = std::max(fast, 0.0);
  double high = std::min(slow, static_cast<double>(dims) - 1);
  if (low == high) high += 0.001;
  std::vector<float> divisors;
  for (uint32_t pair = 0; pair < dims / 2; ++pair) {
    const double slowed = std::clamp((pair - low) / (high - low), 0.0, 1.0);
    divisors.push_back(static_cast<float>(1.0 / (slowed / yarn.factor + (1.0 - slowed))));
  }
  return divisors;
}

double YarnAmplitude(double factor, double strength) {
  return factor <= 1 ? 1.0 : 0.1 * strength * std::log(factor) + 1.0;
}

}  // namespace kvrm
