#include "text/chat_json.h"

#include <boost/json.hpp>
#include <cmath>
#include <string>
#include <utility>

#include "text/utf8.h"

namespace kvrm {
namespace {

namespace json = boost::json;

constexpr size_t kMaxDepth = 32;

Result<json::value> Parse(std::string_view text) {
  json::parse_options options;
  options.max_depth = kMaxDepth;
  boost::system::error_code error;
  json::stream_parser parser({}, options);
  const size_t taken = parser.write_some(text.data(), text.size(), error);
  if (!error && !parser.done()) parser.finish(error);
  if (error || text.find_first_not_of(" \t\r\n", taken) != std::string_view::npos) {
    const std::string reason = error ? error.message() : "text after its end";
    return InvalidInput("conversation: no JSON (" + reason + ", at byte " + std::to_string(taken) +
                        ")");
  }
  return parser.release();
}

Result<ChatFields> ToFields(const json::object& object) {
  ChatFields fields;
  for (const auto& member : object) {
    KVRM_ASSIGN_OR_RETURN(ChatValue value, ToChatValue(member.value()));
    fields.push_back({std::string(member.key()), std::move(value)});
  }
  return fields;
}

Result<ChatMessage> ToMessage(const json::value& value, const std::string& path) {
  if (!value.is_object()) return InvalidInput(path + " is no object");
  ChatMessage message;
  for (const auto& member : value.get_object()) {
    const std::string_view key = member.key();
    if (key == "role") {
      if (!member.value().is_string()) return InvalidInput(path + ".role is no string");
      message.role = member.value().get_string();
    } else if (key == "content" && member.value().is_string()) {
      message.content = member.value().get_string();
    } else {
      KVRM_ASSIGN_OR_RETURN(ChatValue field, ToChatValue(member.value()));
      message.fields.push_back({std::string(key), std::move(field)});
    }
  }
  const bool has_content = value.get_object().contains("content");
  if (message.role.empty()) return InvalidInput(path + ".role is missing");
  message.has_content = has_content && value.get_object().at("content").is_string();
  return message;
}

Status ReadField(std::string_view key, const json::value& value, Conversation& out) {
  if (key == "add_generation_prompt") {
    if (!value.is_bool()) return InvalidInput("add_generation_prompt is no boolean");
    out.options.add_generation_prompt = value.get_bool();
    return Ok();
  }
  if (key == "chat_template_kwargs" && value.is_object()) {
    KVRM_ASSIGN_OR_RETURN(ChatFields fields, ToFields(value.get_object()));
    for (auto& field : fields) out.options.variables.push_back(std::move(field));
    return Ok();
  }
  KVRM_ASSIGN_OR_RETURN(ChatValue converted, ToChatValue(value));
  if (key == "tools") {
    out.options.tools = std::move(converted);
  } else if (key == "documents") {
    out.options.documents = std::move(converted);
  } else {
    out.options.variables.push_back({std::string(key), std::move(converted)});
  }
  return Ok();
}

}  // namespace

Result<ChatValue> ToChatValue(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return ChatValue{};
    case json::kind::bool_:
      return ChatValue{value.get_bool()};
    case json::kind::int64:
      return ChatValue{value.get_int64()};
    case json::kind::uint64:
      return ChatValue{static_cast<double>(value.get_uint64())};
    case json::kind::double_:
      if (!std::isfinite(value.get_double())) return InvalidInput("a number that is not finite");
      return ChatValue{value.get_double()};
    case json::kind::string:
      return ChatValue{std::string(value.get_string())};
    case json::kind::array: {
      ChatList list;
      for (const json::value& item : value.get_array()) {
        KVRM_ASSIGN_OR_RETURN(ChatValue converted, ToChatValue(item));
        list.push_back(std::move(converted));
      }
      return ChatValue{std::move(list)};
    }
    case json::kind::object: {
      KVRM_ASSIGN_OR_RETURN(ChatFields fields, ToFields(value.get_object()));
      return ChatValue{std::move(fields)};
    }
  }
  return ChatValue{};
}

Result<Conversation> ParseConversation(std::string_view text) {
  KVRM_ASSIGN_OR_RETURN(const json::value root, Parse(text));
  Conversation conversation;
  const json::value* messages = &root;
  if (root.is_object()) {
    messages = root.get_object().if_contains("messages");
    if (messages == nullptr) return InvalidInput("messages is missing");
    for (const auto& member : root.get_object()) {
      if (member.key() == "messages") continue;
      KVRM_RETURN_IF_ERROR(ReadField(member.key(), member.value(), conversation));
    }
  }
  if (!messages->is_array()) return InvalidInput("messages is no list");
  for (const json::value& message : messages->get_array()) {
    const std::string path = "messages[" + std::to_string(conversation.messages.size()) + "]";
    KVRM_ASSIGN_OR_RETURN(ChatMessage converted, ToMessage(message, path));
    conversation.messages.push_back(std::move(converted));
  }
  return conversation;
}

}  // namespace kvrm
