// Arbitrary bytes as a safetensors file and as a config.json: both end in a value or an error, and
// every byte that a tensor claims can be read.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "model/hub_config.h"
#include "model/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  const auto tensors = kvrm::ParseSafetensors({bytes, size});
  unsigned sum = 0;
  for (size_t i = 0; tensors.ok() && i < tensors->size(); ++i) {
    for (const std::byte byte : (*tensors)[i].data) sum += std::to_integer<unsigned>(byte);
    (void)kvrm::GgufTensorName((*tensors)[i].name, (sum & 1) != 0);
  }
  (void)kvrm::ReadHubConfig({reinterpret_cast<const char*>(data), size}, "fuzz");
  return 0;
}
