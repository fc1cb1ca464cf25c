#include "server/prompt_encoder.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace kvrm {
namespace {

RenderOptions OptionsOfToday() {
  RenderOptions options;
  options.now = std::chrono::duration_cast<std::chrono::seconds>(
                    std::chrono::system_clock::now().time_since_epoch())
                    .count();
  return options;
}

ApiError NoTemplate() {
  return BadField("messages", "this model has no chat template; /v1/completions takes a prompt");
}

}  // namespace

ApiError BadField(const std::string& path, const std::string& what, std::string code) {
  ApiError error;
  error.message = path + ": " + what;
  error.param = path;
  error.code = std::move(code);
  return error;
}

PromptEncoder::PromptEncoder(const Tokenizer& tokenizer, const ChatTemplate* chat_template,
                             uint32_t ctx)
    : tokenizer_(tokenizer), chat_template_(chat_template), ctx_(ctx) {
  for (uint32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto bytes = tokenizer.TokenBytes(static_cast<TokenId>(id), /*with_special=*/true);
    max_token_bytes_ = std::max(max_token_bytes_, bytes.size());
  }
}

PromptEncoder::Tokens PromptEncoder::Chat(const std::vector<ChatMessage>& messages) const {
  size_t num_bytes = 0;
  for (const auto& message : messages) num_bytes += message.content.size();
  if (auto error = CheckBytes("messages", num_bytes)) return std::move(*error);
  Tokens ids = ChatUnbounded(messages);
  if (const auto* encoded = std::get_if<std::vector<TokenId>>(&ids)) {
    if (auto error = CheckLength("messages", encoded->size())) return std::move(*error);
  }
  return ids;
}

PromptEncoder::Tokens PromptEncoder::ChatUnbounded(const std::vector<ChatMessage>& messages) const {
  if (chat_template_ == nullptr) return NoTemplate();
  auto ids = EncodeChat(tokenizer_, *chat_template_, messages, OptionsOfToday());
  if (!ids.ok()) return BadField("messages", ids.error().message);
  return std::move(ids).value();
}

std::variant<std::string, ApiError> PromptEncoder::ChatText(
    const std::vector<ChatMessage>& messages) const {
  if (chat_template_ == nullptr) return NoTemplate();
  auto text = RenderChat(tokenizer_, *chat_template_, messages, OptionsOfToday());
  if (!text.ok()) return BadField("messages", text.error().message);
  return std::move(text).value();
}

PromptEncoder::Tokens PromptEncoder::Raw(const Prompt& prompt, const std::string& path) const {
  std::vector<TokenId> ids;
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    if (auto error = CheckBytes(path, text->size())) return std::move(*error);
    // A raw prompt may spell control tokens: it is the whole prompt, there is nothing to forge.
    ids = tokenizer_.Encode(*text, SpecialTokens::kParse);
    AddStartToken(tokenizer_, ids);
  } else {
    ids = std::get<std::vector<TokenId>>(prompt);
    if (auto error = CheckIds(path, ids)) return std::move(*error);
  }
  if (auto error = CheckLength(path, ids.size())) return std::move(*error);
  return ids;
}

std::optional<ApiError> PromptEncoder::CheckIds(const std::string& path,
                                                const std::vector<TokenId>& ids) const {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (static_cast<uint32_t>(ids[i]) < tokenizer_.vocab_size()) continue;
    return BadField(path + "[" + std::to_string(i) + "]",
                    "token id " + std::to_string(ids[i]) + " is outside the vocabulary of " +
                        std::to_string(tokenizer_.vocab_size()));
  }
  return std::nullopt;
}

std::optional<ApiError> PromptEncoder::CheckLength(const std::string& path,
                                                   size_t num_tokens) const {
  if (num_tokens == 0) return BadField(path, "holds no token, at least 1 is needed");
  if (num_tokens < ctx_) return std::nullopt;
  return BadField(path,
                  std::to_string(num_tokens) + " tokens, at most " + std::to_string(ctx_ - 1) +
                      " fit the context of " + std::to_string(ctx_),
                  "context_length_exceeded");
}

// Refuses what cannot fit before the work of tokenizing it (B053).
std::optional<ApiError> PromptEncoder::CheckBytes(const std::string& path, size_t num_bytes) const {
  const size_t least_tokens = num_bytes / max_token_bytes_;
  if (least_tokens < ctx_) return std::nullopt;
  return BadField(path,
                  "at least " + std::to_string(least_tokens) + " tokens, at most " +
                      std::to_string(ctx_ - 1) + " fit the context of " + std::to_string(ctx_),
                  "context_length_exceeded");
}

}  // namespace kvrm
