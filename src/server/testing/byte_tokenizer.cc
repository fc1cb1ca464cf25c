#include "server/testing/byte_tokenizer.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "server/testing/copy_executor.h"

namespace kvrm::testing {
namespace {

// GPT-2's printable stand-in for a byte: itself where it prints, else from U+0100 on.
std::string ByteCharacter(int byte, int& next_free) {
  const bool prints =
      (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
  const int code = prints ? byte : 0x100 + next_free++;
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

constexpr const char* kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

}  // namespace

std::unique_ptr<const Tokenizer> MakeByteTokenizer() {
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = "gpt-2";
  spec.tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  spec.types.assign(3, TokenType::kControl);
  int next_free = 0;
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.push_back(ByteCharacter(byte, next_free));
    spec.types.push_back(TokenType::kNormal);
  }
  while (spec.tokens.size() < kTestVocab) {
    spec.tokens.push_back("<unused" + std::to_string(spec.tokens.size()) + ">");
    spec.types.push_back(TokenType::kUnused);
  }
  spec.eos = kTurnEnd;
  spec.bos = kTurnBegin;
  auto tokenizer = Tokenizer::Create(std::move(spec));
  KVRM_CHECK(tokenizer.ok(), "the tests' vocabulary is a tokenizer");
  return std::move(tokenizer).value();
}

std::unique_ptr<const ChatTemplate> MakeChatTemplate() {
  auto parsed = ChatTemplate::Parse(kChatMl);
  KVRM_CHECK(parsed.ok(), "the tests' template can be parsed");
  return std::move(parsed).value();
}

}  // namespace kvrm::testing
