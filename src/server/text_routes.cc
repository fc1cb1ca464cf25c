#include "server/text_routes.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "server/json_body.h"
#include "server/json_reader.h"
#include "server/json_writer.h"
#include "text/text_stream.h"

namespace kvrm {
namespace {

using Answer = std::variant<std::string, ApiError>;

constexpr size_t kMaxIds = std::numeric_limits<uint32_t>::max();

// What /tokenize is asked: `content` is llama-server's name for the text, `prompt` vLLM's; the same
// for `add_special` and `add_special_tokens`, with different defaults.
struct TokenizeRequest {
  std::optional<std::string> content, prompt;
  std::optional<bool> add_special;
  bool parse_special = true;
  bool with_pieces = false;
  bool return_token_strs = false;
  bool conversation = false;  // `messages` stand in place of a text
};

std::optional<ApiError> ReadTokenize(const boost::json::object& body, TokenizeRequest& out) {
  JsonReader reader;
  const auto read_text = [&](std::string_view name, const auto& value, auto& text) {
    if (std::string read; reader.String(name, value, read)) text = std::move(read);
  };
  for (const auto& [key, value] : body) {
    const std::string_view name(key.data(), key.size());
    if (value.is_null()) continue;
    if (name == "content") read_text(name, value, out.content);
    if (name == "prompt") read_text(name, value, out.prompt);
    if (name == "add_special" || name == "add_special_tokens") {
      if (bool add = false; reader.Bool(name, value, add)) out.add_special = add;
    }
    if (name == "parse_special") reader.Bool(name, value, out.parse_special);
    if (name == "with_pieces") reader.Bool(name, value, out.with_pieces);
    if (name == "return_token_strs") reader.Bool(name, value, out.return_token_strs);
    if (!reader.ok()) return std::move(reader.error());
  }
  const auto* messages = body.if_contains("messages");
  out.conversation = messages != nullptr && !messages->is_null();
  const int given = out.content.has_value() + out.prompt.has_value() + out.conversation;
  if (given == 1) return std::nullopt;
  return BadField("prompt", given == 0 ? "is missing, or content or messages"
                                       : "is one of three with content and messages, " +
                                             std::to_string(given) + " of them are given");
}

// A piece that is no text by itself (part of a character) is shown as its bytes.
void WritePiece(JsonWriter& json, TokenId id, std::string_view bytes) {
  json.BeginObject().Key("id").Int(id).Key("piece");
  if (IsValidUtf8(bytes)) {
    json.String(bytes);
  } else {
    json.BeginArray();
    for (const char c : bytes) json.Uint(static_cast<unsigned char>(c));
    json.EndArray();
  }
  json.EndObject();
}

std::string TokensBody(const std::vector<TokenId>& ids, const TokenizeRequest& asked,
                       const PromptEncoder& encoder) {
  std::string out;
  JsonWriter json(out);
  const auto bytes_of = [&encoder](TokenId id) {
    return encoder.tokenizer().TokenBytes(id, /*with_special=*/true);
  };
  json.BeginObject().Key("count").Uint(ids.size());
  json.Key("max_model_len").Uint(encoder.ctx()).Key("tokens").BeginArray();
  for (const TokenId id : ids) {
    if (asked.with_pieces) {
      WritePiece(json, id, bytes_of(id));
    } else {
      json.Int(id);
    }
  }
  json.EndArray().Key("token_strs");
  if (asked.return_token_strs) {
    json.BeginArray();
    for (const TokenId id : ids) json.String(SanitizeUtf8(bytes_of(id)));
    json.EndArray();
  } else {
    json.Null();
  }
  json.EndObject();
  return out;
}

// The conversation of a body with `messages`, read as /v1/chat/completions reads it.
std::variant<std::vector<ChatMessage>, ApiError> ReadMessages(std::string_view body,
                                                              Api api = Api::kChat) {
  auto parsed = ParseRequest(api, body, RequestDefaults());
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  return std::move(std::get<ParsedRequest>(parsed).messages);
}

Answer TokenizeChat(std::string_view body, const TokenizeRequest& asked,
                    const PromptEncoder& encoder) {
  auto messages = ReadMessages(body);
  if (auto* error = std::get_if<ApiError>(&messages)) return std::move(*error);
  auto ids = encoder.ChatUnbounded(std::get<std::vector<ChatMessage>>(messages));
  if (auto* error = std::get_if<ApiError>(&ids)) return std::move(*error);
  return TokensBody(std::get<std::vector<TokenId>>(ids), asked, encoder);
}

Answer Tokenize(std::string_view body, const PromptEncoder& encoder) {
  JsonBody parsed;
  if (auto error = parsed.Parse(body)) return std::move(*error);
  TokenizeRequest asked;
  if (auto error = ReadTokenize(parsed.object(), asked)) return std::move(*error);
  if (asked.conversation) return TokenizeChat(body, asked, encoder);
  const std::string& text = asked.content ? *asked.content : *asked.prompt;
  auto ids = encoder.tokenizer().Encode(
      text, asked.parse_special ? SpecialTokens::kParse : SpecialTokens::kAsText);
  const bool vllm_default = asked.prompt.has_value();
  if (asked.add_special.value_or(vllm_default)) AddStartToken(encoder.tokenizer(), ids);
  return TokensBody(ids, asked, encoder);
}

Answer Detokenize(std::string_view body, const PromptEncoder& encoder) {
  JsonBody parsed;
  if (auto error = parsed.Parse(body)) return std::move(*error);
  const auto* tokens = parsed.object().if_contains("tokens");
  if (tokens == nullptr) return BadField("tokens", "is missing, an array of token ids is needed");
  JsonReader reader;
  std::vector<TokenId> ids;
  if (const auto* list = tokens->if_array()) {
    reader.TokenIds("tokens", *list, kMaxIds, ids);
  } else {
    reader.WrongType("tokens", "an array of token ids", *tokens);
  }
  if (!reader.ok()) return std::move(*reader.error());
  if (auto error = encoder.CheckIds("tokens", ids)) return std::move(*error);
  const std::string text = SanitizeUtf8(encoder.tokenizer().Decode(ids, /*with_special=*/true));
  std::string out;
  JsonWriter json(out);
  json.BeginObject().Key("content").String(text).Key("prompt").String(text).EndObject();
  return out;
}

Answer ApplyTemplate(std::string_view body, const PromptEncoder& encoder) {
  auto messages = ReadMessages(body);
  if (auto* error = std::get_if<ApiError>(&messages)) return std::move(*error);
  auto text = encoder.ChatText(std::get<std::vector<ChatMessage>>(messages));
  if (auto* error = std::get_if<ApiError>(&text)) return std::move(*error);
  std::string out;
  JsonWriter json(out);
  json.BeginObject().Key("prompt").String(SanitizeUtf8(std::get<std::string>(text))).EndObject();
  return out;
}

Answer CountTokens(std::string_view body, const PromptEncoder& encoder) {
  auto messages = ReadMessages(body, Api::kMessages);
  if (auto* error = std::get_if<ApiError>(&messages)) return std::move(*error);
  auto ids = encoder.ChatUnbounded(std::get<std::vector<ChatMessage>>(messages));
  if (auto* error = std::get_if<ApiError>(&ids)) return std::move(*error);
  std::string out;
  JsonWriter json(out);
  json.BeginObject().Key("input_tokens").Uint(std::get<std::vector<TokenId>>(ids).size());
  json.EndObject();
  return out;
}

}  // namespace

std::variant<std::string, ApiError> Convert(Route route, std::string_view body,
                                            const PromptEncoder& encoder) {
  switch (route) {
    case Route::kTokenize:
      return Tokenize(body, encoder);
    case Route::kDetokenize:
      return Detokenize(body, encoder);
    case Route::kCountTokens:
      return CountTokens(body, encoder);
    default:
      KVRM_CHECK(route == Route::kApplyTemplate, "each route of kind kConvert has its function");
      return ApplyTemplate(body, encoder);
  }
}

std::string TokenText(const Tokenizer& tokenizer, TokenId id) {
  if (id < 0) return {};
  return SanitizeUtf8(tokenizer.TokenBytes(id, /*with_special=*/true));
}

std::string TokenizerInfoBody(const PromptEncoder& encoder) {
  const Tokenizer& tokenizer = encoder.tokenizer();
  const TokenizerSpec& spec = tokenizer.spec();
  std::string out;
  JsonWriter json(out);
  const auto token = [&](std::string_view key, TokenId id) {
    json.Key(key);
    if (id < 0) {
      json.Null();
    } else {
      json.String(TokenText(tokenizer, id));
    }
  };
  json.BeginObject().Key("tokenizer_class").String(SanitizeUtf8(spec.model));
  token("bos_token", spec.bos);
  token("eos_token", spec.eos);
  token("pad_token", spec.padding);
  token("unk_token", spec.unknown);
  json.Key("add_bos_token").Bool(spec.add_bos).Key("add_eos_token").Bool(spec.add_eos);
  json.Key("model_max_length").Uint(encoder.ctx()).Key("vocab_size").Uint(tokenizer.vocab_size());
  json.Key("chat_template");
  if (spec.chat_template.empty()) {
    json.Null();
  } else {
    json.String(SanitizeUtf8(spec.chat_template));
  }
  json.EndObject();
  return out;
}

}  // namespace kvrm
