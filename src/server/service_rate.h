// How fast requests are served, measured, and what follows for one that found the queue full: the
// number of seconds after which half the queue will have been served, as a Retry-After. Thread-
// compatible.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace kvrm {

class ServiceRate {
 public:
  static constexpr uint32_t kMaxRetrySeconds = 60;

  // `ended`: requests that have ended since the start. Called now and then; spans of less than a
  // quarter of a second are put together with the next.
  void Observe(int64_t now_us, uint64_t ended) {
    constexpr int64_t kLeastSpanUs = 250'000;
    constexpr double kMemoryUs = 10e6;  // older measurements fade with this time constant
    if (last_us_ < 0) {
      last_us_ = now_us;
      last_ended_ = ended;
      return;
    }
    const int64_t span_us = now_us - last_us_;
    if (span_us < kLeastSpanUs) return;
    const double rate =
        static_cast<double>(ended - last_ended_) * 1e6 / static_cast<double>(span_us);
    const double kept = std::exp(-static_cast<double>(span_us) / kMemoryUs);
    weighted_ = kept * weighted_ + (1 - kept) * rate;
    weight_ = kept * weight_ + (1 - kept);
    last_us_ = now_us;
    last_ended_ = ended;
  }

  double per_second() const { return weight_ > 0 ? weighted_ / weight_ : 0; }

  // 1 to kMaxRetrySeconds; 1 while nothing is known.
  uint32_t RetryAfterSeconds(uint64_t waiting) const {
    if (weight_ == 0) return 1;
    const double seconds = static_cast<double>(waiting) / 2 / std::max(per_second(), 1e-9);
    return static_cast<uint32_t>(
        std::clamp(std::ceil(seconds), 1.0, static_cast<double>(kMaxRetrySeconds)));
  }

 private:
  int64_t last_us_ = -1;
  uint64_t last_ended_ = 0;
  double weighted_ = 0, weight_ = 0;  // rates by their weight, and the sum of weights
};

}  // namespace kvrm
