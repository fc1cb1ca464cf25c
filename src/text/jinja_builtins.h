// Filters, tests and methods: one table each. The parser looks names up here and refuses the rest.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "text/jinja_value.h"

namespace kvrm::jinja {

struct Builtin {
  std::string_view name;
  uint8_t min_args;  // beside the input
  uint8_t max_args;
  std::array<std::string_view, 4> keywords;  // names of the arguments, by place
  // `args` has max_args entries; one that was not given is undefined.
  Result<Value> (*call)(const Value& input, std::span<const Value> args, Budget& budget);
};

// Null when there is none of that name.
const Builtin* FindFilter(std::string_view name);
const Builtin* FindTest(std::string_view name);
const Builtin* FindMethod(std::string_view name);

// `item in container`, which is an operator and a test.
Result<bool> Contains(const Value& container, const Value& item, Budget& budget);

}  // namespace kvrm::jinja
