// YaRN (arXiv 2309.00071): RoPE for a longer context than the one a model was trained with. Pairs
// of dimensions that turn often within that context keep their frequency, those that hardly turn
// are slowed by the factor, those between are blended; cosines and sines are scaled, so that
// attention over more tokens stays as sharp. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

namespace kvrm {

struct YarnScaling {
  double factor = 1;
  uint32_t original_context = 0;         // tokens; what the model was trained with
  double beta_fast = 32, beta_slow = 1;  // turns within original_context: kept from, slowed up to
};

// Frequency divisors. [dims/2]. Requires: base > 1, original_context > 0, numbers above 0.
std::vector<float> YarnDivisors(const YarnScaling& yarn, double base, uint32_t dims);

// What cosines and sines are scaled by. `strength`: 1 but for models that were trained with
// another.
double YarnAmplitude(double factor, double strength = 1);

}  // namespace kvrm
