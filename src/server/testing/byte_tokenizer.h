// The real tokenizer over a vocabulary of control tokens and bytes, and a chat template that goes
// with it. Ids: copy_executor.h. Test code only.
#pragma once

#include <memory>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace kvrm::testing {

std::unique_ptr<const Tokenizer> MakeByteTokenizer();
// ChatML, as SmolLM2 and Qwen2 have it.
std::unique_ptr<const ChatTemplate> MakeChatTemplate();

}  // namespace kvrm::testing
