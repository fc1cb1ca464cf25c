// Filters that order, thin out or search lists and dicts. Signatures as in jinja_builtins.h.
#pragma once

#include <span>

#include "base/result.h"
#include "text/jinja_value.h"

namespace kvrm::jinja {

// args: case_sensitive, by ("key" or "value"), reverse. Pairs of key and value.
Result<Value> DictSort(const Value& input, std::span<const Value> args, Budget& budget);
// args: reverse, case_sensitive, attribute.
Result<Value> Sort(const Value& input, std::span<const Value> args, Budget& budget);
// args: case_sensitive, attribute. The first of each kind, in order.
Result<Value> Unique(const Value& input, std::span<const Value> args, Budget& budget);
// args: case_sensitive, attribute. Undefined for nothing.
Result<Value> Min(const Value& input, std::span<const Value> args, Budget& budget);
Result<Value> Max(const Value& input, std::span<const Value> args, Budget& budget);
Result<Value> Reverse(const Value& input, std::span<const Value> args, Budget& budget);

}  // namespace kvrm::jinja
