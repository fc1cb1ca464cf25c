// What values look like as text: printed, as Python's repr, as JSON. Free functions; each spends
// from the budget for what it makes.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "text/jinja_value.h"

namespace kvrm::jinja {

// Appends what {{ value }} prints: text as it is, lists and dicts as Python's repr. Errors: a value
// without a text (namespace, loop, function).
Status Print(const Value& value, Budget& budget, Text& out);

struct JsonStyle {
  bool ascii_only = false;
  bool sorts_keys = false;
  int64_t indent = -1;  // < 0: on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// Appends JSON as Python's json.dumps writes it.
Status PrintJson(const Value& value, const JsonStyle& style, Budget& budget, Text& out);

// Python's repr of a float: the shortest digits that give it back.
std::string FloatText(double value);

}  // namespace kvrm::jinja
