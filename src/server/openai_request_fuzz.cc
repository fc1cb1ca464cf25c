// Fuzz target: request bodies. Whatever comes in, parsing ends in a request within its bounds or in
// an error that is valid JSON. Seeds: tests/fuzz/json_body.
#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "server/openai_types.h"
#include "text/text_stream.h"

namespace kvrm {
namespace {

void CheckError(const ApiError& error) {
  KVRM_CHECK(error.status == 400, "a body's error is a 400");
  const std::string body = ErrorBody(error);
  KVRM_CHECK(IsValidUtf8(body), "errors are valid UTF-8");
  boost::json::error_code ec;
  boost::json::parse(body, ec);
  KVRM_CHECK(!ec, "errors are JSON");
}

void CheckRequest(const ParsedRequest& r) {
  KVRM_CHECK(CheckSampling(r.sampling).ok(), "what passes has sampling parameters in range");
  KVRM_CHECK(r.n >= 1 && r.n <= kMaxN, "n in range");
  const uint32_t fewest = HoldsMessages(r.api) ? 1 : 0;  // a prompt may be scored alone
  KVRM_CHECK(!r.max_tokens || *r.max_tokens >= fewest,
             "an answer is asked for, or a prompt's score");
  KVRM_CHECK(!r.max_tokens || r.min_tokens <= *r.max_tokens, "min_tokens <= max_tokens");
  KVRM_CHECK(!r.logprobs || *r.logprobs <= kMaxLogprobs, "logprobs in range");
  KVRM_CHECK(r.timeout_us >= 0 && r.timeout_us <= kMaxTimeoutSeconds * 1'000'000,
             "timeout in range");
  KVRM_CHECK(r.stop.size() <= kMaxStops, "stop strings bounded");
  for (const auto& stop : r.stop) {
    KVRM_CHECK(!stop.empty() && IsValidUtf8(stop), "stop strings are text");
  }
  for (const auto& message : r.messages) {
    KVRM_CHECK(IsValidUtf8(message.content), "content is valid UTF-8");
  }
  for (const auto& prompt : r.prompts) {
    const auto* text = std::get_if<std::string>(&prompt);
    KVRM_CHECK(text == nullptr || IsValidUtf8(*text), "prompts are valid UTF-8");
    const auto* ids = std::get_if<std::vector<TokenId>>(&prompt);
    if (ids == nullptr) continue;
    for (const TokenId id : *ids) KVRM_CHECK(id >= 0, "ids are not negative");
  }
  const size_t inputs = HoldsMessages(r.api) ? r.messages.size() : r.prompts.size();
  KVRM_CHECK(inputs >= 1, "there is something to answer");
}

}  // namespace
}  // namespace kvrm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (uint32_t i = 0; i < kvrm::kNumApis; ++i) {
    const auto api = static_cast<kvrm::Api>(i);
    const auto outcome = kvrm::ParseRequest(api, body, {});
    if (const auto* error = std::get_if<kvrm::ApiError>(&outcome)) {
      kvrm::CheckError(*error);
    } else {
      kvrm::CheckRequest(std::get<kvrm::ParsedRequest>(outcome));
    }
  }
  return 0;
}
