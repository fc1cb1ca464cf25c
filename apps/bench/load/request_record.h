// What the load generator asked and what it saw, request by request: the raw samples that all
// figures are made of. Plain data.
//
// Times are microseconds of the monotonic clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvrm::cli {

enum class Outcome : uint8_t {
  kDone,
  kCancelled,    // by us, as the workload asked
  kConnect,      // no connection
  kReset,        // the connection ended inside the answer, or before it
  kHttp429,      // too many requests
  kHttp503,      // unavailable
  kHttp4xx,      // another client error
  kHttp5xx,      // another status that is not 200
  kMalformed,    // no HTTP, no event stream, no JSON in an event
  kStreamError,  // an event that holds an error
  kTruncated,    // the answer ended in order, but without a finish reason or [DONE]
  kEmpty,        // it ended in order, without a token
  kTimeout,      // timeout-s passed
  kUnfinished,   // still open drain-s after the last arrival
};
inline constexpr size_t kNumOutcomes = 14;
const char* OutcomeName(Outcome outcome);  // "done", "http-429"
inline bool IsError(Outcome outcome) {
  return outcome != Outcome::kDone && outcome != Outcome::kCancelled;
}

// An event with text; one event may hold several tokens.
struct TextEvent {
  int64_t arrived_us = 0;          // its last byte was read from the socket
  std::optional<int64_t> sent_us;  // by the server's clock, where the server says so
};

struct RequestRecord {
  uint64_t id = 0;      // in the order of intended times, over all sources
  uint32_t source = 0;  // index into Workload::sources
  uint32_t turn = 0;    // of its conversation
  bool counted = true;  // false: due during the warm-up

  int64_t intended_us = 0;  // when it was due; all latencies count from here
  int64_t sent_us = 0;      // when its first byte was given to the system
  int64_t end_us = 0;       // when its answer was over
  std::vector<TextEvent> events;

  uint32_t asked_prompt_tokens = 0;  // as the workload wants them, after the cut to the context
  uint32_t asked_output_tokens = 0;
  uint32_t cut_tokens = 0;  // that the context had no room for, prompt and output together
  // What the server's usage says.
  std::optional<uint32_t> prompt_tokens, output_tokens, cached_tokens;

  Outcome outcome = Outcome::kDone;
  uint32_t http_status = 0;   // 0: none was read
  std::string finish_reason;  // as the server named it
  std::string detail;         // of an error: one line

  // By usage; a server without it is taken to send one token an event.
  uint32_t tokens() const {
    return output_tokens ? *output_tokens : static_cast<uint32_t>(events.size());
  }
};

}  // namespace kvrm::cli
