// From a template's source to tokens: text outside tags with white space already trimmed
// (trim_blocks and lstrip_blocks are on, as every chat template expects), and the words inside
// tags.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvrm::jinja {

enum class TokenKind : uint8_t {
  kText,         // outside tags
  kOutputBegin,  // {{
  kOutputEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,  // text: the value, escapes resolved
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  uint32_t line;  // from 1
  std::string text;
};

inline constexpr size_t kMaxSourceBytes = size_t{1} << 20;

// Errors name the line: a tag, comment or string that does not end, an unknown character, a number
// with an exponent; a source over kMaxSourceBytes.
Result<std::vector<Token>> Lex(std::string_view source);

// "chat template, line N: ...".
Error AtLine(uint32_t line, ErrorKind kind, const std::string& what);

}  // namespace kvrm::jinja
