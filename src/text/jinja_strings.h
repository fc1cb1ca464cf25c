// Filters and methods of text: Python's str, on code points. Part of the tables of
// jinja_builtins.h.
#pragma once

#include <span>

#include "text/jinja_builtins.h"

namespace kvrm::jinja {

std::span<const Builtin> TextFilters();
std::span<const Builtin> TextMethods();

}  // namespace kvrm::jinja
