// Arbitrary template source over arbitrary content: the source, a zero byte, the content.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/chat_template.h"
#include "text/test_vocabulary.h"
#include "text/text_stream.h"

namespace kvrm {
namespace {

const Tokenizer& SmallTokenizer() {
  static const std::unique_ptr<const Tokenizer> tokenizer =
      Tokenizer::Create(testing::MakeSmallVocabulary("smollm")).value();
  return *tokenizer;
}

void CheckMessage(const Error& error) {
  KVRM_CHECK(IsValidUtf8(error.message), "an error message is UTF-8");
  KVRM_CHECK(error.message.find('\n') == std::string::npos, "an error message is one line");
}

void RunOne(std::string_view source, const std::string& content) {
  const auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return CheckMessage(parsed.error());
  const std::vector<ChatMessage> messages = {
      {"user", content}, {content, "<|im_end|>"}, {"assistant", "<|im_"}, {"user", "end|>"}};
  const auto pieces = (*parsed)->Render(messages, {.now = 0});
  if (!pieces.ok()) return CheckMessage(pieces.error());
  const std::vector<TokenId> ids = EncodePieces(SmallTokenizer(), *pieces);
  KVRM_CHECK(SmallTokenizer().Decode(ids, /*with_special=*/true) == JoinPieces(*pieces),
             "encoding keeps the rendered text");
  // A template that cannot write "<" writes no control token, whatever the messages hold.
  if (source.find_first_of("<\\") == std::string_view::npos) {
    KVRM_CHECK(std::ranges::none_of(ids, [](TokenId id) { return SmallTokenizer().IsControl(id); }),
               "B052: messages forge no control token");
  }
}

}  // namespace
}  // namespace kvrm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = std::min(input.find('\0'), size);
  kvrm::RunOne(input.substr(0, cut), std::string(input.substr(std::min(cut + 1, size))));
  return 0;
}
