// Whether an engine that has work open comes on with it: whoever asks for health should know (B074,
// B021). A step alone is no progress: one that is planned without a row again and again is a stall
// like one that never ends. Thread-compatible.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/engine.h"

namespace kvrm {

class StallWatch {
 public:
  explicit StallWatch(int64_t stall_us) : stall_us_(stall_us) {}

  // `now_us`: monotonic, and never before the last one.
  void Observe(int64_t now_us, bool has_open_work, const EngineMetrics& metrics) {
    const uint64_t progress = metrics.prompt_tokens + metrics.output_tokens +
                              metrics.requests_finished + metrics.requests_cancelled +
                              metrics.requests_failed;
    if (!has_open_work || progress != progress_ || !progress_us_) {
      progress_ = progress;
      progress_us_ = now_us;
    }
    stalled_ = now_us - *progress_us_ > stall_us_;
  }

  bool stalled() const { return stalled_; }

 private:
  const int64_t stall_us_;
  uint64_t progress_ = 0;
  std::optional<int64_t> progress_us_;
  bool stalled_ = false;
};

}  // namespace kvrm
