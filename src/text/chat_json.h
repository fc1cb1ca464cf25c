// Conversations as JSON. The only header of this folder that shows Boost.JSON. Thread-safe.
#pragma once

#include <boost/json/fwd.hpp>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/chat_template.h"

namespace kvrm {

// Errors: a number that is not finite. An integer over 64 bits becomes a float.
Result<ChatValue> ToChatValue(const boost::json::value& value);

struct Conversation {
  std::vector<ChatMessage> messages;
  RenderOptions options;
};

// A list of messages, or an object with `messages` and, as wanted, `tools`, `documents`,
// `add_generation_prompt`; each other field becomes a variable of the template, those of
// `chat_template_kwargs` too. A message is an object whose `role` is a string; its other fields
// reach the template as they are.
// Errors: no JSON, nested deeper than 32 levels, a field of another type (named by its path).
Result<Conversation> ParseConversation(std::string_view json);

}  // namespace kvrm
