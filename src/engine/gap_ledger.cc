#include "engine/gap_ledger.h"

#include <algorithm>
#include <utility>

namespace kvrm {
namespace {

uint32_t IndexOf(GapCause cause) { return static_cast<uint32_t>(cause); }

}  // namespace

const char* GapCauseName(GapCause cause) {
  static constexpr const char* kNames[kNumGapCauses] = {
      "decode", "prefill", "transport", "preemption", "sampling", "output", "stolen", "other"};
  return kNames[IndexOf(cause)];
}

GapLedger::GapLedger(int64_t budget_us, StolenUs stolen_us)
    : budget_us_(budget_us), stolen_us_(std::move(stolen_us)) {}

int64_t GapLedger::Lap(int64_t now_us, GapCause cause) {
  const int64_t lap_us = now_us - last_lap_us_;
  last_lap_us_ = now_us;
  laps_us_[IndexOf(cause)] += lap_us;
  return lap_us;
}

int64_t GapLedger::LapReplay(int64_t now_us, const Replay& replay) {
  const int64_t replay_us = Lap(now_us, GapCause::kDecode);
  decode_allowance_us_ = std::min(replay.decode_us, budget_us_);
  if (replay.prompt_rows == 0) return replay_us;
  const int64_t rows = replay.decode_rows + int64_t{replay.prompt_rows};
  const int64_t decode_us = replay.decode_us > 0 ? std::min(replay.decode_us, replay_us)
                                                 : replay_us * replay.decode_rows / rows;
  laps_us_[IndexOf(GapCause::kDecode)] -= replay_us - decode_us;
  laps_us_[IndexOf(GapCause::kPrefill)] += replay_us - decode_us;
  return replay_us;
}

void GapLedger::Stamp(int64_t now_us) {
  Lap(now_us, GapCause::kOther);
  std::copy(std::begin(laps_us_), std::end(laps_us_), std::begin(beyond_us_));
  std::fill(std::begin(laps_us_), std::end(laps_us_), 0);
  beyond_us_[IndexOf(GapCause::kDecode)] -= decode_allowance_us_;
  beyond_us_[IndexOf(GapCause::kPrefill)] -= budget_us_ - decode_allowance_us_;
  previous_stamp_us_ = std::exchange(stamp_us_, now_us);
  decode_allowance_us_ = 0;
  ReadStolen();
}

void GapLedger::ReadStolen() {
  stolen_in_gap_us_ = 0;
  if (!stolen_us_ || budget_us_ == 0) return;
  if (was_stolen_read_ && stamp_us_ - stolen_read_at_us_ < budget_us_ / 2) return;
  const int64_t before_us = std::exchange(stolen_read_us_, stolen_us_());
  stolen_read_at_us_ = stamp_us_;
  if (std::exchange(was_stolen_read_, true)) {
    stolen_in_gap_us_ = std::max<int64_t>(0, stolen_read_us_ - before_us);
  }
}

void GapLedger::Count(int64_t since_us, bool was_preempted) {
  ++counters_.gaps;
  const int64_t excess_us = stamp_us_ - since_us - budget_us_;
  if (budget_us_ == 0 || excess_us <= 0) return;
  const GapCause cause = Stolen(excess_us) ? GapCause::kStolen
                         : was_preempted   ? GapCause::kPreemption
                                           : Blame(previous_stamp_us_ - since_us);
  ++counters_.over_budget[IndexOf(cause)];
  counters_.excess_us[IndexOf(cause)] += excess_us;
}

bool GapLedger::Stolen(int64_t excess_us) const {
  return static_cast<double>(stolen_in_gap_us_) >= kStolenShare * static_cast<double>(excess_us);
}

// `waited_us`: how long before the last stamp but one the stream's gap began. Every stream that
// decodes has a token at each stamp, unless there was no room for its row.
GapCause GapLedger::Blame(int64_t waited_us) const {
  int64_t beyond_us[kNumGapCauses];
  std::copy(std::begin(beyond_us_), std::end(beyond_us_), std::begin(beyond_us));
  beyond_us[IndexOf(GapCause::kPreemption)] += waited_us;
  const int64_t* most = std::max_element(std::begin(beyond_us), std::end(beyond_us));
  return static_cast<GapCause>(most - std::begin(beyond_us));
}

}  // namespace kvrm
