#include <algorithm>
#include <compare>
#include <ctime>
#include <limits>
#include <optional>
#include <utility>

#include "text/jinja_access.h"
#include "text/jinja_arithmetic.h"
#include "text/jinja_evaluator.h"
#include "text/jinja_print.h"
#include "text/utf8.h"

namespace kvrm::jinja {

Result<Value> Evaluator::Eval(const Expr& expr, Scope& scope) {
  KVRM_RETURN_IF_ERROR(budget_.Spend(1));
  const DepthGuard guard(depth_);
  KVRM_RETURN_IF_ERROR(guard.Check());
  switch (expr.kind) {
    case ExprKind::kLiteral:
      return expr.value;
    case ExprKind::kName: {
      const Value* found = scope.Find(expr.name);
      return found == nullptr ? Value() : *found;
    }
    case ExprKind::kList: {
      KVRM_ASSIGN_OR_RETURN(std::vector<Value> items, EvalArgs(expr, scope, 0));
      return MakeList(std::move(items));
    }
    case ExprKind::kTuple: {
      KVRM_ASSIGN_OR_RETURN(std::vector<Value> items, EvalArgs(expr, scope, 0));
      return MakeList(std::move(items), List::Kind::kTuple);
    }
    case ExprKind::kDict:
      return EvalDict(expr, scope);
    case ExprKind::kAttribute:
      return EvalAttribute(expr, scope);
    case ExprKind::kIndex:
      return EvalIndex(expr, scope);
    case ExprKind::kSlice:
      return EvalSlice(expr, scope);
    case ExprKind::kBuiltin:
      return EvalBuiltin(expr, scope);
    case ExprKind::kPick:
      return EvalPick(expr, scope);
    case ExprKind::kCall:
      return EvalCall(expr, scope);
    case ExprKind::kBinary:
      return EvalBinary(expr, scope);
    case ExprKind::kNot:
    case ExprKind::kNegate:
    case ExprKind::kAnd:
    case ExprKind::kOr:
    case ExprKind::kConditional:
      return EvalLogic(expr, scope);
  }
  KVRM_CHECK(false, "every kind of expression is handled");
}

// The arguments from `first` on; undefined where none was given.
Result<std::vector<Value>> Evaluator::EvalArgs(const Expr& expr, Scope& scope, size_t first) {
  std::vector<Value> args;
  args.reserve(expr.args.size() - first);
  for (size_t i = first; i < expr.args.size(); ++i) {
    if (expr.args[i] == nullptr) {
      args.emplace_back();
      continue;
    }
    KVRM_ASSIGN_OR_RETURN(Value value, Eval(*expr.args[i], scope));
    args.push_back(std::move(value));
  }
  return args;
}

Result<Value> Evaluator::EvalDict(const Expr& expr, Scope& scope) {
  KVRM_ASSIGN_OR_RETURN(const std::vector<Value> flat, EvalArgs(expr, scope, 0));
  std::vector<std::pair<Text, Value>> items;
  KVRM_RETURN_IF_ERROR(budget_.Spend(flat.size() * flat.size() / 64));
  for (size_t i = 0; i < flat.size(); i += 2) {
    if (flat[i].AsText() == nullptr) {
      return InvalidInput(std::string("a dict key of type ") + flat[i].TypeName());
    }
    const Text& key = *flat[i].AsText();
    const auto existing = std::ranges::find_if(
        items, [&](const auto& item) { return item.first.bytes() == key.bytes(); });
    if (existing != items.end()) {
      existing->second = flat[i + 1];
    } else {
      items.emplace_back(key, flat[i + 1]);
    }
  }
  return MakeDict(std::move(items));
}

Result<Value> Evaluator::EvalAttribute(const Expr& expr, Scope& scope) {
  KVRM_ASSIGN_OR_RETURN(const Value base, Eval(*expr.args[0], scope));
  return GetAttribute(base, expr.name, budget_);
}

Result<Value> Evaluator::EvalIndex(const Expr& expr, Scope& scope) {
  KVRM_ASSIGN_OR_RETURN(const Value base, Eval(*expr.args[0], scope));
  KVRM_ASSIGN_OR_RETURN(const Value key, Eval(*expr.args[1], scope));
  return GetItem(base, key, budget_);
}

Result<Value> Evaluator::EvalSlice(const Expr& expr, Scope& scope) {
  KVRM_ASSIGN_OR_RETURN(const std::vector<Value> args, EvalArgs(expr, scope, 0));
  return Slice(args[0], args[1], args[2], args[3], budget_);
}

Result<Value> Evaluator::EvalBuiltin(const Expr& expr, Scope& scope) {
  KVRM_ASSIGN_OR_RETURN(const std::vector<Value> args, EvalArgs(expr, scope, 0));
  return expr.builtin->call(args[0], std::span(args).subspan(1), budget_);
}

Result<Value> Evaluator::EvalPick(const Expr& expr, Scope& scope) {
  KVRM_ASSIGN_OR_RETURN(const Value input, Eval(*expr.args[0], scope));
  KVRM_ASSIGN_OR_RETURN(const std::vector<Value> args, EvalArgs(expr, scope, 1));
  if (!input.IsTrue()) return MakeList({}, List::Kind::kGenerator);  // none too, as in Jinja
  KVRM_ASSIGN_OR_RETURN(const std::shared_ptr<const List> items, Iterate(input, budget_));
  std::vector<Value> picked;
  for (const Value& item : items->items) {
    KVRM_RETURN_IF_ERROR(budget_.Spend(1));
    Value value = item;
    if (!expr.name.empty()) {
      KVRM_ASSIGN_OR_RETURN(value, GetPath(item, expr.name, budget_));
    }
    if (expr.builtin != nullptr) {
      KVRM_ASSIGN_OR_RETURN(value, expr.builtin->call(value, args, budget_));
    } else if (expr.pick == Pick::kMap && value.is_undefined() && !args.empty()) {
      value = args[0];
    }
    if (expr.pick == Pick::kMap) {
      picked.push_back(std::move(value));
    } else if (value.IsTrue() == (expr.pick == Pick::kKeep)) {
      picked.push_back(item);
    }
  }
  return MakeList(std::move(picked), List::Kind::kGenerator);
}

Result<Value> Evaluator::EvalLogic(const Expr& expr, Scope& scope) {
  const bool conditional = expr.kind == ExprKind::kConditional;
  KVRM_ASSIGN_OR_RETURN(Value first, Eval(*expr.args[conditional ? 1 : 0], scope));
  switch (expr.kind) {
    case ExprKind::kAnd:
      return first.IsTrue() ? Eval(*expr.args[1], scope) : Result<Value>(std::move(first));
    case ExprKind::kOr:
      return first.IsTrue() ? Result<Value>(std::move(first)) : Eval(*expr.args[1], scope);
    case ExprKind::kConditional:
      if (first.IsTrue()) return Eval(*expr.args[0], scope);
      return expr.args[2] == nullptr ? Result<Value>(Value()) : Eval(*expr.args[2], scope);
    case ExprKind::kNot:
      return Value(!first.IsTrue());
    default:
      break;
  }
  if (const double* real = first.AsFloat()) return Value(-*real);
  if (first.AsInt() == nullptr || *first.AsInt() == std::numeric_limits<int64_t>::min()) {
    return InvalidInput(std::string("a minus before a ") + first.TypeName());
  }
  return Value(-*first.AsInt());
}

Result<Value> Evaluator::EvalBinary(const Expr& expr, Scope& scope) {
  KVRM_ASSIGN_OR_RETURN(const Value left, Eval(*expr.args[0], scope));
  KVRM_ASSIGN_OR_RETURN(const Value right, Eval(*expr.args[1], scope));
  switch (expr.op) {
    case Operator::kEqual:
    case Operator::kNotEqual: {
      KVRM_ASSIGN_OR_RETURN(const bool equal, Equal(left, right, budget_));
      return Value(equal == (expr.op == Operator::kEqual));
    }
    case Operator::kIn:
    case Operator::kNotIn: {
      KVRM_ASSIGN_OR_RETURN(const bool contains, Contains(right, left, budget_));
      return Value(contains == (expr.op == Operator::kIn));
    }
    case Operator::kConcat: {
      Text joined;
      KVRM_RETURN_IF_ERROR(Print(left, budget_, joined));
      KVRM_RETURN_IF_ERROR(Print(right, budget_, joined));
      return Value(std::move(joined));
    }
    case Operator::kAdd:
    case Operator::kSubtract:
    case Operator::kMultiply:
    case Operator::kDivide:
    case Operator::kFloorDivide:
    case Operator::kModulo:
      return Arithmetic(expr.op, left, right, budget_);
    default:
      return EvalOrder(expr.op, left, right);
  }
}

Result<Value> Evaluator::EvalOrder(Operator op, const Value& left, const Value& right) {
  KVRM_ASSIGN_OR_RETURN(const std::partial_ordering order, Compare(left, right, budget_));
  switch (op) {
    case Operator::kLess:
      return Value(order < 0);
    case Operator::kLessEqual:
      return Value(order <= 0);
    case Operator::kGreater:
      return Value(order > 0);
    default:
      return Value(order >= 0);
  }
}

Result<Value> Evaluator::EvalCall(const Expr& expr, Scope& scope) {
  const Value* found = scope.Find(expr.name);
  if (found == nullptr) return UndefinedError("function " + expr.name);
  if (found->AsMacro() == nullptr) {
    return InvalidInput(std::string("a ") + found->TypeName() + " is called as a function");
  }
  if (const Stmt* macro = found->AsMacro()->stmt) return CallMacro(*macro, expr, scope);
  KVRM_ASSIGN_OR_RETURN(const std::vector<Value> args, EvalArgs(expr, scope, 0));
  return CallFunction(expr, args);
}

Result<Value> Evaluator::CallFunction(const Expr& call, const std::vector<Value>& args) {
  const bool named =
      std::ranges::any_of(call.arg_names, [](const std::string& name) { return !name.empty(); });
  if (call.name == "namespace") {
    auto names = std::make_shared<Namespace>();
    for (size_t i = 0; i < args.size(); ++i) {
      if (call.arg_names[i].empty()) return InvalidInput("namespace: an argument without a name");
      if (args[i].AsNamespace() != nullptr || args[i].AsLoop() != nullptr) {
        return InvalidInput(std::string("a namespace cannot hold a ") + args[i].TypeName());
      }
      names->items.emplace_back(call.arg_names[i], args[i]);
    }
    return Value(std::move(names));
  }
  if (named) return InvalidInput("function " + call.name + " with a named argument");
  if (call.name == "range") return MakeRange(args);
  if (call.name == "raise_exception") {
    Text message;
    if (!args.empty()) KVRM_RETURN_IF_ERROR(Print(args[0], budget_, message));
    return InvalidInput(ForMessage(message.bytes(), /*max_bytes=*/400));
  }
  if (call.name == "strftime_now") return FormatNow(args);
  return UndefinedError("function " + call.name);
}

// UTC: the place where a program runs must not change the prompt.
Result<Value> Evaluator::FormatNow(const std::vector<Value>& args) {
  constexpr size_t kMaxFormat = 256;
  if (args.size() != 1 || args[0].AsText() == nullptr || args[0].AsText()->size() > kMaxFormat) {
    return InvalidInput("strftime_now takes one string of at most 256 bytes");
  }
  const auto seconds = static_cast<std::time_t>(now_.value_or(0));
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  const std::string format(args[0].AsText()->bytes());
  // Conversions give at most a few dozen bytes each; what does not fit prints as nothing.
  std::string text(64 * kMaxFormat, '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &utc));
  return Value(Text(text, args[0].AsText()->HasUserText()));
}

Result<Value> Evaluator::MakeRange(const std::vector<Value>& args) {
  const bool all_integers =
      std::ranges::all_of(args, [](const Value& arg) { return arg.AsInt() != nullptr; });
  if (args.empty() || args.size() > 3 || !all_integers) {
    return InvalidInput("range takes one to three integers");
  }
  int64_t at = args.size() == 1 ? 0 : *args[0].AsInt();
  const int64_t end = *args[args.size() == 1 ? 0 : 1].AsInt();
  const int64_t step = args.size() == 3 ? *args[2].AsInt() : 1;
  if (step == 0) return InvalidInput("range: a step of 0");
  std::vector<Value> items;
  while (step > 0 ? at < end : at > end) {
    KVRM_RETURN_IF_ERROR(budget_.Spend(1));
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return MakeList(std::move(items));
}

}  // namespace kvrm::jinja
