// Arbitrary bytes as a model file: parsing, configuration, tokenizer, plan and description end in a
// value or an error, never in a signal, and take memory in proportion to the bytes.
#include <cstddef>
#include <cstdint>

#include "model/config.h"
#include "model/describe.h"
#include "model/gguf.h"
#include "model/model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = kvrm::GgufFile::Parse({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
  if (!file.ok()) return 0;
  const kvrm::GgufFile& gguf = **file;
  (void)kvrm::ReadTokenizerSpec(gguf);
  (void)kvrm::DescribeText(gguf);
  (void)kvrm::DescribeJson(gguf);
  // Every byte that a tensor claims is touched when the file makes a whole model.
  (void)kvrm::Model::Load(gguf, {.weights = kvrm::WeightChoice::kAuto, .num_threads = 1});
  return 0;
}
