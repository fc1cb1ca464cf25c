#include "text/jinja_expr_parser.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "text/jinja_parser.h"
#include "text/utf8.h"

namespace kvrm::jinja {
namespace {

using OperatorName = std::pair<std::string_view, Operator>;
constexpr OperatorName kSumOps[] = {{"+", Operator::kAdd}, {"-", Operator::kSubtract}};
constexpr OperatorName kConcatOps[] = {{"~", Operator::kConcat}};
constexpr OperatorName kProductOps[] = {{"*", Operator::kMultiply},
                                        {"/", Operator::kDivide},
                                        {"//", Operator::kFloorDivide},
                                        {"%", Operator::kModulo}};
constexpr OperatorName kCompareOps[] = {{"==", Operator::kEqual},  {"!=", Operator::kNotEqual},
                                        {"<", Operator::kLess},    {"<=", Operator::kLessEqual},
                                        {">", Operator::kGreater}, {">=", Operator::kGreaterEqual}};
constexpr std::array<std::string_view, 4> kFunctions{"namespace", "raise_exception", "range",
                                                     "strftime_now"};
// Words that never begin an expression's name.
constexpr std::array<std::string_view, 8> kReserved{"if", "else", "and", "or",
                                                    "in", "is",   "not", "for"};

}  // namespace

Error Cursor::Unexpected(const std::string& expected) const {
  static constexpr const char* kKinds[] = {"text",    "{{",       "}}",       "{%",
                                           "%}",      "name",     "a string", "an integer",
                                           "a float", "operator", "the end"};
  std::string found = kKinds[static_cast<size_t>(now().kind)];
  if (now().kind == TokenKind::kName || now().kind == TokenKind::kOperator) {
    found = Quoted(now().text);
  }
  return Invalid("expected " + expected + ", found " + found);
}

Status Cursor::ExpectOp(std::string_view op) {
  if (TakeIfOp(op)) return Ok();
  return Unexpected(Quoted(op));
}

Result<std::string> Cursor::ExpectName(const char* what) {
  if (now().kind != TokenKind::kName) return Unexpected(what);
  return Take().text;
}

Status Cursor::Enter() {
  if (++nesting_ <= kMaxNesting) return Ok();
  return Invalid("brackets and blocks are nested deeper than " + std::to_string(kMaxNesting) +
                 " levels");
}

Result<ExprPtr> ExprParser::Finish(Expr expr) {
  for (const ExprPtr& arg : expr.args) {
    if (arg != nullptr) expr.depth = std::max(expr.depth, arg->depth + 1);
  }
  if (expr.depth > kMaxExprDepth) {
    return cursor_.Invalid("an expression of over " + std::to_string(kMaxExprDepth) +
                           " operators in a row");
  }
  return ExprPtr(std::make_unique<const Expr>(std::move(expr)));
}

Result<ExprPtr> ExprParser::ParseConditional() {
  KVRM_RETURN_IF_ERROR(cursor_.Enter());
  KVRM_ASSIGN_OR_RETURN(ExprPtr value, ParseOr());
  while (cursor_.IsName("if")) {
    const uint32_t line = cursor_.Take().line;
    KVRM_ASSIGN_OR_RETURN(ExprPtr condition, ParseOr());
    ExprPtr otherwise;
    if (cursor_.TakeIfName("else")) {
      KVRM_ASSIGN_OR_RETURN(otherwise, ParseConditional());
    }
    KVRM_ASSIGN_OR_RETURN(
        value,
        Finish({.kind = ExprKind::kConditional,
                .line = line,
                .args = MakeArgs(std::move(value), std::move(condition), std::move(otherwise))}));
  }
  cursor_.Leave();
  return value;
}

Result<ExprPtr> ExprParser::ParseOr() {
  KVRM_ASSIGN_OR_RETURN(ExprPtr left, ParseAnd());
  while (cursor_.IsName("or")) {
    const uint32_t line = cursor_.Take().line;
    KVRM_ASSIGN_OR_RETURN(ExprPtr right, ParseAnd());
    KVRM_ASSIGN_OR_RETURN(left, Finish({.kind = ExprKind::kOr,
                                        .line = line,
                                        .args = MakeArgs(std::move(left), std::move(right))}));
  }
  return left;
}

Result<ExprPtr> ExprParser::ParseAnd() {
  KVRM_ASSIGN_OR_RETURN(ExprPtr left, ParseNot());
  while (cursor_.IsName("and")) {
    const uint32_t line = cursor_.Take().line;
    KVRM_ASSIGN_OR_RETURN(ExprPtr right, ParseNot());
    KVRM_ASSIGN_OR_RETURN(left, Finish({.kind = ExprKind::kAnd,
                                        .line = line,
                                        .args = MakeArgs(std::move(left), std::move(right))}));
  }
  return left;
}

Result<ExprPtr> ExprParser::ParseNot() {
  if (!cursor_.IsName("not")) return ParseCompare();
  const uint32_t line = cursor_.Take().line;
  KVRM_RETURN_IF_ERROR(cursor_.Enter());
  KVRM_ASSIGN_OR_RETURN(ExprPtr operand, ParseNot());
  cursor_.Leave();
  return Finish({.kind = ExprKind::kNot, .line = line, .args = MakeArgs(std::move(operand))});
}

Result<ExprPtr> ExprParser::ParseCompare() {
  KVRM_ASSIGN_OR_RETURN(ExprPtr left, ParseSum());
  for (bool compared = false;; compared = true) {
    const uint32_t line = cursor_.now().line;
    const auto* found = std::ranges::find_if(
        kCompareOps, [&](const OperatorName& op) { return cursor_.IsOp(op.first); });
    Operator op;
    if (found != std::end(kCompareOps)) {
      op = found->second;
      cursor_.Take();
    } else if (cursor_.TakeIfName("in")) {
      op = Operator::kIn;
    } else if (cursor_.TakeIfName("not")) {
      if (!cursor_.TakeIfName("in")) return cursor_.Unexpected("\"in\" after \"not\"");
      op = Operator::kNotIn;
    } else {
      return left;
    }
    if (compared) return cursor_.NotSupported("a chain of comparisons (a < b < c)");
    KVRM_ASSIGN_OR_RETURN(ExprPtr right, ParseSum());
    KVRM_ASSIGN_OR_RETURN(left, Finish({.kind = ExprKind::kBinary,
                                        .op = op,
                                        .line = line,
                                        .args = MakeArgs(std::move(left), std::move(right))}));
  }
}

Result<ExprPtr> ExprParser::ParseBinaryLevel(Level next, std::span<const OperatorName> ops) {
  KVRM_ASSIGN_OR_RETURN(ExprPtr left, (this->*next)());
  for (;;) {
    const auto found =
        std::ranges::find_if(ops, [&](const OperatorName& op) { return cursor_.IsOp(op.first); });
    if (found == ops.end()) return left;
    const uint32_t line = cursor_.Take().line;
    KVRM_ASSIGN_OR_RETURN(ExprPtr right, (this->*next)());
    KVRM_ASSIGN_OR_RETURN(left, Finish({.kind = ExprKind::kBinary,
                                        .op = found->second,
                                        .line = line,
                                        .args = MakeArgs(std::move(left), std::move(right))}));
  }
}

// Jinja lets "~" bind tighter than "+" and looser than "%".
Result<ExprPtr> ExprParser::ParseSum() {
  return ParseBinaryLevel(&ExprParser::ParseConcat, kSumOps);
}

Result<ExprPtr> ExprParser::ParseConcat() {
  return ParseBinaryLevel(&ExprParser::ParseProduct, kConcatOps);
}

Result<ExprPtr> ExprParser::ParseProduct() {
  KVRM_ASSIGN_OR_RETURN(ExprPtr product, ParseBinaryLevel(&ExprParser::ParseFiltered, kProductOps));
  if (cursor_.IsOp("**")) return cursor_.NotSupported("operator \"**\"");
  return product;
}

Result<ExprPtr> ExprParser::ParseUnary(bool with_filters) {
  if (cursor_.IsOp("-") || cursor_.IsOp("+")) {
    const bool negate = cursor_.IsOp("-");
    const uint32_t line = cursor_.Take().line;
    KVRM_RETURN_IF_ERROR(cursor_.Enter());
    KVRM_ASSIGN_OR_RETURN(ExprPtr operand, ParseUnary(/*with_filters=*/false));
    cursor_.Leave();
    if (negate) {
      KVRM_ASSIGN_OR_RETURN(
          operand,
          Finish({.kind = ExprKind::kNegate, .line = line, .args = MakeArgs(std::move(operand))}));
    }
    if (!with_filters) return operand;
    return ParseFilters(std::move(operand));
  }
  KVRM_ASSIGN_OR_RETURN(ExprPtr primary, ParsePrimary());
  KVRM_ASSIGN_OR_RETURN(primary, ParsePostfix(std::move(primary)));
  if (!with_filters) return primary;
  return ParseFilters(std::move(primary));
}

Result<ExprPtr> ExprParser::ParsePrimary() {
  switch (cursor_.now().kind) {
    case TokenKind::kName:
      return ParseNameOrCall();
    case TokenKind::kString:
      return ParseString();
    case TokenKind::kInteger:
      return ParseInteger();
    case TokenKind::kFloat:
      return ParseFloat();
    default:
      break;
  }
  if (cursor_.TakeIfOp("(")) {
    if (cursor_.IsOp(")")) return ParseList(")");
    KVRM_ASSIGN_OR_RETURN(ExprPtr inner, ParseConditional());
    if (cursor_.TakeIfOp(",")) return ParseList(")", std::move(inner));
    KVRM_RETURN_IF_ERROR(cursor_.ExpectOp(")"));
    return inner;
  }
  if (cursor_.TakeIfOp("[")) return ParseList("]");
  if (cursor_.TakeIfOp("{")) return ParseDict();
  return cursor_.Unexpected("an expression");
}

Result<ExprPtr> ExprParser::ParseNameOrCall() {
  const uint32_t line = cursor_.now().line;
  if (std::ranges::find(kReserved, cursor_.now().text) != kReserved.end()) {
    return cursor_.Unexpected("an expression");
  }
  std::string name = cursor_.Take().text;
  const auto literal = [&](Value value) {
    return Finish({.kind = ExprKind::kLiteral, .line = line, .value = std::move(value)});
  };
  if (name == "true" || name == "True") return literal(true);
  if (name == "false" || name == "False") return literal(false);
  if (name == "none" || name == "None") return literal(None{});
  if (!cursor_.TakeIfOp("(")) {
    return Finish({.kind = ExprKind::kName, .line = line, .name = std::move(name)});
  }
  Expr call{.kind = ExprKind::kCall, .line = line, .name = name};
  KVRM_RETURN_IF_ERROR(ParseArgs(call));
  if (std::ranges::find(kFunctions, name) == kFunctions.end()) macro_calls_.push_back({name, line});
  return Finish(std::move(call));
}

Result<ExprPtr> ExprParser::ParseString() {
  const uint32_t line = cursor_.now().line;
  std::string text;
  while (cursor_.now().kind == TokenKind::kString) text += cursor_.Take().text;
  return Finish({.kind = ExprKind::kLiteral, .line = line, .value = Text(text)});
}

Result<ExprPtr> ExprParser::ParseInteger() {
  const std::string& digits = cursor_.now().text;
  int64_t number = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (parsed.ec != std::errc{}) return cursor_.NotSupported("an integer over 64 bits");
  const uint32_t line = cursor_.Take().line;
  return Finish({.kind = ExprKind::kLiteral, .line = line, .value = number});
}

Result<ExprPtr> ExprParser::ParseFloat() {
  const std::string& digits = cursor_.now().text;
  double number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const uint32_t line = cursor_.Take().line;
  return Finish({.kind = ExprKind::kLiteral, .line = line, .value = number});
}

Result<ExprPtr> ExprParser::ParseList(std::string_view close, ExprPtr first) {
  const ExprKind kind = close == ")" ? ExprKind::kTuple : ExprKind::kList;
  Expr list{.kind = kind, .line = cursor_.now().line};
  if (first != nullptr) list.args.push_back(std::move(first));
  while (!cursor_.IsOp(close)) {
    KVRM_ASSIGN_OR_RETURN(ExprPtr item, ParseConditional());
    list.args.push_back(std::move(item));
    if (!cursor_.TakeIfOp(",")) break;
  }
  KVRM_RETURN_IF_ERROR(cursor_.ExpectOp(close));
  return Finish(std::move(list));
}

Result<ExprPtr> ExprParser::ParseDict() {
  Expr dict{.kind = ExprKind::kDict, .line = cursor_.now().line};
  while (!cursor_.IsOp("}")) {
    KVRM_ASSIGN_OR_RETURN(ExprPtr key, ParseConditional());
    if (key->kind == ExprKind::kLiteral && key->value.AsText() == nullptr) {
      return cursor_.NotSupported(std::string("a dict key of type ") + key->value.TypeName());
    }
    KVRM_RETURN_IF_ERROR(cursor_.ExpectOp(":"));
    KVRM_ASSIGN_OR_RETURN(ExprPtr value, ParseConditional());
    dict.args.push_back(std::move(key));
    dict.args.push_back(std::move(value));
    if (!cursor_.TakeIfOp(",")) break;
  }
  KVRM_RETURN_IF_ERROR(cursor_.ExpectOp("}"));
  return Finish(std::move(dict));
}

Result<ExprPtr> ExprParser::ParsePostfix(ExprPtr base) {
  for (;;) {
    const uint32_t line = cursor_.now().line;
    if (cursor_.TakeIfOp(".")) {
      KVRM_ASSIGN_OR_RETURN(std::string name, cursor_.ExpectName("an attribute's name"));
      if (cursor_.TakeIfOp("(")) {
        KVRM_ASSIGN_OR_RETURN(base, ParseMethod(std::move(base), name));
      } else {
        KVRM_ASSIGN_OR_RETURN(base, Finish({.kind = ExprKind::kAttribute,
                                            .line = line,
                                            .name = std::move(name),
                                            .args = MakeArgs(std::move(base))}));
      }
    } else if (cursor_.TakeIfOp("[")) {
      KVRM_ASSIGN_OR_RETURN(base, ParseSubscript(std::move(base)));
    } else if (cursor_.IsOp("(")) {
      return cursor_.NotSupported("a call of something that is no name");
    } else {
      return base;
    }
  }
}

Result<ExprPtr> ExprParser::ParseSubscript(ExprPtr base) {
  Expr expr{.kind = ExprKind::kIndex, .line = cursor_.now().line};
  expr.args.push_back(std::move(base));
  for (;;) {
    ExprPtr part;
    if (!cursor_.IsOp(":") && !cursor_.IsOp("]")) {
      KVRM_ASSIGN_OR_RETURN(part, ParseConditional());
    }
    expr.args.push_back(std::move(part));
    if (expr.args.size() == 4 || !cursor_.TakeIfOp(":")) break;
    expr.kind = ExprKind::kSlice;
  }
  if (expr.kind == ExprKind::kIndex && expr.args[1] == nullptr) {
    return cursor_.Unexpected("an index");
  }
  if (cursor_.IsOp(",")) return cursor_.NotSupported("an index of several parts");
  KVRM_RETURN_IF_ERROR(cursor_.ExpectOp("]"));
  if (expr.kind == ExprKind::kSlice) expr.args.resize(4);
  return Finish(std::move(expr));
}

}  // namespace kvrm::jinja
