#include "bench/load/answer_event.h"

#include <algorithm>
#include <boost/json.hpp>
#include <limits>

namespace kvrm::cli {
namespace {

namespace json = boost::json;

const json::value* Member(const json::value* value, std::string_view name) {
  if (value == nullptr || !value->is_object()) return nullptr;
  const json::value* member = value->get_object().if_contains(name);
  return member == nullptr || member->is_null() ? nullptr : member;
}

std::string_view Text(const json::value* value) {
  return value != nullptr && value->is_string() ? std::string_view(value->get_string())
                                                : std::string_view();
}

std::optional<uint32_t> Count(const json::value* value) {
  if (value == nullptr) return std::nullopt;
  json::error_code error;
  const auto number = value->to_number<int64_t>(error);
  if (error || number < 0 || number > std::numeric_limits<uint32_t>::max()) return std::nullopt;
  return static_cast<uint32_t>(number);
}

// `{"error": {"message": ...}}`, `{"error": "..."}`, `{"message": ...}`, `{"detail": "..."}`.
std::string MessageOf(const json::value& root) {
  const json::value* error = Member(&root, "error");
  for (const json::value* value :
       {Member(error, "message"), error, Member(&root, "message"), Member(&root, "detail")}) {
    if (!Text(value).empty()) return std::string(Text(value));
  }
  return error == nullptr ? std::string() : json::serialize(*error);
}

// Printable ASCII: a server's bytes go into reports that must be valid UTF-8.
std::string OneLine(std::string text) {
  constexpr size_t kMaxDetailBytes = 200;
  text.resize(std::min(text.size(), kMaxDetailBytes));
  for (char& c : text) {
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

}  // namespace

Result<AnswerEvent> ParseAnswerEvent(std::string_view data) {
  AnswerEvent event;
  if (data == "[DONE]") {
    event.done = true;
    return event;
  }
  json::error_code error;
  const json::value root = json::parse(data, error);
  if (error || !root.is_object()) {
    return InvalidInput("event is no JSON object: " + OneLine(std::string(data)));
  }
  if (Member(&root, "error") != nullptr) {
    event.error = OneLine(MessageOf(root));
    return event;
  }
  const json::value* choices = Member(&root, "choices");
  if (choices != nullptr && !choices->is_array()) return InvalidInput("choices is no list");
  if (choices != nullptr && !choices->get_array().empty()) {
    const json::value* choice = &choices->get_array().front();
    const json::value* delta = Member(choice, "delta");
    event.text = Text(Member(choice, "text"));
    for (const char* name : {"reasoning_content", "reasoning", "content"}) {
      event.text += Text(Member(delta, name));
    }
    event.finish_reason = Text(Member(choice, "finish_reason"));
  }
  const json::value* usage = Member(&root, "usage");
  event.prompt_tokens = Count(Member(usage, "prompt_tokens"));
  event.output_tokens = Count(Member(usage, "completion_tokens"));
  event.cached_tokens = Count(Member(Member(usage, "prompt_tokens_details"), "cached_tokens"));
  return event;
}

std::string ErrorMessage(std::string_view body) {
  json::error_code error;
  const json::value root = json::parse(body, error);
  std::string message = error ? std::string() : MessageOf(root);
  return OneLine(message.empty() ? std::string(body) : message);
}

}  // namespace kvrm::cli
