#include "text/jinja_arithmetic.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_print.h"

namespace kvrm::jinja {
namespace {

const char* NameOf(Operator op) {
  switch (op) {
    case Operator::kAdd:
      return "+";
    case Operator::kSubtract:
      return "-";
    case Operator::kMultiply:
      return "*";
    case Operator::kDivide:
      return "/";
    case Operator::kFloorDivide:
      return "//";
    default:
      return "%";
  }
}

std::optional<int64_t> IntegerOf(const Value& value) {
  if (const int64_t* number = value.AsInt()) return *number;
  if (const bool* flag = value.AsBool()) return *flag ? 1 : 0;
  return std::nullopt;
}

std::optional<double> RealOf(const Value& value) {
  if (const double* number = value.AsFloat()) return *number;
  if (const auto number = IntegerOf(value)) return static_cast<double>(*number);
  return std::nullopt;
}

Result<Value> OfIntegers(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Operator::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::kModulo:
      result = b == -1 ? 0 : a % b;
      if (result != 0 && (result < 0) != (b < 0)) result += b;  // Python's sign rule
      break;
    default:  // //
      if (b == -1) {
        overflow = __builtin_sub_overflow(int64_t{0}, a, &result);
      } else {
        result = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
      }
  }
  if (overflow) return InvalidInput(std::string("operator ") + NameOf(op) + ": over 64 bits");
  return Value(result);
}

double OfReals(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return a + b;
    case Operator::kSubtract:
      return a - b;
    case Operator::kMultiply:
      return a * b;
    case Operator::kDivide:
      return a / b;
    case Operator::kModulo: {
      const double rest = std::fmod(a, b);
      return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    }
    default:
      return std::floor(a / b);
  }
}

Result<Value> Repeat(const Value& sequence, int64_t times, Budget& budget) {
  const auto count = static_cast<size_t>(times < 0 ? 0 : times);
  if (const Text* text = sequence.AsText()) {
    if (text->size() > 0 && count > Budget::kMaxTextBytes / text->size()) {
      KVRM_RETURN_IF_ERROR(budget.MakeText(Budget::kMaxTextBytes + 1));
    }
    KVRM_RETURN_IF_ERROR(budget.MakeText(count * text->size()));
    KVRM_RETURN_IF_ERROR(budget.Spend(text->size() == 0 ? 0 : count));
    Text repeated;
    for (size_t i = 0; i < count && text->size() > 0; ++i) repeated.Append(*text);
    return Value(std::move(repeated));
  }
  const std::vector<Value>& items = sequence.AsList()->items;
  std::vector<Value> repeated;
  for (size_t i = 0; i < count && !items.empty(); ++i) {
    KVRM_RETURN_IF_ERROR(budget.Spend(items.size()));
    repeated.insert(repeated.end(), items.begin(), items.end());
  }
  return MakeList(std::move(repeated));
}

bool IsSequence(const Value& value) {
  return value.AsText() != nullptr || value.AsList() != nullptr;
}

}  // namespace

Result<Value> Arithmetic(Operator op, const Value& left, const Value& right, Budget& budget) {
  if (op == Operator::kAdd && left.AsText() != nullptr && right.AsText() != nullptr) {
    const bool is_markup = left.AsText()->is_markup() || right.AsText()->is_markup();
    Text joined;
    for (const Value* part : {&left, &right}) {
      // An escape is at most five bytes for one.
      KVRM_RETURN_IF_ERROR(
          budget.MakeText((is_markup ? 5 : 1) * part->AsText()->size(), joined.size()));
      joined.Append(is_markup ? part->AsText()->Escaped() : *part->AsText());
    }
    return Value(is_markup ? joined.AsMarkup() : std::move(joined));
  }
  if (op == Operator::kAdd && left.AsList() != nullptr && right.AsList() != nullptr) {
    std::vector<Value> items = left.AsList()->items;
    const std::vector<Value>& more = right.AsList()->items;
    KVRM_RETURN_IF_ERROR(budget.Spend(items.size() + more.size()));
    items.insert(items.end(), more.begin(), more.end());
    return MakeList(std::move(items));
  }
  const auto left_integer = IntegerOf(left);
  const auto right_integer = IntegerOf(right);
  if (op == Operator::kMultiply && IsSequence(left) && right_integer) {
    return Repeat(left, *right_integer, budget);
  }
  if (op == Operator::kMultiply && left_integer && IsSequence(right)) {
    return Repeat(right, *left_integer, budget);
  }
  const auto a = RealOf(left);
  const auto b = RealOf(right);
  if (!a || !b) {
    return InvalidInput(std::string("operator ") + NameOf(op) + " between a " + left.TypeName() +
                        " and a " + right.TypeName());
  }
  const bool divides =
      op == Operator::kDivide || op == Operator::kFloorDivide || op == Operator::kModulo;
  if (divides && *b == 0) {
    return InvalidInput(std::string("operator ") + NameOf(op) + ": division by zero");
  }
  if (left_integer && right_integer && op != Operator::kDivide) {
    return OfIntegers(op, *left_integer, *right_integer);
  }
  return Value(OfReals(op, *a, *b));
}

}  // namespace kvrm::jinja
