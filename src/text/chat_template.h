// Chat templates: a bounded subset of Jinja, the constructs that model files use, nothing more.
// A template is parsed once, at load; an unknown construct is refused there, naming it and its
// line. Immutable after creation; thread-safe. Render is bounded in output bytes and loop steps.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/chat_value.h"
#include "text/tokenizer.h"

namespace kvrm {

struct ChatMessage {
  std::string role;
  std::string content;
  // What the message has beside them, in order: tool_calls, name, ... A field "content" here stands
  // in place of the text (parts, null).
  ChatFields fields;
  bool has_content = true;  // false: no field of that name, unless `fields` has it
};

struct RenderOptions {
  bool add_generation_prompt = true;
  std::string bos_token, eos_token;  // as text
  // What strftime_now() prints, in seconds since 1970, UTC; injected, never read from a clock.
  // None: the template has no such function.
  std::optional<int64_t> now;
  ChatValue tools;       // descriptions as OpenAI's `tools` has them; null = none
  ChatValue documents;   // null = none
  ChatFields variables;  // further ones, such as enable_thinking
};

// A rendered prompt as a run of pieces: text that the template wrote (control tokens are parsed in
// it) and text that came from messages, tools, documents or variables (never parsed for control
// tokens, B052).
struct RenderedPiece {
  std::string text;
  bool from_user = false;
};

class ChatTemplate {
 public:
  static Result<std::unique_ptr<const ChatTemplate>> Parse(std::string_view source);
  virtual ~ChatTemplate() = default;
  // Errors: raise_exception() of the template (its message), bounds exceeded, type errors.
  virtual Result<std::vector<RenderedPiece>> Render(const std::vector<ChatMessage>& messages,
                                                    const RenderOptions& options) const = 0;
};

// The text of all pieces.
std::string JoinPieces(const std::vector<RenderedPiece>& pieces);
// Token ids of a rendered prompt: template text with SpecialTokens::kParse, user text kAsText.
// Neighbouring pieces are split at control tokens only, so that a merge across the border of
// template and user text comes out as the reference tokenizer makes it.
std::vector<TokenId> EncodePieces(const Tokenizer& tokenizer,
                                  const std::vector<RenderedPiece>& pieces);

// A conversation as the model reads it: rendered, encoded, with the start token where the model
// asks for it and the template did not write it. The tokenizer's start and end token stand in for
// those of `options`. Errors: those of Render.
Result<std::vector<TokenId>> EncodeChat(const Tokenizer& tokenizer,
                                        const ChatTemplate& chat_template,
                                        const std::vector<ChatMessage>& messages,
                                        RenderOptions options);

// The same as text: what EncodeChat encodes.
Result<std::string> RenderChat(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                               const std::vector<ChatMessage>& messages, RenderOptions options);

}  // namespace kvrm
