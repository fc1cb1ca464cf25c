// Expressions of a template, by recursive descent. Part of the parser (jinja_parser.h).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"
#include "text/utf8.h"

namespace kvrm::jinja {

// The list of an expression's arguments.
template <class... Args>
std::vector<ExprPtr> MakeArgs(Args... args) {
  std::vector<ExprPtr> list;
  (list.push_back(std::move(args)), ...);
  return list;
}

inline std::string Quoted(std::string_view text) { return "\"" + ForMessage(text) + "\""; }

// The place in the tokens, and how deep in brackets and blocks it is.
class Cursor {
 public:
  // Requires: tokens end with kEnd.
  explicit Cursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& now() const { return tokens_[at_]; }
  Token Take() { return std::move(tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]); }
  bool Is(TokenKind kind, std::string_view text) const {
    return now().kind == kind && now().text == text;
  }
  bool IsOp(std::string_view op) const { return Is(TokenKind::kOperator, op); }
  bool IsName(std::string_view name) const { return Is(TokenKind::kName, name); }
  bool TakeIfOp(std::string_view op) { return IsOp(op) && (Take(), true); }
  bool TakeIfName(std::string_view name) { return IsName(name) && (Take(), true); }
  Status ExpectOp(std::string_view op);
  Result<std::string> ExpectName(const char* what);
  bool NextIsOp(std::string_view op) const {  // the token after this one
    return at_ + 1 < tokens_.size() && tokens_[at_ + 1].kind == TokenKind::kOperator &&
           tokens_[at_ + 1].text == op;
  }

  Error Invalid(const std::string& what) const {
    return AtLine(now().line, ErrorKind::kInvalidInput, what);
  }
  Error NotSupported(const std::string& what) const {
    return AtLine(now().line, ErrorKind::kUnsupported, what);
  }
  // "expected X, found Y".
  Error Unexpected(const std::string& expected) const;

  Status Enter();
  void Leave() { --nesting_; }

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
  uint32_t nesting_ = 0;
};

class ExprParser {
 public:
  explicit ExprParser(Cursor& cursor) : cursor_(cursor) {}

  // With `x if y else z`, or without it where `if` means something else (for statements).
  Result<ExprPtr> Parse() { return ParseConditional(); }
  Result<ExprPtr> ParseWithoutConditional() { return ParseOr(); }

  // Filters over what a block printed: the first one's name comes next.
  Result<ExprPtr> ParseCapturedFilters();

  // Names called as functions that are not built in: macros must bear them.
  struct Call {
    std::string name;
    uint32_t line;
  };
  const std::vector<Call>& macro_calls() const { return macro_calls_; }

 private:
  using Level = Result<ExprPtr> (ExprParser::*)();

  Result<ExprPtr> ParseConditional();
  Result<ExprPtr> ParseOr();
  Result<ExprPtr> ParseAnd();
  Result<ExprPtr> ParseNot();
  Result<ExprPtr> ParseCompare();
  Result<ExprPtr> ParseSum();
  Result<ExprPtr> ParseConcat();
  Result<ExprPtr> ParseProduct();
  Result<ExprPtr> ParseFiltered() { return ParseUnary(/*with_filters=*/true); }
  Result<ExprPtr> ParseUnary(bool with_filters);
  Result<ExprPtr> ParsePrimary();
  Result<ExprPtr> ParsePostfix(ExprPtr base);
  Result<ExprPtr> ParseFilters(ExprPtr base);
  Result<ExprPtr> ParseFilter(ExprPtr input);
  Result<ExprPtr> ParsePick(ExprPtr input, Pick pick, bool by_attribute, const std::string& what);
  Result<ExprPtr> ParseNameOrCall();
  Result<ExprPtr> ParseString();
  Result<ExprPtr> ParseInteger();
  Result<ExprPtr> ParseFloat();
  Result<ExprPtr> ParseList(std::string_view close, ExprPtr first = nullptr);
  Result<ExprPtr> ParseDict();
  Result<ExprPtr> ParseSubscript(ExprPtr base);
  Result<ExprPtr> ParseMethod(ExprPtr receiver, const std::string& name);
  Result<ExprPtr> ParseTest(ExprPtr input);
  Result<ExprPtr> ParseBinaryLevel(Level next,
                                   std::span<const std::pair<std::string_view, Operator>> ops);
  Status ParseArgs(Expr& call);
  // Arguments of a filter, test or method, sorted to their places.
  Status ParseBuiltinArgs(Expr& call, const std::string& what);
  Status PlaceArgs(const Builtin& builtin, Expr given, Expr& call, const std::string& what);
  Result<ExprPtr> Finish(Expr expr);

  Cursor& cursor_;
  std::vector<Call> macro_calls_;
};

}  // namespace kvrm::jinja
