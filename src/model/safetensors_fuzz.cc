// Arbitrary bytes as each file of a folder, safetensors, index, config.json and
// generation_config.json: all end in a value or an error, and every byte that a tensor claims can
// be read.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "model/generation_defaults.h"
#include "model/hub_config.h"
#include "model/safetensors.h"
#include "model/safetensors_index.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  const auto tensors = kvrm::ParseSafetensors({bytes, size});
  unsigned sum = 0;
  for (size_t i = 0; tensors.ok() && i < tensors->size(); ++i) {
    for (const std::byte byte : (*tensors)[i].data) sum += std::to_integer<unsigned>(byte);
    (void)kvrm::GgufTensorName((*tensors)[i].name, (sum & 1) != 0);
  }
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)kvrm::ReadHubConfig(text, "fuzz");
  (void)kvrm::ParseSafetensorsIndex(text);
  (void)kvrm::ReadHubGeneration(text);
  return 0;
}
