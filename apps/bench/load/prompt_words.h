// Prompts of a given number of tokens, made of common English words: behind a blank each of them is
// one token in the usual byte-pair and SentencePiece vocabularies, so words are tokens. Where the
// server tokenizes, the words that are not one token with it are left out (server_probe.h).
//
// Thread-safe: constant after construction.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/load/random.h"

namespace kvrm::cli {

class PromptWords {
 public:
  PromptWords();  // all words
  // Requires: not empty.
  explicit PromptWords(std::vector<std::string_view> words);

  // `count` words, one blank between two; "" for 0. The same for equal `random`.
  std::string Text(uint32_t count, Random random) const;
  const std::vector<std::string_view>& words() const { return words_; }

 private:
  std::vector<std::string_view> words_;
};

}  // namespace kvrm::cli
