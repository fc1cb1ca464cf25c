// Fuzz target: bodies of /tokenize, /detokenize and /apply-template. Whatever comes in, the answer
// is JSON, and what was tokenized comes back as its text. Seeds: tests/fuzz/convert_body.
#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/testing/byte_tokenizer.h"
#include "server/text_routes.h"
#include "text/text_stream.h"

namespace kvrm {
namespace {

struct Model {
  std::unique_ptr<const Tokenizer> tokenizer = testing::MakeByteTokenizer();
  std::unique_ptr<const ChatTemplate> chat_template = testing::MakeChatTemplate();
  PromptEncoder encoder{*tokenizer, chat_template.get(), 256};
};

boost::json::value Parsed(const std::string& text) {
  KVRM_CHECK(IsValidUtf8(text), "answers are valid UTF-8");
  boost::json::error_code ec;
  boost::json::value value = boost::json::parse(text, ec);
  KVRM_CHECK(!ec, "answers are JSON");
  return value;
}

// The parsed answer; null for an error, which is checked.
boost::json::value Ask(Route route, std::string_view body, const PromptEncoder& encoder) {
  const auto answer = Convert(route, body, encoder);
  if (const auto* text = std::get_if<std::string>(&answer)) return Parsed(*text);
  const ApiError& error = std::get<ApiError>(answer);
  KVRM_CHECK(error.status == 400, "a body's error is a 400");
  Parsed(ErrorBody(error));
  return nullptr;
}

}  // namespace
}  // namespace kvrm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const kvrm::Model model;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  kvrm::Ask(kvrm::Route::kDetokenize, body, model.encoder);
  kvrm::Ask(kvrm::Route::kApplyTemplate, body, model.encoder);
  const boost::json::value tokens = kvrm::Ask(kvrm::Route::kTokenize, body, model.encoder);
  if (tokens.is_null() || tokens.at("count").as_int64() == 0) return 0;
  if (!tokens.at("tokens").as_array()[0].is_int64()) return 0;  // with pieces
  const auto text =
      kvrm::Ask(kvrm::Route::kDetokenize, boost::json::serialize(tokens), model.encoder);
  KVRM_CHECK(text.is_object(), "ids of the tokenizer can be detokenized");
  return 0;
}
