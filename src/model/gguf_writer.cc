#include "model/gguf_writer.h"

#include <cstring>

namespace kvrm {
namespace {

constexpr uint32_t kVersion = 3;
constexpr size_t kAlignment = 32;
// The format's numbers of the value types that are written here.
constexpr uint32_t kUint8 = 0, kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kString = 8,
                   kArray = 9;

void PutBytes(const void* data, size_t size, std::vector<std::byte>* out) {
  const auto* bytes = static_cast<const std::byte*>(data);
  out->insert(out->end(), bytes, bytes + size);
}

template <class T>
void Put(T value, std::vector<std::byte>* out) {
  PutBytes(&value, sizeof value, out);
}

void PutString(std::string_view text, std::vector<std::byte>* out) {
  Put<uint64_t>(text.size(), out);
  PutBytes(text.data(), text.size(), out);
}

void Align(std::vector<std::byte>* out) {
  out->resize((out->size() + kAlignment - 1) / kAlignment * kAlignment);
}

void PutKey(std::string_view key, uint32_t type, std::vector<std::byte>* out) {
  PutString(key, out);
  Put(type, out);
}

void PutArrayKey(std::string_view key, uint32_t item_type, uint64_t count,
                 std::vector<std::byte>* out) {
  PutKey(key, kArray, out);
  Put(item_type, out);
  Put(count, out);
}

}  // namespace

void GgufWriter::AddUint32(std::string_view key, uint32_t value) {
  ++num_keys_;
  PutKey(key, kUint32, &keys_);
  Put(value, &keys_);
}

void GgufWriter::AddFloat32(std::string_view key, float value) {
  ++num_keys_;
  PutKey(key, kFloat32, &keys_);
  Put(value, &keys_);
}

void GgufWriter::AddBool(std::string_view key, bool value) {
  ++num_keys_;
  PutKey(key, kBool, &keys_);
  Put(static_cast<uint8_t>(value), &keys_);
}

void GgufWriter::AddString(std::string_view key, std::string_view value) {
  ++num_keys_;
  PutKey(key, kString, &keys_);
  PutString(value, &keys_);
}

void GgufWriter::AddStrings(std::string_view key, const StringList& values) {
  ++num_keys_;
  PutArrayKey(key, kString, values.size(), &keys_);
  for (const std::string_view value : values) PutString(value, &keys_);
}

void GgufWriter::AddInt32s(std::string_view key, const std::vector<int32_t>& values) {
  ++num_keys_;
  PutArrayKey(key, kInt32, values.size(), &keys_);
  for (const int32_t value : values) Put(value, &keys_);
}

void GgufWriter::AddUint8s(std::string_view key, const std::vector<uint8_t>& values) {
  ++num_keys_;
  PutArrayKey(key, kUint8, values.size(), &keys_);
  PutBytes(values.data(), values.size(), &keys_);
}

void GgufWriter::AddBools(std::string_view key, const std::vector<uint8_t>& values) {
  ++num_keys_;
  PutArrayKey(key, kBool, values.size(), &keys_);
  PutBytes(values.data(), values.size(), &keys_);
}

void GgufWriter::AddTensor(std::string_view name, DType type, const std::vector<uint64_t>& dims,
                           std::vector<std::byte> blocks) {
  tensors_.push_back({std::string(name), type, dims, std::move(blocks)});
}

std::vector<std::byte> GgufWriter::Finish() const {
  std::vector<std::byte> file;
  PutBytes("GGUF", 4, &file);
  Put(kVersion, &file);
  Put<uint64_t>(tensors_.size(), &file);
  Put(num_keys_, &file);
  PutBytes(keys_.data(), keys_.size(), &file);
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    PutString(tensor.name, &file);
    Put(static_cast<uint32_t>(tensor.dims.size()), &file);
    for (const uint64_t dim : tensor.dims) Put(dim, &file);
    Put(static_cast<uint32_t>(tensor.type), &file);
    Put(offset, &file);
    offset += (tensor.blocks.size() + kAlignment - 1) / kAlignment * kAlignment;
  }
  for (const Tensor& tensor : tensors_) {
    Align(&file);
    PutBytes(tensor.blocks.data(), tensor.blocks.size(), &file);
  }
  return file;
}

}  // namespace kvrm
