// From tokens to a tree. Everything that is not in the subset is refused here, with its name and
// line; nesting is bounded, so that neither this nor rendering can run out of stack.
#pragma once

#include <vector>

#include "base/result.h"
#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace kvrm::jinja {

inline constexpr uint32_t kMaxNesting = 48;     // brackets and blocks inside each other
inline constexpr uint32_t kMaxExprDepth = 200;  // operators and calls in one expression

Result<Block> Parse(std::vector<Token> tokens);

}  // namespace kvrm::jinja
