#include "text/chat_template.h"

#include <algorithm>
#include <span>
#include <utility>

#include "text/jinja_evaluator.h"
#include "text/jinja_lexer.h"
#include "text/jinja_parser.h"

namespace kvrm {
namespace {

using jinja::None;
using jinja::Text;
using jinja::Value;

// All that a request brings is marked as the user's.
Text UserText(const std::string& text) { return Text(text, /*from_user=*/true); }

// Levels are bounded where lists and dicts are made.
Result<Value> ToValue(const ChatValue& value) {
  if (const auto* list = std::get_if<ChatList>(&value.data)) {
    std::vector<Value> items;
    items.reserve(list->size());
    for (const ChatValue& item : *list) {
      KVRM_ASSIGN_OR_RETURN(Value converted, ToValue(item));
      items.push_back(std::move(converted));
    }
    return jinja::MakeList(std::move(items));
  }
  if (const auto* fields = std::get_if<ChatFields>(&value.data)) {
    std::vector<std::pair<Text, Value>> items;
    items.reserve(fields->size());
    for (const auto& [name, field] : *fields) {
      KVRM_ASSIGN_OR_RETURN(Value converted, ToValue(field));
      items.emplace_back(UserText(name), std::move(converted));
    }
    return jinja::MakeDict(std::move(items));
  }
  if (const auto* text = std::get_if<std::string>(&value.data)) return Value(UserText(*text));
  if (const auto* flag = std::get_if<bool>(&value.data)) return Value(*flag);
  if (const auto* integer = std::get_if<int64_t>(&value.data)) return Value(*integer);
  if (const auto* real = std::get_if<double>(&value.data)) return Value(*real);
  return Value(None{});
}

// Templates put a role into a mark ('<|' + role + '|>'), which is one for those roles that the API
// has. Any other name stays what a request brought: "end" must not close a turn.
Text RoleText(const std::string& role) {
  constexpr std::string_view kRoles[] = {"assistant", "developer", "function",
                                         "system",    "tool",      "user"};
  return std::ranges::find(kRoles, role) == std::end(kRoles) ? UserText(role) : Text(role);
}

Result<Value> MessageList(const std::vector<ChatMessage>& messages) {
  std::vector<Value> list;
  list.reserve(messages.size());
  for (const ChatMessage& message : messages) {
    std::vector<std::pair<Text, Value>> fields;
    fields.emplace_back(UserText("role"), RoleText(message.role));
    const bool replaced =
        std::ranges::find(message.fields, "content", &ChatField::name) != message.fields.end();
    if (message.has_content && !replaced) {
      fields.emplace_back(UserText("content"), UserText(message.content));
    }
    for (const auto& [name, field] : message.fields) {
      KVRM_ASSIGN_OR_RETURN(Value converted, ToValue(field));
      fields.emplace_back(UserText(name), std::move(converted));
    }
    KVRM_ASSIGN_OR_RETURN(Value dict, jinja::MakeDict(std::move(fields)));
    list.push_back(std::move(dict));
  }
  return jinja::MakeList(std::move(list));
}

class ParsedTemplate final : public ChatTemplate {
 public:
  explicit ParsedTemplate(jinja::Block block) : block_(std::move(block)) {}

  Result<std::vector<RenderedPiece>> Render(const std::vector<ChatMessage>& messages,
                                            const RenderOptions& options) const override {
    jinja::Evaluator evaluator(options.now);
    for (const auto& [name, variable] : options.variables) {
      KVRM_ASSIGN_OR_RETURN(Value value, ToValue(variable));
      evaluator.SetGlobal(name, std::move(value));
    }
    KVRM_ASSIGN_OR_RETURN(Value list, MessageList(messages));
    evaluator.SetGlobal("messages", std::move(list));
    evaluator.SetGlobal("add_generation_prompt", options.add_generation_prompt);
    evaluator.SetGlobal("bos_token", Text(options.bos_token));
    evaluator.SetGlobal("eos_token", Text(options.eos_token));
    // Always given by the reference renderer; templates test them without asking for more.
    KVRM_ASSIGN_OR_RETURN(Value tools, ToValue(options.tools));
    KVRM_ASSIGN_OR_RETURN(Value documents, ToValue(options.documents));
    evaluator.SetGlobal("tools", std::move(tools));
    evaluator.SetGlobal("documents", std::move(documents));
    KVRM_ASSIGN_OR_RETURN(const Text text, evaluator.Run(block_));
    std::vector<RenderedPiece> pieces;
    size_t begin = 0;
    for (const Text::Run& run : text.runs()) {
      pieces.push_back({std::string(text.bytes().substr(begin, run.end - begin)), run.from_user});
      begin = run.end;
    }
    return pieces;
  }

 private:
  const jinja::Block block_;
};

void NameTokens(const Tokenizer& tokenizer, RenderOptions& options) {
  const auto text_of = [&tokenizer](TokenId id) {
    return id < 0 ? std::string() : std::string(tokenizer.TokenBytes(id, /*with_special=*/true));
  };
  options.bos_token = text_of(tokenizer.spec().bos);
  options.eos_token = text_of(tokenizer.spec().eos);
}

}  // namespace

Result<std::unique_ptr<const ChatTemplate>> ChatTemplate::Parse(std::string_view source) {
  KVRM_ASSIGN_OR_RETURN(std::vector<jinja::Token> tokens, jinja::Lex(source));
  KVRM_ASSIGN_OR_RETURN(jinja::Block block, jinja::Parse(std::move(tokens)));
  return std::unique_ptr<const ChatTemplate>(std::make_unique<ParsedTemplate>(std::move(block)));
}

std::string JoinPieces(const std::vector<RenderedPiece>& pieces) {
  std::string text;
  for (const RenderedPiece& piece : pieces) text += piece.text;
  return text;
}

std::vector<TokenId> EncodePieces(const Tokenizer& tokenizer,
                                  const std::vector<RenderedPiece>& pieces) {
  std::vector<ControlRange> control;
  size_t at = 0;
  for (const RenderedPiece& piece : pieces) {
    const size_t end = at + piece.text.size();
    if (!piece.from_user && end > at) {
      // A control token may span what the template wrote in two pieces.
      if (!control.empty() && control.back().end == at) {
        control.back().end = end;
      } else {
        control.push_back({at, end});
      }
    }
    at = end;
  }
  return tokenizer.EncodeRanges(JoinPieces(pieces), control);
}

Result<std::vector<TokenId>> EncodeChat(const Tokenizer& tokenizer,
                                        const ChatTemplate& chat_template,
                                        const std::vector<ChatMessage>& messages,
                                        RenderOptions options) {
  NameTokens(tokenizer, options);
  KVRM_ASSIGN_OR_RETURN(const auto pieces, chat_template.Render(messages, options));
  std::vector<TokenId> ids = EncodePieces(tokenizer, pieces);
  AddStartToken(tokenizer, ids);
  return ids;
}

Result<std::string> RenderChat(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                               const std::vector<ChatMessage>& messages, RenderOptions options) {
  NameTokens(tokenizer, options);
  KVRM_ASSIGN_OR_RETURN(const auto pieces, chat_template.Render(messages, options));
  return JoinPieces(pieces);
}

}  // namespace kvrm
