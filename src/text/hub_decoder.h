// The decoder of a tokenizer.json: whether it puts a text together as the tokenizers here do, which
// they do by their kind alone. Part of the reader of tokenizer.json.
#pragma once

#include <boost/json/fwd.hpp>

#include "base/result.h"
#include "base/tokenizer_spec.h"

namespace kvrm {

// `decoder`: null where absent, which is taken as that of the kind; `byte_fallback`: what the model
// says. Errors: a decoder that would give other text, by its path.
Status CheckHubDecoder(const boost::json::value& decoder, const TokenizerSpec& spec,
                       bool byte_fallback);

}  // namespace kvrm
