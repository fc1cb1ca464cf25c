#include <algorithm>
#include <compare>
#include <limits>
#include <optional>
#include <utility>

#include "text/jinja_evaluator.h"
#include "text/utf8.h"

namespace kvrm::jinja {
namespace {

Error UndefinedError(const std::string& what) { return InvalidInput(what + " is undefined"); }

// Python's rule for slices: the indices first, first + step, ... of a sequence.
std::vector<size_t> SliceIndices(std::optional<int64_t> begin, std::optional<int64_t> end,
                                 int64_t step, size_t length) {
  const auto size = static_cast<int64_t>(length);
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? size : size - 1;
  const auto clamp = [&](int64_t at) { return std::clamp(at < 0 ? at + size : at, low, high); };
  int64_t at = begin ? clamp(*begin) : (step > 0 ? low : high);
  const int64_t stop = end ? clamp(*end) : (step > 0 ? high : low);
  std::vector<size_t> indices;
  while (step > 0 ? at < stop : at > stop) {
    indices.push_back(static_cast<size_t>(at));
    // Steps longer than the sequence would overflow.
    if (step > size || step < -size) break;
    at += step;
  }
  return indices;
}

std::optional<int64_t> IntOrNothing(const Value& value) {
  if (const int64_t* number = value.AsInt()) return *number;
  return std::nullopt;
}

Error WrongOperands(const char* op, const Value& left, const Value& right) {
  return InvalidInput(std::string("operator ") + op + " between a " + left.TypeName() + " and a " +
                      right.TypeName());
}

}  // namespace

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
  if (const Loop* loop = base.AsLoop()) return loop->Get(expr.name);
  return GetNamed(base, expr.name);
}

Result<Value> Evaluator::EvalIndex(const Expr& expr, Scope& scope) {
  KVRM_ASSIGN_OR_RETURN(const Value base, Eval(*expr.args[0], scope));
  KVRM_ASSIGN_OR_RETURN(const Value key, Eval(*expr.args[1], scope));
  return GetItem(base, key);
}

// What is not there is undefined; to look into what is itself undefined (a misspelt name) is an
// error, as in Jinja.
Result<Value> Evaluator::GetNamed(const Value& base, std::string_view name) {
  if (base.is_undefined()) {
    return UndefinedError("what is asked for \"" + ForMessage(name) + "\"");
  }
  const Value* found = nullptr;
  if (const Dict* dict = base.AsDict()) {
    KVRM_RETURN_IF_ERROR(budget_.Spend(dict->items.size() / 8));
    found = dict->Find(name);
  } else if (Namespace* names = base.AsNamespace()) {
    KVRM_RETURN_IF_ERROR(budget_.Spend(names->items.size() / 8));
    found = names->Find(name);
  }
  return found == nullptr ? Value() : *found;
}

Result<Value> Evaluator::GetItem(const Value& base, const Value& key) {
  if (key.AsText() != nullptr) return GetNamed(base, key.AsText()->bytes());
  if (base.is_undefined()) return UndefinedError("what is indexed");
  if (key.AsInt() == nullptr) return Value();
  int64_t at = *key.AsInt();
  if (const List* list = base.AsList()) {
    const auto size = static_cast<int64_t>(list->items.size());
    if (at < 0) at += size;
    return at < 0 || at >= size ? Value() : list->items[static_cast<size_t>(at)];
  }
  if (const Text* text = base.AsText()) {
    KVRM_RETURN_IF_ERROR(budget_.Spend(text->size() / 16));
    const std::vector<size_t> begins = CharacterBegins(text->bytes());
    const auto size = static_cast<int64_t>(begins.size()) - 1;
    if (at < 0) at += size;
    if (at < 0 || at >= size) return Value();
    return Value(text->Slice(begins[static_cast<size_t>(at)], begins[static_cast<size_t>(at) + 1]));
  }
  return Value();
}

Result<Value> Evaluator::EvalSlice(const Expr& expr, Scope& scope) {
  KVRM_ASSIGN_OR_RETURN(const std::vector<Value> args, EvalArgs(expr, scope, 0));
  for (size_t i = 1; i < args.size(); ++i) {
    if (args[i].AsInt() == nullptr && !args[i].is_none() && expr.args[i] != nullptr) {
      return InvalidInput(std::string("a slice index of type ") + args[i].TypeName());
    }
  }
  const int64_t step = IntOrNothing(args[3]).value_or(1);
  if (step == 0) return InvalidInput("a slice step of 0");
  if (const List* list = args[0].AsList()) {
    KVRM_RETURN_IF_ERROR(budget_.Spend(list->items.size()));
    std::vector<Value> items;
    for (const size_t i :
         SliceIndices(IntOrNothing(args[1]), IntOrNothing(args[2]), step, list->items.size())) {
      items.push_back(list->items[i]);
    }
    return MakeList(std::move(items));
  }
  if (const Text* text = args[0].AsText()) {
    KVRM_RETURN_IF_ERROR(budget_.Spend(text->size() / 16));
    const std::vector<size_t> begins = CharacterBegins(text->bytes());
    Text sliced;
    for (const size_t i :
         SliceIndices(IntOrNothing(args[1]), IntOrNothing(args[2]), step, begins.size() - 1)) {
      sliced.Append(*text, begins[i], begins[i + 1]);
    }
    return Value(std::move(sliced));
  }
  if (args[0].is_undefined()) return UndefinedError("what is sliced");
  return InvalidInput(std::string("a slice of a ") + args[0].TypeName());
}

Result<Value> Evaluator::EvalBuiltin(const Expr& expr, Scope& scope) {
  KVRM_ASSIGN_OR_RETURN(const std::vector<Value> args, EvalArgs(expr, scope, 0));
  return expr.builtin->call(args[0], std::span(args).subspan(1), budget_);
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
    case Operator::kModulo:
      return EvalArithmetic(expr.op, left, right);
    default:
      return EvalOrder(expr.op, left, right);
  }
}

Result<Value> Evaluator::EvalArithmetic(Operator op, const Value& left, const Value& right) {
  if (op == Operator::kAdd && left.AsText() != nullptr && right.AsText() != nullptr) {
    Text joined;
    KVRM_RETURN_IF_ERROR(Print(left, budget_, joined));
    KVRM_RETURN_IF_ERROR(Print(right, budget_, joined));
    return Value(std::move(joined));
  }
  if (op == Operator::kAdd && left.AsList() != nullptr && right.AsList() != nullptr) {
    std::vector<Value> items = left.AsList()->items;
    const std::vector<Value>& more = right.AsList()->items;
    KVRM_RETURN_IF_ERROR(budget_.Spend(items.size() + more.size()));
    items.insert(items.end(), more.begin(), more.end());
    return MakeList(std::move(items));
  }
  const char* name = op == Operator::kAdd ? "+" : op == Operator::kSubtract ? "-" : "%";
  const int64_t* a = left.AsInt();
  const int64_t* b = right.AsInt();
  if (a == nullptr || b == nullptr) return WrongOperands(name, left, right);
  int64_t result = 0;
  bool overflow = false;
  if (op == Operator::kAdd) overflow = __builtin_add_overflow(*a, *b, &result);
  if (op == Operator::kSubtract) overflow = __builtin_sub_overflow(*a, *b, &result);
  if (op == Operator::kModulo) {
    if (*b == 0) return InvalidInput("operator %: division by zero");
    result = *b == -1 ? 0 : *a % *b;
    if (result != 0 && (result < 0) != (*b < 0)) result += *b;  // Python's sign rule
  }
  if (overflow) return InvalidInput(std::string("operator ") + name + ": over 64 bits");
  return Value(result);
}

Result<Value> Evaluator::EvalOrder(Operator op, const Value& left, const Value& right) {
  std::strong_ordering order = std::strong_ordering::equal;
  if (left.AsInt() != nullptr && right.AsInt() != nullptr) {
    order = *left.AsInt() <=> *right.AsInt();
  } else if (left.AsText() != nullptr && right.AsText() != nullptr) {
    KVRM_RETURN_IF_ERROR(
        budget_.SpendText(std::min(left.AsText()->size(), right.AsText()->size())));
    order = left.AsText()->bytes() <=> right.AsText()->bytes();
  } else {
    return WrongOperands("<, <=, > or >=", left, right);
  }
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
  if (call.name == "strftime_now") return Value(Text(strftime_now_));
  return UndefinedError("function " + call.name);
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
