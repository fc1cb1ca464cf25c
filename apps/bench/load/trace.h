// Arrival traces of real services: times and lengths, and where the trace has them the prompts'
// block hashes. Plain data and its readers; thread-safe.
//
// Three formats, told apart by their first line:
//   Azure LLM inference trace:  TIMESTAMP,ContextTokens,GeneratedTokens  (date and time)
//   its cut-out windows:        row,arrival_us,prompt_tokens,output_tokens
//   Mooncake:                   {"timestamp": ms, "input_length", "output_length", "hash_ids"} a
//   line
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace kvrm::cli {

struct TraceRow {
  int64_t arrival_us = 0;  // since the trace's first arrival
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  std::vector<uint32_t> blocks;  // one hash a kTraceBlockTokens tokens of the prompt; or none
};
inline constexpr uint32_t kTraceBlockTokens = 512;  // of Mooncake's traces

struct Trace {
  std::vector<TraceRow> rows;  // by arrival, the file's order kept among equals
  uint32_t moved_rows = 0;     // that the file had out of order
};

// Errors name `path`, line and field: an unknown format, a value that is no number or no time, a
// file without a row.
Result<Trace> ParseTrace(const std::string& text, const std::string& path);

}  // namespace kvrm::cli
