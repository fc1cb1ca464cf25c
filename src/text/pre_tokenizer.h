// Pre-tokenizers: the cut of a text into pieces that merges never cross. One pattern a kind, in a
// table. Immutable after creation; thread-safe (each Split brings its own match state).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvrm {

struct PreTokenizerTraits {
  bool normalizes_nfc = false;     // the text is brought to NFC before the cut
  bool whole_piece_first = false;  // a piece that is a token as a whole is not merged up to it
  bool adds_start_token = false;   // before a text, where a GGUF file does not say
};

class PreTokenizer {
 public:
  // `name`: GGUF's tokenizer.ggml.pre, one of the table's or another name for one. Errors: an
  // unknown name, with the list of what is known.
  static Result<std::unique_ptr<const PreTokenizer>> Create(std::string_view name);
  virtual ~PreTokenizer() = default;

  // Replaces `ends` by the ends of all pieces in order: piece i is text[ends[i - 1], ends[i]), none
  // empty, the last ends at text.size(). Bytes that are not UTF-8 never fail: each maximal run of
  // them is a piece of its own, and the text before and after it is cut as if the text ended and
  // began there.
  virtual void Split(std::string_view text, std::vector<size_t>& ends) const = 0;

  const PreTokenizerTraits& traits() const { return traits_; }

  // What Create knows, in order, and the patterns of one of them, a pass each, for tests that count
  // the steps of a match. Requires: `name` is one of Names().
  static std::vector<std::string_view> Names();
  static std::vector<std::string_view> PatternsOf(std::string_view name);

 protected:
  PreTokenizerTraits traits_;
};

}  // namespace kvrm
