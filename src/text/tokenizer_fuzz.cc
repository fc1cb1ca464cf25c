// Arbitrary bytes through the tokenizer and back. The first byte chooses the pre-tokenizer, the
// second where control tokens are allowed.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/test_vocabulary.h"
#include "text/text_stream.h"
#include "text/tokenizer.h"

namespace kvrm {
namespace {

constexpr std::array<const char*, 8> kKinds{
    "smollm", "gpt-2", "llama-bpe", "qwen2", "deepseek-coder", "deepseek-llm", "llama", "gemma4"};

TokenizerSpec SpecOf(std::string_view kind) {
  if (kind == "llama" || kind == "gemma4") {
    return testing::MakeSmallCharVocabulary(std::string(kind));
  }
  return testing::MakeSmallVocabulary(std::string(kind));
}

const Tokenizer& TokenizerOf(size_t kind) {
  static const auto all = [] {
    std::vector<std::unique_ptr<const Tokenizer>> tokenizers;
    for (const char* name : kKinds) {
      tokenizers.push_back(Tokenizer::Create(SpecOf(name)).value());
    }
    return tokenizers;
  }();
  return *all[kind];
}

void RunOne(size_t kind, size_t control_end, std::string_view text) {
  const Tokenizer& tokenizer = TokenizerOf(kind);
  // NFC changes them, and U+2581 is read as a blank.
  const bool by_characters = tokenizer.spec().model != "gpt2";
  const bool keeps_bytes = kKinds[kind] != std::string_view("qwen2") &&
                           !(by_characters && text.find("\u2581") != std::string_view::npos);
  const std::vector<TokenId> ids = tokenizer.Encode(text, SpecialTokens::kAsText);
  const std::string decoded = tokenizer.Decode(ids);
  KVRM_CHECK(!keeps_bytes || decoded == text, "decode(encode(x)) == x");
  KVRM_CHECK(std::ranges::none_of(ids, [&](TokenId id) { return tokenizer.IsControl(id); }),
             "text forges no control token");

  const ControlRange control{0, std::min(control_end, text.size())};
  const std::vector<TokenId> mixed = tokenizer.EncodeRanges(text, {&control, 1});
  KVRM_CHECK(!keeps_bytes || tokenizer.Decode(mixed, /*with_special=*/true) == text,
             "decode(encode(x)) == x with control tokens");

  TextStream stream(tokenizer, {});
  std::string streamed;
  for (const TokenId id : ids) {
    const std::string sent = stream.Push(id);
    KVRM_CHECK(IsValidUtf8(sent), "only whole characters are sent");
    streamed += sent;
  }
  streamed += stream.Finish();
  std::string bytes;
  for (const TokenId id : ids) bytes += tokenizer.TokenBytes(id, /*with_special=*/false);
  KVRM_CHECK(streamed == SanitizeUtf8(bytes), "the stream is the text of the tokens");
}

}  // namespace
}  // namespace kvrm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  kvrm::RunOne(data[0] % kvrm::kKinds.size(), data[1], text);
  return 0;
}
