// Where the tokenizer and the chat template of a command come from. Thread-safe.
#pragma once

#include <string>

#include "base/result.h"
#include "base/tokenizer_spec.h"
#include "options/option_values.h"

namespace kvrm::cli {

// The tokenizer of the model that `-m` or `-hf` names, a GGUF file or a folder with a
// tokenizer.json; no weights are read.
Result<TokenizerSpec> TokenizerSpecOf(const OptionValues& values);
// The same of a model's path.
Result<TokenizerSpec> TokenizerSpecAt(const std::string& path);

// The source of the chat template: what --chat-template names (a family, or a file), else the
// model's own; empty = none. Errors: the file cannot be read, no family of that name.
Result<std::string> ChatTemplateSource(const OptionValues& values, const TokenizerSpec& spec);

}  // namespace kvrm::cli
