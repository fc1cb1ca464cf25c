// Where the time between two tokens goes, and which cause a gap over the budget is counted under.
//
// The step hands each of its laps to the ledger; from one stamp of tokens to the next they add up
// to the whole time, with nothing left out. At the stamp each stream's gap is told; one that is
// over the budget is counted under the cause that took most beyond its allowance:
//
//   decode      what the cost model predicts for the decode rows alone, at most the budget
//   prefill     what that leaves of the budget: prompt rows were cut to it
//   all others  nothing
//
// A gap is `stolen` where the time that the engine's threads stood ready without a CPU covers at
// least kStolenShare of its excess, whatever lap it happened to fall into. That time is read at a
// stamp, where gaps begin and end, once half a budget has passed since it was read last: so it is
// read where a gap over the budget ends, and not long before that gap began.
//
// Causes are for people and decide nothing. Engine-thread-only; no allocation.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/gap_causes.h"

namespace kvrm {

inline constexpr double kStolenShare = 0.8;

// Time that threads of this process were ready to run and did not, since whenever: only differences
// count.
using StolenUs = std::function<int64_t()>;

class GapLedger {
 public:
  // `budget_us` 0: gaps are counted, none is over. `stolen_us` may be empty.
  GapLedger(int64_t budget_us, StolenUs stolen_us);

  // The time since the last lap, which ends now, belongs to `cause`. Returns it.
  int64_t Lap(int64_t now_us, GapCause cause);

  // What a replay computes, for the share of its prompt rows.
  struct Replay {
    uint32_t decode_rows = 0, prompt_rows = 0;
    int64_t decode_us = 0;  // predicted for the decode rows alone; 0: nothing is
  };
  // The same for a replay: what its decode rows are predicted to take is theirs, the rest belongs
  // to its prompt rows; where nothing is predicted, each row takes the same.
  int64_t LapReplay(int64_t now_us, const Replay& replay);

  // Tokens are stamped: the laps up to now, the last of which ends here, and what was stolen are
  // what the gaps that end with this stamp are judged by. What follows belongs to the next one.
  void Stamp(int64_t now_us);
  // One of these gaps; the token before it was stamped at `since_us`. `was_preempted`: between the
  // two the stream lost its pages.
  void Count(int64_t since_us, bool was_preempted);

  const GapCounters& counters() const { return counters_; }

 private:
  void ReadStolen();
  bool Stolen(int64_t excess_us) const;
  GapCause Blame(int64_t waited_us) const;

  // ---- constant after construction
  const int64_t budget_us_;
  const StolenUs stolen_us_;

  int64_t last_lap_us_ = 0;
  int64_t laps_us_[kNumGapCauses] = {};  // since the last stamp
  int64_t decode_allowance_us_ = 0;      // of the step in hand

  // ---- what ends with the last stamp
  int64_t stamp_us_ = 0, previous_stamp_us_ = 0;
  int64_t beyond_us_[kNumGapCauses] = {};  // laps less allowances

  // ---- stolen time as read, and when; read first at the first stamp
  bool was_stolen_read_ = false;
  int64_t stolen_read_us_ = 0, stolen_read_at_us_ = 0;
  int64_t stolen_in_gap_us_ = 0;  // between the last two readings; 0: none for this stamp

  GapCounters counters_;
};

}  // namespace kvrm
