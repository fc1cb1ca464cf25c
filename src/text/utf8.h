// One step of UTF-8 decoding, shared by everything in this folder that looks at characters.
// Free functions, thread-safe. Well formed means Unicode's table 3-7: no surrogates, no overlong
// forms, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvrm {

enum class Utf8Status : uint8_t {
  kValid,
  kInvalid,     // no continuation can make it valid
  kIncomplete,  // the text ends inside a character that is valid so far
};

struct Utf8Step {
  Utf8Status status;
  uint8_t length;       // bytes: of the character, or of the maximal part to be replaced; 1..4
  char32_t code_point;  // kValid only, else 0
};

// The character at `text[at]`. Requires: at < text.size().
Utf8Step NextUtf8(std::string_view text, size_t at);

// Bytes from `at` on that are valid UTF-8: text[at, result) is valid and maximal.
size_t ValidUtf8End(std::string_view text, size_t at);

// Appends the UTF-8 form of `code_point`. Requires: a Unicode scalar value.
void AppendUtf8(char32_t code_point, std::string& out);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// `text` for a message or a log line: valid UTF-8, on one line, without the control characters that
// a terminal obeys (C0, DEL, C1); at most `max_bytes` and an ellipsis.
std::string ForMessage(std::string_view text, size_t max_bytes = 60);

}  // namespace kvrm
