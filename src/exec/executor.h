// The Executor seam: something that replays fixed-shape programs over frames. It sees rows, slots,
// segments and pool bytes; never a request, never a sequence's owner.
//
// Thread class: engine-thread-only. Errors: a replay cannot fail; numeric faults are per-row
// status.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/step_sample.h"
#include "frame/frame.h"

namespace kvrm {

enum class InvarianceClass : uint8_t { kNone, kPerSlot, kFull };  // law I5

// At most four programs exist; the engine takes the smallest that fits.
enum class ProgramKind : uint8_t { kDecode = 0, kMixed = 1, kPrefill = 2 };
inline constexpr uint32_t kNumPrograms = 3;

struct ExecutorInfo {
  std::string name;  // "cpu-avx512", "cpu-portable"
  std::string contract = "num-1";
  InvarianceClass invariance = InvarianceClass::kNone;
  uint32_t vocab = 0;
  uint32_t max_slots = 0;
  uint32_t max_rows[kNumPrograms] = {};  // row capacity of each program, ascending
  uint32_t max_logits = 0;               // rows of the logits buffer
  // What steps took at warm-up, for whoever predicts them; empty where nothing was measured.
  std::vector<StepSample> step_samples;
};

enum RowStatus : uint8_t { kRowOk = 0, kRowNonFinite = 1 };

// What a replay leaves behind; valid until the next Replay.
struct StepResult {
  ProgramKind program = ProgramKind::kDecode;
  const float* logits = nullptr;     // [num_logits, logits_stride]; first vocab columns count
  uint32_t logits_stride = 0;        // floats
  const float* panel_max = nullptr;  // [num_logits, num_panels]: max of each 256 columns, a hint
  uint32_t num_panels = 0;
  const uint8_t* row_status = nullptr;  // [num_rows] RowStatus
};

struct ExecutorCounters {
  uint64_t replays[kNumPrograms] = {};
  uint64_t rows = 0;
  uint64_t rows_computed = 0;               // `rows`, and those that strict shapes fill up
  uint64_t linear_calls = 0;                // one per linear op and step, whatever the rows
  uint64_t replay_hash[kNumPrograms] = {};  // of (op, addresses, capacities) of the last replay
  uint64_t programs_planned = 0;            // by replays: exact shapes alone
  uint64_t hash_mismatches = 0;             // replays whose hash differed from warm-up's (law I1)
  uint64_t nonfinite_rows = 0;
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual const ExecutorInfo& info() const = 0;
  // Replays each program once at 0, 1 and all rows against the null page, touches every buffer,
  // fixes the replay hashes and takes the step samples. Must run once, before the first Replay.
  virtual void WarmUp() = 0;
  virtual StepResult Replay(const FrameView& frame) = 0;
  virtual const ExecutorCounters& counters() const = 0;
};

}  // namespace kvrm
