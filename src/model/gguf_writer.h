// Writes GGUF v3 files into memory: random models for tests and benches, crafted ones for the
// reader's tests. Thread-compatible. Checks nothing but its own use: what is asked for is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/string_list.h"
#include "tensor/dtype.h"

namespace kvrm {

class GgufWriter {
 public:
  void AddUint32(std::string_view key, uint32_t value);
  void AddFloat32(std::string_view key, float value);
  void AddBool(std::string_view key, bool value);
  void AddString(std::string_view key, std::string_view value);
  void AddStrings(std::string_view key, const StringList& values);
  void AddInt32s(std::string_view key, const std::vector<int32_t>& values);
  void AddUint8s(std::string_view key, const std::vector<uint8_t>& values);
  void AddBools(std::string_view key, const std::vector<uint8_t>& values);  // each 0 or 1

  // `dims` innermost first; `blocks`: the tensor's bytes.
  void AddTensor(std::string_view name, DType type, const std::vector<uint64_t>& dims,
                 std::vector<std::byte> blocks);

  // The whole file: header, keys and tensors in the order of the calls, data aligned to 32 bytes.
  std::vector<std::byte> Finish() const;

 private:
  struct Tensor {
    std::string name;
    DType type;
    std::vector<uint64_t> dims;
    std::vector<std::byte> blocks;
  };
  std::vector<std::byte> keys_;  // encoded
  uint64_t num_keys_ = 0;
  std::vector<Tensor> tensors_;
};

}  // namespace kvrm
