// What one event of a streamed OpenAI answer says, chat or completions. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvrm::cli {

struct AnswerEvent {
  bool done = false;  // "[DONE]"
  std::string text;   // of choice 0; reasoning text counts as text
  std::string finish_reason;
  std::string error;  // the message of an error event; "" = none
  std::optional<uint32_t> prompt_tokens, output_tokens, cached_tokens;
};

// Errors: `data` is neither [DONE] nor a JSON object of the expected types. Unknown fields are read
// over, null is the same as absent.
Result<AnswerEvent> ParseAnswerEvent(std::string_view data);

// The message of an error body, or its beginning when it is of no known form; one line.
std::string ErrorMessage(std::string_view body);

}  // namespace kvrm::cli
