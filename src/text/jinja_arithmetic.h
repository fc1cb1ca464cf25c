// Python's + - * / // % between values. A free function; spends from the budget.
#pragma once

#include "base/result.h"
#include "text/jinja_ast.h"
#include "text/jinja_value.h"

namespace kvrm::jinja {

// Requires: `op` is one of kAdd to kModulo. Errors: operands that Python would refuse too, division
// by zero, integers over 64 bits, % as a text format.
Result<Value> Arithmetic(Operator op, const Value& left, const Value& right, Budget& budget);

}  // namespace kvrm::jinja
