// The tokenizer files of a hub folder, tokenizer.json and tokenizer_config.json, as a
// TokenizerSpec. Only what Tokenizer can do is accepted; anything else is refused by its name and
// value, so that no text is ever tokenized by other rules than the file's. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/tokenizer_spec.h"

namespace kvrm {

// `config`: the text of tokenizer_config.json, empty = none. Memory is bounded by the texts' size.
// Errors: 4 GiB or more, no JSON (or nested deeper than 32 levels), a field that is missing or of
// another type, an id that is taken or out of range, a model, normalizer, pre-tokenizer or option
// that is not offered.
Result<TokenizerSpec> ReadTokenizerJson(std::string_view json, std::string_view config);

// The files of `folder`: tokenizer.json; tokenizer_config.json and chat_template.jinja where they
// are there (the latter stands in for the template of the former).
Result<TokenizerSpec> ReadTokenizerFolder(const std::string& folder);

}  // namespace kvrm
