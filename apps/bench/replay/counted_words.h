// The words of prompts, counted by a tokenizer of this process. Thread-safe.
#pragma once

#include "bench/load/prompt_words.h"
#include "text/tokenizer.h"

namespace kvrm::cli {

// Those that the tokenizer has one token for, behind a blank; all where it has none.
PromptWords WordsCountedBy(const Tokenizer& tokenizer);

}  // namespace kvrm::cli
