// The Clock seam: every reading of time that can change a decision goes through it, so that a
// record can be replayed under another clock. Integer microseconds; never floating point.
#pragma once

#include <cstdint>
#include <ctime>

namespace kvrm {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t NowUs() = 0;  // monotonic, microseconds
};

class SystemClock final : public Clock {
 public:
  int64_t NowUs() override {
    timespec ts{};
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return int64_t{ts.tv_sec} * 1'000'000 + ts.tv_nsec / 1000;
  }
};

class ManualClock final : public Clock {
 public:
  int64_t NowUs() override { return now_us_; }
  void AdvanceUs(int64_t us) { now_us_ += us; }

 private:
  int64_t now_us_ = 0;
};

}  // namespace kvrm
