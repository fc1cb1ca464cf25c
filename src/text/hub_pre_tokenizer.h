// Which pre-tokenizer of the table (pre_tokenizer.cc) a tokenizer.json describes. The hub's files
// spell their patterns out; only those that are known to the letter are accepted, because a pattern
// of a stranger may take any time on any text. Part of the reader of tokenizer.json.
#pragma once

#include <boost/json/fwd.hpp>
#include <string>

#include "base/result.h"
#include "base/tokenizer_spec.h"

namespace kvrm {

// Reads tokenizer.json's `normalizer` and `pre_tokenizer` (null where absent) into model, pre, nfc
// and the rules for blanks of `spec`. Errors: what is not offered, by name.
Status ReadHubPreTokenizer(const boost::json::value& normalizer,
                           const boost::json::value& pre_tokenizer, TokenizerSpec& spec);

}  // namespace kvrm
