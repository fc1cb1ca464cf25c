// Which cause a gap that went over its budget is counted under (law I7), and the counts.
//
// Plain data; thread-safe.
#pragma once

#include <cstdint>

namespace kvrm {

// Exactly one for each gap over the budget: what took most beyond what the step was planned for.
enum class GapCause : uint8_t {
  kDecode = 0,      // decode rows took longer than predicted, or are predicted to take that long
  kPrefill = 1,     // prompt rows of the same step
  kTransport = 2,   // copies of pages, and memory that the pager took or gave back
  kPreemption = 3,  // the stream itself waited for room, or was computed anew
  kSampling = 4,
  kOutput = 5,  // sinks that did not return
  kStolen = 6,  // the CPU was with others
  kOther = 7,   // planning, commit, the queue of events, and what nothing explains
};
inline constexpr uint32_t kNumGapCauses = 8;
// The word that metrics and documents use: "decode", "prefill", ...
const char* GapCauseName(GapCause cause);

struct GapCounters {
  uint64_t gaps = 0;                         // between two tokens of a stream
  uint64_t over_budget[kNumGapCauses] = {};  // of these, by cause
  int64_t excess_us[kNumGapCauses] = {};     // what they were over the budget, summed
};

}  // namespace kvrm
