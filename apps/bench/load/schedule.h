// What one source of a workload asks for, and when: arrivals and contents depend on the workload's
// seed alone, never on how the server answers, so that two runs ask the same.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bench/load/prompt_words.h"
#include "bench/load/trace.h"
#include "bench/load/workload.h"

namespace kvrm::cli {

// The next request of a conversation.
struct Turn {
  std::string text;            // the user's
  uint32_t prompt_tokens = 0;  // of `text`; in a first turn of the prefix too
  uint32_t output_tokens = 0;
  uint32_t cut_tokens = 0;               // that the context had no room for
  std::optional<uint32_t> cancel_after;  // text events
};

class Schedule {
 public:
  // `context_tokens` 0: lengths are not cut. `trace` is used by arrivals kTrace alone. All
  // references outlive the schedule.
  Schedule(const Workload& workload, size_t source_idx, const Trace& trace, uint32_t context_tokens,
           const PromptWords& words);

  // False: the prefix alone fills the context.
  bool FitsContext() const;
  // When the next conversation is due, microseconds since the run's start; nullopt: none is any
  // more. Requires: an open source.
  std::optional<int64_t> NextArrivalUs();
  // The text in front of every prompt of conversation `number`; "" = none.
  std::string Prefix(uint64_t number) const;
  // `history_tokens`: that the earlier turns take up. nullopt: the context has no room for it.
  std::optional<Turn> MakeTurn(uint64_t number, uint32_t turn, uint32_t history_tokens) const;

 private:
  std::optional<int64_t> NextOffsetUs();
  std::string TraceText(const TraceRow& row, uint32_t tokens, Random random) const;
  Random RandomOf(uint64_t use, uint64_t number, uint64_t turn) const;

  const Workload& workload_;
  const Source& source_;
  const uint64_t source_idx_;
  const Trace& trace_;
  const uint32_t context_tokens_;
  const PromptWords& words_;
  const size_t first_row_;  // of the trace: the first at or behind from-s

  Random gaps_;
  uint64_t num_arrived_ = 0;
  double offset_s_ = 0;
};

}  // namespace kvrm::cli
