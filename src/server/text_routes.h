// /tokenize, /detokenize, /apply-template: between text and token ids, in the shapes of
// llama-server and of vLLM. Pure functions of the body; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "server/prompt_encoder.h"
#include "server/routes.h"

namespace kvrm {

// The answer of `route`, one of kind kConvert, to `body`.
std::variant<std::string, ApiError> Convert(Route route, std::string_view body,
                                            const PromptEncoder& encoder);

// /tokenizer_info: what a client without tokenizer files needs.
std::string TokenizerInfoBody(const PromptEncoder& encoder);

// The text of a control token, "" for none.
std::string TokenText(const Tokenizer& tokenizer, TokenId id);

}  // namespace kvrm
