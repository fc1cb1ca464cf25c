// What a trace tells: the frame of any epoch with its tables, whether all of it is sound, and where
// two traces part.
//
// Thread-compatible. The reader outlives the replay; a view lasts until the next Seek.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "frame/resident_tables.h"
#include "frame/trace_reader.h"

namespace kvrm {

class TraceReplay {
 public:
  explicit TraceReplay(const TraceReader& reader);

  // The frame of record `index` with the tables as they were after its step. Begins at the last key
  // frame, or where the replay stands when that is nearer. Errors: a record that cannot be read or
  // whose deltas do not fit their tables.
  Result<FrameView> Seek(size_t index);
  // Of the frame that the last Seek returned: whether its slots say of their tables what the deltas
  // lead to. Only then may it be shown: DumpFrame and FrameJson believe these counts.
  Status CheckCounts() const;
  // ValidateFrame of that frame, CheckCounts, the chain where the frame before it is known, and
  // whether a key frame's tables are those that the deltas before it lead to.
  std::vector<std::string> Violations() const;

 private:
  Status Advance(size_t index);
  Status BeginAt(const TraceFrame& frame);
  Status Apply(std::span<const Delta> deltas, uint64_t epoch, const char* what);
  std::optional<std::string> KeyDifference(const TraceFrame& frame) const;

  const TraceReader& reader_;
  const FrameCapacity capacity_;
  std::unique_ptr<ResidentTables> tables_;
  std::vector<const SlotHead*> by_slot_;
  std::optional<size_t> at_;  // the record whose frame `frame_` is
  std::optional<TraceFrame> frame_;
  FrameView view_;
  std::optional<FrameHead> previous_;  // epoch and chain_hash of the frame before
  std::optional<std::string> key_difference_;
};

struct ReplayReport {
  uint64_t frames = 0, rows = 0, deltas = 0;
  uint64_t num_violations = 0;
  std::vector<std::string> violations;  // the first of them, "epoch 17: FRAME-4: ..."
};
// Replays every record; goes on at the next key frame after one that cannot be.
ReplayReport ReplayTrace(const TraceReader& reader, size_t max_violations);

struct TraceDifference {
  std::optional<uint64_t> epoch;  // none: in the header
  std::string object;             // "row 3"
  std::string field;
  std::string first, second;  // values
};
// The first difference: geometry and capacity, then the epochs that both have, then which epochs
// they have. Errors: a record that cannot be read.
Result<std::optional<TraceDifference>> DiffTraces(const TraceReader& first,
                                                  const TraceReader& second);

}  // namespace kvrm
