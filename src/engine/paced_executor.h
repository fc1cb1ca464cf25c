// PacedExecutor: a FakeExecutor whose replays take time on a ManualClock, a fixed part and a part
// for each row, and as much more as a test adds. Test code only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "engine/test_rig.h"

namespace kvrm::testing {

class PacedExecutor final : public Executor {
 public:
  static constexpr int64_t kStepUs = 1000, kRowUs = 100;
  // What one replay takes beyond its pace.
  using ExtraUs = std::function<int64_t(const FrameView&)>;

  PacedExecutor(std::unique_ptr<Executor> inner, ManualClock& clock, ExtraUs extra_us)
      : inner_(std::move(inner)), clock_(clock), extra_us_(std::move(extra_us)) {
    info_ = inner_->info();
    for (const uint32_t rows : {1u, 8u, 64u, 512u}) {
      info_.step_samples.push_back({.rows = rows, .position = 0, .us = PaceUs(rows)});
    }
  }
  static int64_t PaceUs(uint32_t rows) { return kStepUs + kRowUs * rows; }

  const ExecutorInfo& info() const override { return info_; }
  void WarmUp() override { inner_->WarmUp(); }
  const ExecutorCounters& counters() const override { return inner_->counters(); }
  StepResult Replay(const FrameView& frame) override {
    clock_.AdvanceUs(PaceUs(frame.head->num_rows) + (extra_us_ ? extra_us_(frame) : 0));
    return inner_->Replay(frame);
  }

 private:
  const std::unique_ptr<Executor> inner_;
  ManualClock& clock_;
  const ExtraUs extra_us_;
  ExecutorInfo info_;
};

}  // namespace kvrm::testing
