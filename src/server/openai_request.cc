// Request bodies: which fields there are and what each means. One table says for every name whether
// it is read, accepted without effect, or refused unless it asks for nothing.
#include <algorithm>
#include <limits>
#include <string>

#include "server/json_body.h"
#include "server/openai_fields.h"
#include "server/openai_request_reader.h"
#include "text/text_stream.h"

namespace kvrm {
namespace json = boost::json;

const RequestReader::ReadField RequestReader::kFields[] = {
    {"model", kAll, &RequestReader::Model},
    {"messages", kChatOnly | kMessagesOnly, &RequestReader::Messages},
    {"system", kMessagesOnly, &RequestReader::System},
    {"instructions", kResponsesOnly, &RequestReader::System},
    {"input", kResponsesOnly, &RequestReader::Input},
    {"prompt", kRaw, &RequestReader::PromptField},
    {"stream", kAll, &RequestReader::Stream},
    {"stream_options", kBoth | kResponsesOnly, &RequestReader::StreamOptions},
    {"n", kBoth, &RequestReader::N},
    {"echo", kCompletionsOnly, &RequestReader::Echo},
    {"prompt_logprobs", kBoth, &RequestReader::PromptLogprobs},
    {"max_tokens", kAll, &RequestReader::MaxTokens},
    {"max_completion_tokens", kBoth, &RequestReader::MaxTokens},
    {"n_predict", kRaw | kChatOnly, &RequestReader::MaxTokens},
    {"max_output_tokens", kResponsesOnly, &RequestReader::MaxTokens},
    {"min_tokens", kAll, &RequestReader::MinTokens},
    {"ignore_eos", kAll, &RequestReader::IgnoreEos},
    {"stop", kAll, &RequestReader::Stop},
    {"stop_sequences", kMessagesOnly, &RequestReader::Stop},
    {"stop_token_ids", kAll, &RequestReader::StopTokenIds},
    {"temperature", kAll, &RequestReader::Temperature},
    {"top_p", kAll, &RequestReader::TopP},
    {"top_k", kAll, &RequestReader::TopK},
    {"min_p", kAll, &RequestReader::MinP},
    {"typical_p", kAll, &RequestReader::TypicalP},
    {"repetition_penalty", kAll, &RequestReader::RepetitionPenalty},
    {"repeat_penalty", kAll, &RequestReader::RepetitionPenalty},
    {"repeat_last_n", kAll, &RequestReader::RepeatLastN},
    {"presence_penalty", kAll, &RequestReader::PresencePenalty},
    {"frequency_penalty", kAll, &RequestReader::FrequencyPenalty},
    {"logit_bias", kAll, &RequestReader::LogitBiases},
    {"seed", kAll, &RequestReader::Seed},
    {"logprobs", kChatOnly, &RequestReader::ChatLogprobs},
    {"logprobs", kCompletionsOnly, &RequestReader::CompletionLogprobs},
    {"n_probs", kRaw, &RequestReader::CompletionLogprobs},
    {"top_logprobs", kChatOnly | kResponsesOnly, &RequestReader::TopLogprobs},
    {"include", kResponsesOnly, &RequestReader::Include},
    {"metadata", kResponsesOnly, &RequestReader::Metadata},
    {"timeout", kAll, &RequestReader::Timeout},
    {"priority", kAll, &RequestReader::Priority},
    {"return_progress", kAll, &RequestReader::ReturnProgress},
    {"return_tokens", kNativeOnly, &RequestReader::ReturnTokens},
};

std::vector<std::string_view> RequestReader::FieldNames(Api api) {
  std::vector<std::string_view> names;
  for (const ReadField& field : kFields) {
    if ((field.apis & ApiBit(api)) != 0) names.push_back(field.name);
  }
  return names;
}

std::vector<std::string_view> ReadFieldNames(Api api) { return RequestReader::FieldNames(api); }

std::variant<ParsedRequest, ApiError> RequestReader::Read(const json::object& body) {
  for (const auto& member : body) {
    Field(std::string_view(member.key().data(), member.key().size()), member.value());
    if (!reader_.ok()) return std::move(*reader_.error());
  }
  CheckWhole();
  if (!reader_.ok()) return std::move(*reader_.error());
  return std::move(out_);
}

void RequestReader::Field(std::string_view name, const Value& v) {
  const uint8_t bit = ApiBit(out_.api);
  for (const auto& field : kFields) {
    if (field.name != name || (field.apis & bit) == 0) continue;
    if (!v.is_null()) (this->*field.read)(name, v);
    return;
  }
  switch (JudgeField(out_.api, name, v)) {
    case FieldVerdict::kNoEffect:
      return;
    case FieldVerdict::kNotOffered:
      reader_.NotOffered(name);
      return;
    case FieldVerdict::kUnknown:
      NoteUnknown(std::string(name));
      return;
  }
}

void RequestReader::NoteUnknown(std::string name) {
  if (out_.unknown_fields.size() < kMaxUnknownFields) {
    out_.unknown_fields.push_back(std::move(name));
  }
}

// What only shows once all fields are known.
void RequestReader::CheckWhole() {
  if (!out_.max_tokens) out_.max_tokens = default_max_tokens_;
  if (HoldsMessages(out_.api)) {
    CheckMessages();
  } else {
    CheckPrompts();
  }
  if (out_.prompt_logprobs && out_.stream) {
    reader_.Fail("prompt_logprobs", "is not available with \"stream\": true");
  }
  if (has_stream_options_ && !out_.stream) {
    reader_.Fail("stream_options", "is only allowed with \"stream\": true");
  }
  if (out_.max_tokens && out_.min_tokens > *out_.max_tokens) {
    reader_.Fail("min_tokens", std::to_string(out_.min_tokens) + " is above max_tokens " +
                                   std::to_string(*out_.max_tokens));
  }
  // kNoLimit stood for "to the context's end" while the two names were compared.
  if (out_.max_tokens == std::numeric_limits<uint32_t>::max()) out_.max_tokens.reset();
}

void RequestReader::CheckMessages() {
  const std::string_view field = out_.api == Api::kResponses ? "input" : "messages";
  if (out_.messages.empty()) {
    reader_.Fail(field, "is missing, at least one message is needed");
    return;
  }
  if (out_.api == Api::kMessages && out_.messages.back().role == "assistant") {
    reader_.NotOffered(PathOf(field, out_.messages.size() - 1),
                       "an answer that goes on from an assistant's message");
  }
  if (system_) out_.messages.insert(out_.messages.begin(), {"system", std::move(*system_)});
  if (top_logprobs_ && !chat_logprobs_.value_or(false) && *top_logprobs_ > 0) {
    reader_.Fail("top_logprobs", out_.api == Api::kResponses
                                     ? "needs \"include\": [\"message.output_text.logprobs\"]"
                                     : "needs \"logprobs\": true");
  }
  if (chat_logprobs_.value_or(false)) out_.logprobs = top_logprobs_.value_or(0);
  // Its stream opens with the prompt's length.
  if (out_.api == Api::kMessages) out_.continuous_usage = true;
}

void RequestReader::CheckPrompts() {
  if (out_.prompts.empty()) reader_.Fail("prompt", "is missing");
  if (out_.api == Api::kNative) {
    if (out_.return_tokens && !out_.logprobs) out_.logprobs = 0;
  } else if (!out_.max_tokens) {
    out_.max_tokens = kDefaultCompletionTokens;
  }
  if (out_.prompts.size() * out_.n > kMaxChoices) {
    reader_.Fail("n", std::to_string(out_.prompts.size()) + " prompts times n " +
                          std::to_string(out_.n) + " is above the limit of " +
                          std::to_string(kMaxChoices) + " choices");
  }
}

void RequestReader::Model(std::string_view name, const Value& v) {
  reader_.String(name, v, out_.model);
}

void RequestReader::Messages(std::string_view name, const Value& v) {
  const auto* list = v.if_array();
  if (list == nullptr) {
    reader_.WrongType(name, "an array of messages", v);
    return;
  }
  if (list->empty()) reader_.Fail(name, "is empty, at least one message is needed");
  if (list->size() > kMaxMessages) {
    reader_.Fail(name, std::to_string(list->size()) + " messages, at most " +
                           std::to_string(kMaxMessages) + " are taken");
  }
  for (size_t i = 0; i < list->size() && reader_.ok(); ++i) Message(PathOf(name, i), (*list)[i]);
}

void RequestReader::Message(const std::string& path, const Value& v) {
  const auto* object = v.if_object();
  if (object == nullptr) {
    reader_.WrongType(path, "an object with role and content", v);
    return;
  }
  // What is not offered is named before what a message would lack.
  CheckOffered(path, *object);
  if (!object->contains("role")) reader_.Fail(PathOf(path, "role"), "is missing");
  if (!object->contains("content")) reader_.Fail(PathOf(path, "content"), "is missing");
  ChatMessage message;
  for (const auto& member : *object) {
    MessageField(path, std::string_view(member.key().data(), member.key().size()), member.value(),
                 message);
    if (!reader_.ok()) return;
  }
  out_.messages.push_back(std::move(message));
}

// Calls of tools come without content, their results with another role; items of `input` may be no
// messages at all.
void RequestReader::CheckOffered(const std::string& path, const boost::json::object& message) {
  const auto text = [&message](std::string_view key) -> std::string_view {
    const Value* v = message.if_contains(key);
    if (v == nullptr || !v->is_string()) return {};
    return {v->get_string().data(), v->get_string().size()};
  };
  if (const auto type = text("type"); !type.empty() && type != "message") {
    reader_.NotOffered(PathOf(path, "type"), "items other than messages");
  }
  if (const auto role = text("role"); role == "tool" || role == "function") {
    reader_.NotOffered(PathOf(path, "role"), "messages of tools");
  }
  for (const std::string_view key : {"tool_calls", "function_call", "audio"}) {
    const Value* v = message.if_contains(key);
    if (v != nullptr && !v->is_null() && !IsEmptyValue(*v)) reader_.NotOffered(PathOf(path, key));
  }
}

void RequestReader::MessageField(const std::string& path, std::string_view key, const Value& v,
                                 ChatMessage& message) {
  constexpr std::string_view kNoEffect[] = {"tool_calls", "function_call", "audio",
                                            "refusal",    "name",          "type",
                                            "id",         "status",        "tool_call_id"};
  const std::string field = PathOf(path, key);
  if (key == "role") {
    if (!reader_.String(field, v, message.role)) return;
    if (message.role == "developer") message.role = "system";
    if (message.role != "system" && message.role != "user" && message.role != "assistant") {
      reader_.Fail(field,
                   Quoted(message.role) + " is unknown; known: system, developer, user, assistant");
    }
  } else if (key == "content") {
    Content(field, v, message.content);
  } else if (std::find(std::begin(kNoEffect), std::end(kNoEffect), key) == std::end(kNoEffect)) {
    NoteUnknown("messages[]." + std::string(key));
  }
}

// A string, or text parts, which are joined as they stand.
void RequestReader::Content(const std::string& path, const Value& v, std::string& text) {
  if (v.is_string()) {
    reader_.String(path, v, text);
    return;
  }
  const auto* parts = v.if_array();
  if (parts == nullptr) {
    reader_.WrongType(path, "a string or an array of parts", v);
    return;
  }
  for (size_t i = 0; i < parts->size() && reader_.ok(); ++i) {
    ContentPart(PathOf(path, i), (*parts)[i], text);
  }
}

void RequestReader::ContentPart(const std::string& path, const Value& v, std::string& text) {
  const auto* part = v.if_object();
  if (part == nullptr) {
    reader_.WrongType(path, "an object with type and text", v);
    return;
  }
  std::string type;
  const Value* type_value = part->if_contains("type");
  if (type_value == nullptr) {
    reader_.Fail(PathOf(path, "type"), "is missing");
    return;
  }
  if (!reader_.String(PathOf(path, "type"), *type_value, type)) return;
  const bool text_part = type == "text" || (out_.api == Api::kResponses &&
                                            (type == "input_text" || type == "output_text"));
  if (!text_part) {
    reader_.NotOffered(path, "content of type " + Quoted(type) + ", only text is taken");
    return;
  }
  const Value* text_value = part->if_contains("text");
  if (text_value == nullptr) {
    reader_.Fail(PathOf(path, "text"), "is missing");
    return;
  }
  std::string piece;
  if (reader_.String(PathOf(path, "text"), *text_value, piece)) text += piece;
}

// `system` and `instructions`: text, or text parts.
void RequestReader::System(std::string_view name, const Value& v) {
  system_.emplace();
  Content(std::string(name), v, *system_);
  if (out_.api == Api::kResponses) out_.instructions = *system_;
}

// What comes back in the response beside what always does.
void RequestReader::Include(std::string_view name, const Value& v) {
  const auto* list = v.if_array();
  if (list == nullptr) {
    reader_.WrongType(name, "an array of texts", v);
    return;
  }
  for (size_t i = 0; i < list->size() && reader_.ok(); ++i) {
    std::string what;
    if (!reader_.String(PathOf(name, i), (*list)[i], what)) return;
    if (what == "message.output_text.logprobs") {
      chat_logprobs_ = true;
    } else {
      reader_.NotOffered(PathOf(name, i), Quoted(what));
    }
  }
}

// Repeated in the response: at most so many pairs of texts, as OpenAI bounds them.
void RequestReader::Metadata(std::string_view name, const Value& v) {
  const auto* pairs = v.if_object();
  if (pairs == nullptr) {
    reader_.WrongType(name, "an object of texts", v);
    return;
  }
  if (pairs->size() > kMaxMetadata) {
    reader_.Fail(name, std::to_string(pairs->size()) + " entries, at most " +
                           std::to_string(kMaxMetadata) + " are taken");
  }
  for (const auto& member : *pairs) {
    const std::string_view key(member.key().data(), member.key().size());
    std::string text;
    if (!reader_.HoldsNoNul(name, key)) return;
    if (!reader_.String(PathOf(name, key), member.value(), text)) return;
    if (key.size() > kMaxMetadataKeyBytes || text.size() > kMaxMetadataBytes) {
      reader_.Fail(PathOf(name, key), std::to_string(key.size()) + " and " +
                                          std::to_string(text.size()) + " bytes, at most " +
                                          std::to_string(kMaxMetadataKeyBytes) + " and " +
                                          std::to_string(kMaxMetadataBytes) + " are taken");
      return;
    }
    out_.metadata.emplace_back(key, std::move(text));
  }
}

// `input`: one user message as text, or a list of messages.
void RequestReader::Input(std::string_view name, const Value& v) {
  if (!v.is_string()) return Messages(name, v);
  ChatMessage message{"user", {}};
  if (reader_.String(name, v, message.content)) out_.messages.push_back(std::move(message));
}

// Text, token ids, or a list of either.
void RequestReader::PromptField(std::string_view name, const Value& v) {
  std::string text;
  if (v.is_string()) {
    if (reader_.String(name, v, text)) out_.prompts.emplace_back(std::move(text));
    return;
  }
  const auto* list = v.if_array();
  if (list == nullptr) {
    reader_.WrongType(name, "text, token ids or a list of either", v);
    return;
  }
  if (list->empty()) {
    reader_.Fail(name, "is empty");
    return;
  }
  constexpr size_t kMaxIds =
      std::numeric_limits<uint32_t>::max() / 2;  // the context is checked later
  std::vector<TokenId> ids;
  if ((*list)[0].is_number()) {
    if (reader_.TokenIds(name, *list, kMaxIds, ids)) out_.prompts.emplace_back(std::move(ids));
    return;
  }
  if (list->size() > kMaxPrompts) {
    reader_.Fail(name, std::to_string(list->size()) + " prompts, at most " +
                           std::to_string(kMaxPrompts) + " are taken");
    return;
  }
  for (size_t i = 0; i < list->size() && reader_.ok(); ++i) {
    const std::string path = PathOf(name, i);
    const Value& entry = (*list)[i];
    if (entry.is_string()) {
      if (reader_.String(path, entry, text)) out_.prompts.emplace_back(std::move(text));
    } else if (const auto* entry_ids = entry.if_array()) {
      if (reader_.TokenIds(path, *entry_ids, kMaxIds, ids)) out_.prompts.emplace_back(ids);
    } else {
      reader_.WrongType(path, "text or token ids", entry);
    }
  }
}

void RequestReader::Stream(std::string_view name, const Value& v) {
  reader_.Bool(name, v, out_.stream);
}

void RequestReader::StreamOptions(std::string_view name, const Value& v) {
  const auto* options = v.if_object();
  if (options == nullptr) {
    reader_.WrongType(name, "an object", v);
    return;
  }
  has_stream_options_ = true;
  for (const auto& member : *options) {
    const std::string_view key(member.key().data(), member.key().size());
    if (member.value().is_null()) continue;
    if (key == "include_usage") {
      reader_.Bool(PathOf(name, key), member.value(), out_.include_usage);
    } else if (key == "continuous_usage_stats") {
      reader_.Bool(PathOf(name, key), member.value(), out_.continuous_usage);
    } else if (key != "include_obfuscation") {
      NoteUnknown(PathOf(name, key));
    }
    if (!reader_.ok()) return;
  }
}

void RequestReader::N(std::string_view name, const Value& v) {
  int64_t n = 0;
  if (reader_.Int(name, v, 1, kMaxN, n)) out_.n = static_cast<uint32_t>(n);
}

std::variant<ParsedRequest, ApiError> ParseRequest(Api api, std::string_view body,
                                                   const RequestDefaults& defaults) {
  JsonBody parsed;
  if (auto error = parsed.Parse(body)) return std::move(*error);
  return RequestReader(api, defaults).Read(parsed.object());
}

}  // namespace kvrm
