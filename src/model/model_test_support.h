// Model files for tests: random ones, and random ones with one thing changed. Test code only.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/gguf.h"
#include "model/gguf_writer.h"
#include "model/random_model.h"

namespace kvrm::testing {

// A parsed file with the bytes that it views. `file` is null when parsing failed.
struct MemoryFile {
  std::vector<std::byte> bytes;
  std::unique_ptr<const GgufFile> file;
  std::string error;
};

inline MemoryFile OpenBytes(std::vector<std::byte> bytes) {
  MemoryFile memory{std::move(bytes), nullptr, ""};
  auto file = GgufFile::Parse(memory.bytes, "test.gguf");
  if (file.ok()) {
    memory.file = std::move(file).value();
  } else {
    memory.error = file.error().message;
  }
  return memory;
}

inline MemoryFile OpenRandom(const RandomModelSpec& spec) {
  return OpenBytes(WriteRandomModel(spec));
}

// A random model whose keys and tensors can be changed one by one before it is written again.
class EditedModel {
 public:
  explicit EditedModel(const RandomModelSpec& spec) {
    const MemoryFile memory = OpenRandom(spec);
    keys_ = memory.file->metadata();
    for (const GgufTensor& tensor : memory.file->tensors()) {
      tensors_.push_back(
          {tensor.name, tensor.type, tensor.dims, {tensor.data.begin(), tensor.data.end()}});
    }
  }

  struct Tensor {
    std::string name;
    DType type;
    std::vector<uint64_t> dims;
    std::vector<std::byte> blocks;
  };

  // Adds the key or replaces its value.
  template <class T>
  EditedModel& Set(const std::string& key, T value) {
    Remove(key);
    keys_.emplace_back(key, GgufValue{std::move(value)});
    return *this;
  }
  EditedModel& Remove(std::string_view key) {
    std::erase_if(keys_, [&](const auto& entry) { return entry.first == key; });
    return *this;
  }
  EditedModel& Drop(std::string_view tensor) {
    std::erase_if(tensors_, [&](const Tensor& t) { return t.name == tensor; });
    return *this;
  }
  // A tensor of zero bytes, added or in place of the one of that name.
  EditedModel& Put(const std::string& name, DType type, std::vector<uint64_t> dims) {
    uint64_t values = 1;
    for (const uint64_t dim : dims) values *= dim;
    const DTypeInfo& info = GetDType(type);
    const size_t bytes = values / info.block_values * info.block_bytes;
    return Put({name, type, std::move(dims), std::vector<std::byte>(bytes)});
  }
  EditedModel& Put(Tensor tensor) {
    Drop(tensor.name);
    tensors_.push_back(std::move(tensor));
    return *this;
  }

  MemoryFile Open() const {
    GgufWriter writer;
    for (const auto& [key, value] : keys_) {
      if (const auto* u = std::get_if<uint64_t>(&value.data)) {
        writer.AddUint32(key, static_cast<uint32_t>(*u));
      } else if (const auto* d = std::get_if<double>(&value.data)) {
        writer.AddFloat32(key, static_cast<float>(*d));
      } else if (const auto* b = std::get_if<bool>(&value.data)) {
        writer.AddBool(key, *b);
      } else if (const auto* s = std::get_if<std::string>(&value.data)) {
        writer.AddString(key, *s);
      } else if (const auto* list = std::get_if<GgufValue::Strings>(&value.data)) {
        writer.AddStrings(key, *list);
      } else if (const auto* integers = std::get_if<IntegerList>(&value.data)) {
        const std::vector<int64_t> wide = integers->ToVector();
        writer.AddInt32s(key, {wide.begin(), wide.end()});
      }
    }
    for (const Tensor& tensor : tensors_) {
      writer.AddTensor(tensor.name, tensor.type, tensor.dims, tensor.blocks);
    }
    return OpenBytes(writer.Finish());
  }

 private:
  std::vector<std::pair<std::string, GgufValue>> keys_;
  std::vector<Tensor> tensors_;
};

}  // namespace kvrm::testing
