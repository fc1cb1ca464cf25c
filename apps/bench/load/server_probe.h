// Asks a server, before the load, what it serves and how its tokenizer counts. Thread-compatible.
#pragma once

#include "base/result.h"
#include "bench/load/load_run.h"
#include "bench/load/prompt_words.h"

namespace kvrm::cli {

struct ServerFacts {
  std::string model;            // the first of /models
  uint32_t context_tokens = 0;  // 0: it does not say
};
// Errors: the server cannot be reached, or its answer is no list of models.
Result<ServerFacts> AskModels(const LoadTarget& target);

// The body of a GET; "" where there is none.
std::string AskText(const LoadTarget& target, const std::string& path);

// The words that the server's /tokenize counts as one token each; all of them when it has no such
// route (`counted` false: prompt lengths are an estimate).
struct CountedWords {
  PromptWords words;
  bool counted = false;
};
CountedWords CountWords(const LoadTarget& target);

}  // namespace kvrm::cli
