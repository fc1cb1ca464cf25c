// Filters, tests, methods and the arguments of calls: the part of the expression parser that
// resolves names.
#include <algorithm>
#include <string>
#include <utility>

#include "text/jinja_expr_parser.h"
#include "text/utf8.h"

namespace kvrm::jinja {
namespace {

constexpr std::pair<std::string_view, Pick> kPicks[] = {{"select", Pick::kKeep},
                                                        {"reject", Pick::kDrop},
                                                        {"selectattr", Pick::kKeep},
                                                        {"rejectattr", Pick::kDrop},
                                                        {"map", Pick::kMap}};

}  // namespace

Result<ExprPtr> ExprParser::ParseMethod(ExprPtr receiver, const std::string& name) {
  Expr call{.kind = ExprKind::kBuiltin, .line = cursor_.now().line, .builtin = FindMethod(name)};
  if (call.builtin == nullptr) return cursor_.NotSupported("method " + Quoted(name));
  call.args.push_back(std::move(receiver));
  KVRM_RETURN_IF_ERROR(ParseBuiltinArgs(call, "method " + Quoted(name)));
  return Finish(std::move(call));
}

Result<ExprPtr> ExprParser::ParseFilters(ExprPtr base) {
  for (;;) {
    if (cursor_.TakeIfOp("|")) {
      KVRM_ASSIGN_OR_RETURN(base, ParseFilter(std::move(base)));
    } else if (cursor_.TakeIfName("is")) {
      KVRM_ASSIGN_OR_RETURN(base, ParseTest(std::move(base)));
    } else {
      return base;
    }
  }
}

Result<ExprPtr> ExprParser::ParseFilter(ExprPtr input) {
  KVRM_ASSIGN_OR_RETURN(const std::string name, cursor_.ExpectName("a filter's name"));
  const std::string what = "filter " + Quoted(name);
  const auto pick = std::ranges::find(kPicks, name, &std::pair<std::string_view, Pick>::first);
  if (pick != std::end(kPicks)) {
    return ParsePick(std::move(input), pick->second, name.ends_with("attr"), what);
  }
  Expr call{.kind = ExprKind::kBuiltin, .line = cursor_.now().line, .builtin = FindFilter(name)};
  if (call.builtin == nullptr) return cursor_.NotSupported(what);
  call.args.push_back(std::move(input));
  if (cursor_.TakeIfOp("(")) {
    KVRM_RETURN_IF_ERROR(ParseBuiltinArgs(call, what));
  } else {
    KVRM_RETURN_IF_ERROR(PlaceArgs(*call.builtin, {}, call, what));
  }
  return Finish(std::move(call));
}

// The names of the attribute, of the test and of the filter are written out in the template, so
// that an unknown one is refused at load like any other.
Result<ExprPtr> ExprParser::ParsePick(ExprPtr input, Pick pick, bool by_attribute,
                                      const std::string& what) {
  Expr call{.kind = ExprKind::kPick, .line = cursor_.now().line, .pick = pick};
  call.args.push_back(std::move(input));
  Expr given{.kind = ExprKind::kCall};
  if (cursor_.TakeIfOp("(")) KVRM_RETURN_IF_ERROR(ParseArgs(given));
  const auto take_name = [&](std::string& name) {
    const Text* text =
        given.args.empty() || given.args[0] == nullptr ? nullptr : given.args[0]->value.AsText();
    if (text == nullptr || given.args[0]->kind != ExprKind::kLiteral) return false;
    name = text->bytes();
    given.args.erase(given.args.begin());
    given.arg_names.erase(given.arg_names.begin());
    return true;
  };
  const bool maps_attribute =
      pick == Pick::kMap && !given.arg_names.empty() && given.arg_names[0] == "attribute";
  if ((by_attribute || maps_attribute) && !take_name(call.name)) {
    return cursor_.NotSupported(what + " without an attribute's name");
  }
  if (maps_attribute) {
    if (!given.args.empty() && given.arg_names[0] == "default") {
      call.args.push_back(std::move(given.args[0]));
    } else if (!given.args.empty()) {
      return cursor_.NotSupported(what + " with argument " + given.arg_names[0]);
    }
    return Finish(std::move(call));
  }
  if (given.args.empty()) {
    if (pick == Pick::kMap) return cursor_.Invalid(what + " lacks an argument");
    return Finish(std::move(call));
  }
  std::string name;
  if (!take_name(name)) return cursor_.NotSupported(what + " with a computed name");
  call.builtin = pick == Pick::kMap ? FindFilter(name) : FindTest(name);
  const std::string inner = (pick == Pick::kMap ? "filter " : "test ") + Quoted(name);
  if (call.builtin == nullptr) return cursor_.NotSupported(inner);
  KVRM_RETURN_IF_ERROR(PlaceArgs(*call.builtin, std::move(given), call, inner));
  return Finish(std::move(call));
}

Result<ExprPtr> ExprParser::ParseCapturedFilters() {
  KVRM_ASSIGN_OR_RETURN(
      ExprPtr captured,
      Finish({.kind = ExprKind::kName, .line = cursor_.now().line, .name = kCaptured}));
  KVRM_ASSIGN_OR_RETURN(captured, ParseFilter(std::move(captured)));
  return ParseFilters(std::move(captured));
}

// A test's argument may stand without brackets: `x is divisibleby 3`.
Result<ExprPtr> ExprParser::ParseTest(ExprPtr input) {
  const uint32_t line = cursor_.now().line;
  const bool negated = cursor_.TakeIfName("not");
  std::string name;
  if (cursor_.TakeIfOp("==")) {
    name = "==";
  } else {
    KVRM_ASSIGN_OR_RETURN(name, cursor_.ExpectName("a test's name"));
  }
  Expr call{.kind = ExprKind::kBuiltin, .line = line, .builtin = FindTest(name)};
  if (call.builtin == nullptr) return cursor_.NotSupported("test " + Quoted(name));
  call.args.push_back(std::move(input));
  if (cursor_.TakeIfOp("(")) {
    KVRM_RETURN_IF_ERROR(ParseBuiltinArgs(call, "test " + Quoted(name)));
  } else {
    Expr given{.kind = ExprKind::kCall};
    if (call.builtin->max_args > 0) {
      KVRM_ASSIGN_OR_RETURN(ExprPtr arg, ParseUnary(/*with_filters=*/false));
      given.args.push_back(std::move(arg));
      given.arg_names.emplace_back();
    }
    KVRM_RETURN_IF_ERROR(PlaceArgs(*call.builtin, std::move(given), call, "test " + Quoted(name)));
  }
  KVRM_ASSIGN_OR_RETURN(ExprPtr test, Finish(std::move(call)));
  if (!negated) return test;
  return Finish({.kind = ExprKind::kNot, .line = line, .args = MakeArgs(std::move(test))});
}

// Up to the closing bracket; the opening one is taken.
Status ExprParser::ParseArgs(Expr& call) {
  while (!cursor_.IsOp(")")) {
    std::string name;
    if (cursor_.now().kind == TokenKind::kName && cursor_.NextIsOp("=")) {
      name = cursor_.Take().text;
      cursor_.Take();
    } else if (!call.arg_names.empty() && !call.arg_names.back().empty()) {
      return cursor_.Invalid("an argument without a name after one with a name");
    }
    if (cursor_.IsOp("*") || cursor_.IsOp("**")) {
      return cursor_.NotSupported("unpacking of arguments");
    }
    KVRM_ASSIGN_OR_RETURN(ExprPtr arg, ParseConditional());
    call.args.push_back(std::move(arg));
    call.arg_names.push_back(std::move(name));
    if (!cursor_.TakeIfOp(",")) break;
  }
  return cursor_.ExpectOp(")");
}

Status ExprParser::ParseBuiltinArgs(Expr& call, const std::string& what) {
  Expr given{.kind = ExprKind::kCall};
  KVRM_RETURN_IF_ERROR(ParseArgs(given));
  return PlaceArgs(*call.builtin, std::move(given), call, what);
}

Status ExprParser::PlaceArgs(const Builtin& builtin, Expr given, Expr& call,
                             const std::string& what) {
  call.args.resize(1 + builtin.max_args);
  size_t next = 0;
  for (size_t i = 0; i < given.args.size(); ++i) {
    size_t place = next++;
    if (!given.arg_names[i].empty()) {
      const auto found = std::ranges::find(builtin.keywords, given.arg_names[i]);
      place = static_cast<size_t>(found - builtin.keywords.begin());
    }
    if (place >= builtin.max_args || call.args[1 + place] != nullptr) {
      return cursor_.NotSupported(
          what + " with " +
          (given.arg_names[i].empty() ? "so many arguments" : "argument " + given.arg_names[i]));
    }
    call.args[1 + place] = std::move(given.args[i]);
  }
  for (size_t i = 0; i < builtin.min_args; ++i) {
    if (call.args[1 + i] == nullptr) return cursor_.Invalid(what + " lacks an argument");
  }
  return Ok();
}

}  // namespace kvrm::jinja
