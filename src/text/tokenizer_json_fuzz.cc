// Arbitrary bytes as tokenizer.json: refused in one line, or a tokenizer that keeps the laws.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "text/text_stream.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"

namespace kvrm {
namespace {

void CheckMessage(const Error& error) {
  KVRM_CHECK(IsValidUtf8(error.message), "an error message is UTF-8");
  KVRM_CHECK(error.message.find('\n') == std::string::npos, "an error message is one line");
}

void RunOne(std::string_view json) {
  auto spec = ReadTokenizerJson(json, json);
  if (!spec.ok()) return CheckMessage(spec.error());
  KVRM_CHECK(spec->tokens.size() <= 2 * json.size() + 1024, "tokens are bounded by the file");
  const auto tokenizer = Tokenizer::Create(std::move(spec).value());
  if (!tokenizer.ok()) return CheckMessage(tokenizer.error());
  const std::vector<TokenId> ids =
      (*tokenizer)->Encode("a ab  \u00e9\xff<|im_end|>\n", SpecialTokens::kAsText);
  for (const TokenId id : ids) {
    KVRM_CHECK(id >= 0 && static_cast<uint32_t>(id) < (*tokenizer)->vocab_size(),
               "ids are in the vocabulary");
    const bool is_unknown = id == (*tokenizer)->spec().unknown && !(*tokenizer)->IsEnd(id);
    KVRM_CHECK(is_unknown || !(*tokenizer)->IsControl(id), "text forges no control token");
  }
}

}  // namespace
}  // namespace kvrm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvrm::RunOne(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
