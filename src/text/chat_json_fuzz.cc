// Arbitrary bytes as a conversation: refused in one line, or rendered by a template that shows all
// of it.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "text/chat_json.h"
#include "text/chat_template.h"
#include "text/text_stream.h"

namespace kvrm {
namespace {

const ChatTemplate& Whole() {
  static const std::unique_ptr<const ChatTemplate> whole =
      ChatTemplate::Parse(
          "{% for m in messages %}{{ m|tojson }}{% endfor %}{{ tools|tojson }}{{ documents|tojson "
          "}}")
          .value();
  return *whole;
}

void RunOne(std::string_view text) {
  const auto conversation = ParseConversation(text);
  if (!conversation.ok()) {
    KVRM_CHECK(IsValidUtf8(conversation.error().message), "an error message is UTF-8");
    return;
  }
  const auto pieces = Whole().Render(conversation->messages, conversation->options);
  if (!pieces.ok()) return;
  std::string shown;
  for (const RenderedPiece& piece : *pieces) shown += piece.from_user ? "u" : "t";
  KVRM_CHECK(conversation->messages.empty() || shown.find('u') != std::string::npos,
             "what a request brought is marked as the user's");
}

}  // namespace
}  // namespace kvrm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvrm::RunOne(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
