// Unicode normalisation form C, for the tokenizers that ask for it. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace kvrm {

// Writes the NFC form of `text` to `out` and returns true; returns false when `text` is to be used
// as it is, because it is ASCII. Invalid UTF-8 is copied unchanged. Time is near linear, whatever
// the text: also of runs of combining marks, and of what decomposes into marks, however long.
bool NormalizeNfc(std::string_view text, std::string& out);

}  // namespace kvrm
