// From a stream of token ids to text that may be sent: never half a UTF-8 character, never a prefix
// of a stop string. One object per generated choice; thread-compatible.
//
// Law (stops armed throughout): the concatenation of all Push() and Finish() results equals the
// bytes of all tokens one after the other, cut before the first stop string, whatever the token
// boundaries. Invalid UTF-8 becomes U+FFFD, maximal subparts, as Python's errors="replace" does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace kvrm {

class TextStream {
 public:
  // `tokenizer` outlives the stream. `stops`: texts that end the generation, none empty.
  TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops);

  // Whether a stop string that is complete now ends the text; at first it does. Without, what looks
  // like the beginning of one is still held, so that one which a later token completes is found.
  void ArmStops(bool armed) { armed_ = armed; }
  // Adds a token; returns the text that can be sent now (may be empty).
  std::string Push(TokenId id);
  // Adds raw bytes instead of a token (same rules).
  std::string PushBytes(std::string_view bytes);
  // The generation ended: returns what was held back (nothing when a stop matched).
  std::string Finish();

  bool stopped() const { return stopped_; }  // a stop string matched; later pushes give ""
  const std::string& matched_stop() const { return matched_stop_; }

 private:
  std::string Release(bool final);

  const Tokenizer& tokenizer_;
  std::vector<std::string> stops_;
  std::string bytes_;  // undecoded tail: an incomplete character
  std::string held_;   // decoded text that may be the beginning of a stop string
  bool armed_ = true;
  bool stopped_ = false;
  std::string matched_stop_;
};

// True when `text` is valid UTF-8 (no surrogates, no overlong forms).
bool IsValidUtf8(std::string_view text);
// `text` with each maximal invalid part replaced by U+FFFD.
std::string SanitizeUtf8(std::string_view text);

}  // namespace kvrm
