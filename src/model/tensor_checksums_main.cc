// What the tensors of a model file are as float32, for comparison with other readers of the format
// (tools/check-text weights): tensor_checksums MODEL prints a line a tensor, name, type, number of
// values and the CRC-32 of their bytes.
#include <algorithm>
#include <boost/crc.hpp>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "model/gguf.h"
#include "tensor/dtype.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: tensor_checksums MODEL\n", stderr);
    return 2;
  }
  const auto file = kvrm::GgufFile::Open(argv[1]);
  if (!file.ok()) {
    std::fprintf(stderr, "%s\n", file.error().message.c_str());
    return 1;
  }
  constexpr uint64_t kChunk = uint64_t{1} << 16;  // values; whole blocks of every type
  std::vector<float> values(kChunk);
  for (const kvrm::GgufTensor& tensor : (*file)->tensors()) {
    const kvrm::DTypeInfo& info = kvrm::GetDType(tensor.type);
    if (!info.readable) {
      std::fprintf(stderr, "%s is not readable\n", tensor.name.c_str());
      return 1;
    }
    boost::crc_32_type crc;
    for (uint64_t at = 0; at < tensor.num_values; at += kChunk) {
      const uint64_t count = std::min(kChunk, tensor.num_values - at);
      kvrm::Dequantize(tensor.type, tensor.data.data() + at / info.block_values * info.block_bytes,
                       count, values.data());
      crc.process_bytes(values.data(), count * sizeof(float));
    }
    std::printf("%s %s %llu %08x\n", tensor.name.c_str(), std::string(info.name).c_str(),
                static_cast<unsigned long long>(tensor.num_values),
                static_cast<unsigned>(crc.checksum()));
  }
  return 0;
}
