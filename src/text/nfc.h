// Unicode normalisation form C, for the tokenizers that ask for it. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace kvrm {

// Writes the NFC form of `text` to `out` and returns true; returns false when `text` is to be used
// as it is: it is ASCII, or one of its runs of combining marks is longer than 1,024 (ordering such
// a run takes the library quadratic time; Unicode's stream-safe format stops at 30). Invalid UTF-8
// is copied unchanged.
bool NormalizeNfc(std::string_view text, std::string& out);

}  // namespace kvrm
