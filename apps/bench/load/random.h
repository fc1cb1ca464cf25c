// Random numbers that are the same on every machine: the standard library's engines are fixed, its
// distributions are not, and a workload file with its seed names one sequence of requests.
//
// Thread-compatible. Not for secrets.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <numbers>

namespace kvrm::cli {

// SplitMix64 (Steele, Lea, Flood 2014).
class Random {
 public:
  // Independent sequences for different `keys`: (seed, source, request, ...).
  explicit Random(std::initializer_list<uint64_t> keys) {
    for (uint64_t key : keys) state_ = Mix(state_ ^ key) + kStep;
  }

  uint64_t Next() { return Mix(state_ += kStep); }
  // [0, 1)
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  // [first, last]. Requires: first <= last.
  uint64_t Between(uint64_t first, uint64_t last) {
    return first + static_cast<uint64_t>(Uniform() * static_cast<double>(last - first + 1));
  }
  // Mean 1.
  double Exponential() { return -std::log1p(-Uniform()); }
  double Normal() {
    const double radius = std::sqrt(2 * Exponential());
    return radius * std::cos(2 * std::numbers::pi * Uniform());
  }
  // Mean 1, standard deviation `cv` (Marsaglia and Tsang 2000). Requires: cv > 0.
  double Gamma(double cv) {
    const double shape = 1 / (cv * cv);
    // Below 1 the method needs a shape one higher, brought back by a power of a uniform number.
    const double raised = shape < 1 ? shape + 1 : shape;
    const double d = raised - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    double value = 0;
    while (true) {
      const double x = Normal(), v = std::pow(1 + c * x, 3);
      if (v <= 0) continue;
      if (std::log(1 - Uniform()) >= 0.5 * x * x + d * (1 - v + std::log(v))) continue;
      value = d * v;
      break;
    }
    if (shape < 1) value *= std::pow(1 - Uniform(), 1 / shape);
    return value / shape;
  }

 private:
  static constexpr uint64_t kStep = 0x9E3779B97F4A7C15u;
  static constexpr uint64_t Mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  uint64_t state_ = 0;
};

}  // namespace kvrm::cli
