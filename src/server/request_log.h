// The log: one line for each request, text or JSON, never one for a token. Pure, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/answer_format.h"
#include "server/server.h"

namespace kvrm {

struct RequestRecord {
  std::string_view id;
  std::string_view trace;  // traceparent; "" = none
  std::string_view route;
  std::string_view key;  // name of the API key; "" = none
  int status = 0;        // 0: the client went away before an answer
  bool client_gone = false;
  std::string_view error_code;             // "" = none
  int64_t total_us = 0;                    // head read to last byte written
  std::optional<int64_t> first_output_us;  // head read to the first text handed to the socket
  std::optional<AnswerRecord> answer;
};

// Without a line end. `unix_us`: now.
std::string LogLine(LogFormat format, const RequestRecord& record, int64_t unix_us);
// Any other line. kText: `message` as it stands.
std::string LogLine(LogFormat format, std::string_view message, int64_t unix_us);

}  // namespace kvrm
