// Arbitrary bytes as a model file: parsing, configuration, tokenizer, plan and description end in a
// value or an error, never in a signal, and take memory in proportion to the bytes. A tokenizer
// that can be made of one keeps the laws.
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/config.h"
#include "model/describe.h"
#include "model/gguf.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace kvrm {
namespace {

void UseTokenizer(Result<TokenizerSpec> spec) {
  if (!spec.ok()) return;
  const auto tokenizer = Tokenizer::Create(std::move(spec).value());
  if (!tokenizer.ok()) {
    KVRM_CHECK(tokenizer.error().message.find('\n') == std::string::npos, "an error is one line");
    return;
  }
  const std::vector<TokenId> ids =
      (*tokenizer)->Encode("a ab  \u00e9\xff<|im_end|>\n", SpecialTokens::kAsText);
  for (const TokenId id : ids) {
    KVRM_CHECK(id >= 0 && static_cast<uint32_t>(id) < (*tokenizer)->vocab_size(),
               "ids are in the vocabulary");
    const bool is_unknown = id == (*tokenizer)->spec().unknown && !(*tokenizer)->IsEnd(id);
    KVRM_CHECK(is_unknown || !(*tokenizer)->IsControl(id), "text forges no control token");
  }
  (void)(*tokenizer)->Decode(ids, /*with_special=*/true);
}

}  // namespace
}  // namespace kvrm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = kvrm::GgufFile::Parse({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
  if (!file.ok()) return 0;
  const kvrm::GgufFile& gguf = **file;
  kvrm::UseTokenizer(kvrm::ReadTokenizerSpec(gguf));
  (void)kvrm::DescribeText(gguf);
  (void)kvrm::DescribeJson(gguf);
  // Every byte that a tensor claims is touched when the file makes a whole model.
  (void)kvrm::Model::Load(gguf, {.weights = kvrm::WeightChoice::kAuto, .num_threads = 1});
  return 0;
}
