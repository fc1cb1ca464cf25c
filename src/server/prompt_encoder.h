// Prompts of requests as token ids, with every check that needs the model's numbers: the one place
// where text of a client meets the tokenizer. Immutable; thread-safe.
//
// Errors: ApiError with the path of the field, the number and the limit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/openai_types.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace kvrm {

class PromptEncoder {
 public:
  // `chat_template` null: the model has none. Both outlive the encoder. `ctx`: most tokens of a
  // sequence, prompt and answer.
  PromptEncoder(const Tokenizer& tokenizer, const ChatTemplate* chat_template, uint32_t ctx);

  using Tokens = std::variant<std::vector<TokenId>, ApiError>;
  // A conversation, rendered.
  Tokens Chat(const std::vector<ChatMessage>& messages) const;
  // A raw prompt: text may spell control tokens.
  Tokens Raw(const Prompt& prompt, const std::string& path) const;

  // Without the bounds of the context: what /tokenize and /apply-template show.
  Tokens ChatUnbounded(const std::vector<ChatMessage>& messages) const;
  std::variant<std::string, ApiError> ChatText(const std::vector<ChatMessage>& messages) const;
  // Whether each id is one of the vocabulary.
  std::optional<ApiError> CheckIds(const std::string& path, const std::vector<TokenId>& ids) const;

  const Tokenizer& tokenizer() const { return tokenizer_; }
  bool has_template() const { return chat_template_ != nullptr; }
  uint32_t ctx() const { return ctx_; }

 private:
  std::optional<ApiError> CheckLength(const std::string& path, size_t num_tokens) const;
  std::optional<ApiError> CheckBytes(const std::string& path, size_t num_bytes) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate* const chat_template_;
  const uint32_t ctx_;
  size_t max_token_bytes_ = 1;  // bytes of the longest token
};

// An error about one field of a request.
ApiError BadField(const std::string& path, const std::string& what, std::string code = {});

}  // namespace kvrm
