#include "bench/replay/counted_words.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvrm::cli {

PromptWords WordsCountedBy(const Tokenizer& tokenizer) {
  const PromptWords all;
  std::vector<std::string_view> kept;
  for (const std::string_view word : all.words()) {
    const std::string twice = " " + std::string(word) + " " + std::string(word);
    if (tokenizer.Encode(twice, SpecialTokens::kAsText).size() == 2) kept.push_back(word);
  }
  return kept.empty() ? all : PromptWords(std::move(kept));
}

}  // namespace kvrm::cli
