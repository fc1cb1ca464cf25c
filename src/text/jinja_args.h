// Arguments of filters, tests and methods, checked. Private to the units of built-ins.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja_value.h"

namespace kvrm::jinja {

using Args = std::span<const Value>;

inline Error WrongType(const char* what, const Value& value, const char* wanted) {
  return InvalidInput(std::string(what) + ": a " + value.TypeName() + " where a " + wanted +
                      " is wanted");
}

// The text of `value`, charged to the budget as read and made anew once.
inline Result<const Text*> TextOf(const char* what, const Value& value, Budget& budget) {
  if (value.AsText() == nullptr) return WrongType(what, value, "string");
  KVRM_RETURN_IF_ERROR(budget.SpendText(value.AsText()->size()));
  return value.AsText();
}

// An optional argument's text; empty when it was not given or is none.
inline Result<std::string_view> TextArg(const char* what, const Value& arg) {
  if (arg.is_undefined() || arg.is_none()) return std::string_view{};
  if (arg.AsText() == nullptr) return WrongType(what, arg, "string");
  return arg.AsText()->bytes();
}

inline Result<int64_t> IntArg(const char* what, const Value& arg, int64_t fallback) {
  if (arg.is_undefined() || arg.is_none()) return fallback;
  if (arg.AsInt() == nullptr) return WrongType(what, arg, "integer");
  return *arg.AsInt();
}

}  // namespace kvrm::jinja
