// One line of an OpenAI batch file, in and out, as data: no engine, no file. Thread-safe.
//
// In: {"custom_id", "method": "POST", "url": "/v1/chat/completions", "body": {...}}.
// Out: {"id", "custom_id", "response": {"status_code", "request_id", "body"}, "error"}; of a line
// that is no request `response` is null and `error` has code and message.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"
#include "server/openai_types.h"

namespace kvrm::cli {

inline constexpr size_t kMaxLineBytes = 8u << 20;  // as a request body over HTTP
inline constexpr size_t kMaxCustomIdBytes = 512;

struct BatchRequest {
  std::string custom_id;
  Api api = Api::kChat;
  std::string body;  // JSON text
};

// What is wrong with a line; `custom_id` where it could be read.
struct BatchFault {
  std::string custom_id;
  std::string code;
  std::string message;  // valid UTF-8
};

std::variant<BatchRequest, BatchFault> ReadBatchLine(std::string_view line);

// The id of the answer to line `number` (from 1): also marks lines that have no custom_id.
std::string AnswerId(uint64_t number);

// Each is one line, its end included. `body` is JSON text.
std::string AnswerLine(uint64_t number, std::string_view custom_id, int status,
                       std::string_view body);
std::string FaultLine(uint64_t number, const BatchFault& fault);

struct AnsweredLine {
  std::string id;
  std::string custom_id;  // empty: null
};
// Of a line that AnswerLine or FaultLine has written. Errors: it is none.
Result<AnsweredLine> ReadAnswerLine(std::string_view line);

}  // namespace kvrm::cli
