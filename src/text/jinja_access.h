// Parts of values: attributes, items, slices, as Jinja and Python look them up. Free functions;
// each spends from the budget.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja_value.h"

namespace kvrm::jinja {

// For what is undefined where a value is wanted; `what` begins the message.
Error UndefinedError(const std::string& what);

// base.name. What is not there is undefined; to look into what is itself undefined (a misspelt
// name) is an error, as in Jinja. A name that Python's own type has as a method hides the key.
Result<Value> GetAttribute(const Value& base, std::string_view name, Budget& budget);

// base[key].
Result<Value> GetItem(const Value& base, const Value& key, Budget& budget);

// "a.b.0": what filters take as `attribute`.
Result<Value> GetPath(const Value& base, std::string_view path, Budget& budget);

// base[begin:end:step], where none or undefined stands for what was left out.
Result<Value> Slice(const Value& base, const Value& begin, const Value& end, const Value& step,
                    Budget& budget);

}  // namespace kvrm::jinja
