// Replays a record: the same inputs, in the same order, with the same readings of the clock, and
// whether the same commits and tokens come of them. Thread count, other load and how long anything
// takes now must not matter.
//
// Thread class: engine-thread-only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/record_reader.h"

namespace kvrm {

// The engine's clock in a replay: it shows what the record says that it showed.
class ReplayClock final : public Clock {
 public:
  int64_t NowUs() override { return now_us_; }
  void Show(int64_t now_us) { now_us_ = now_us; }

 private:
  int64_t now_us_ = 0;
};

struct RecordReplayReport {
  uint64_t steps = 0;  // begun
  uint64_t commits = 0, requests = 0, tokens = 0;
  uint64_t chain_hash = 0;  // of the last commit
  bool closed = false;      // the record ends as one that was closed
  // Where what came parts from the record, and how; nothing else is replayed then.
  struct Divergence {
    uint64_t step;
    std::string what;  // one line
  };
  std::optional<Divergence> divergence;
};

// Replays all of `reader` in `engine`, which was made as the record's header says, has done nothing
// yet and reads `clock`. Its observer is taken. Errors: the reader's, an engine whose settings are
// others; what diverges is no error.
Result<RecordReplayReport> ReplayRecord(RecordReader& reader, Engine& engine, ReplayClock& clock);

}  // namespace kvrm
