#include "model/safetensors.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cstring>
#include <limits>
#include <string>

namespace kvrm {
namespace {

namespace json = boost::json;

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kMaxDims = 4;

std::string Str(uint64_t value) { return std::to_string(value); }

Error Bad(std::string_view tensor, const std::string& what) {
  return InvalidInput("tensor '" + PrintableName(tensor) + "' " + what);
}

Result<uint64_t> Whole(std::string_view tensor, const char* what, const json::value& value) {
  json::error_code error;
  const auto number = value.to_number<uint64_t>(error);
  if (error) return Bad(tensor, std::string(what) + " holds what is no whole number");
  return number;
}

Status ReadShape(const json::object& fields, std::string_view name, GgufTensor* tensor) {
  const json::value* shape = fields.if_contains("shape");
  if (shape == nullptr || !shape->is_array()) return Bad(name, "has no shape");
  const json::array& dims = shape->get_array();
  if (dims.empty() || dims.size() > kMaxDims) {
    return Bad(name, "has " + Str(dims.size()) + " dimensions, must have 1 to 4");
  }
  tensor->num_values = 1;
  for (size_t i = dims.size(); i-- > 0;) {  // the file's last is the innermost
    KVRM_ASSIGN_OR_RETURN(const uint64_t dim, Whole(name, "shape", dims[i]));
    if (dim == 0) return Bad(name, "has a dimension of 0, must be at least 1");
    if (__builtin_mul_overflow(tensor->num_values, dim, &tensor->num_values)) {
      return Bad(name, "has 2^64 values or more");
    }
    tensor->dims.push_back(dim);
  }
  return Ok();
}

Status ReadType(const json::object& fields, std::string_view name, GgufTensor* tensor) {
  const json::value* dtype = fields.if_contains("dtype");
  if (dtype == nullptr || !dtype->is_string()) return Bad(name, "has no dtype");
  const std::string_view text = dtype->get_string();
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (GetDType(type).name != text) continue;
    tensor->type = type;
    return Ok();
  }
  return Unsupported("tensor '" + PrintableName(name) + "' has dtype '" + PrintableName(text) +
                     "', readable: F32 F16 BF16");
}

Status ReadData(const json::object& fields, std::string_view name, std::span<const std::byte> data,
                GgufTensor* tensor) {
  const json::value* offsets = fields.if_contains("data_offsets");
  if (offsets == nullptr || !offsets->is_array() || offsets->get_array().size() != 2) {
    return Bad(name, "has no data_offsets of two numbers");
  }
  const json::array& pair = offsets->get_array();
  KVRM_ASSIGN_OR_RETURN(const uint64_t begin, Whole(name, "data_offsets", pair[0]));
  KVRM_ASSIGN_OR_RETURN(const uint64_t end, Whole(name, "data_offsets", pair[1]));
  if (begin > end || end > data.size()) {
    return Bad(name, "lies at " + Str(begin) + " to " + Str(end) + ", the file's data has " +
                         Str(data.size()) + " bytes");
  }
  uint64_t needed = 0;
  if (__builtin_mul_overflow(tensor->num_values, GetDType(tensor->type).block_bytes, &needed) ||
      needed != end - begin) {
    return Bad(name, "has " + Str(end - begin) + " bytes, " + Str(tensor->num_values) +
                         " values of " + std::string(GetDType(tensor->type).name) + " need " +
                         Str(GetDType(tensor->type).block_bytes) + " each");
  }
  tensor->data = data.subspan(begin, end - begin);
  return Ok();
}

// The format allows neither holes nor overlaps; a name that stands twice leaves a hole.
Status CheckTiling(const std::vector<GgufTensor>& tensors, std::span<const std::byte> data) {
  std::vector<const GgufTensor*> order;
  for (const GgufTensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return a->data.data() < b->data.data();
  });
  const std::byte* next = data.data();
  for (const GgufTensor* tensor : order) {
    if (tensor->data.data() != next) {
      return Bad(tensor->name,
                 "begins at " + Str(static_cast<uint64_t>(tensor->data.data() - data.data())) +
                     ", the one before ends at " + Str(static_cast<uint64_t>(next - data.data())));
    }
    next += tensor->data.size();
  }
  if (next == data.data() + data.size()) return Ok();
  return InvalidInput("tensors fill " + Str(static_cast<uint64_t>(next - data.data())) + " of " +
                      Str(data.size()) + " bytes of data");
}

}  // namespace

Result<std::vector<GgufTensor>> ParseSafetensors(std::span<const std::byte> bytes) {
  uint64_t header_bytes = 0;
  if (bytes.size() < kLengthBytes) return InvalidInput("has no header");
  std::memcpy(&header_bytes, bytes.data(), kLengthBytes);
  if (header_bytes > std::min<uint64_t>(kMaxHeaderBytes, bytes.size() - kLengthBytes)) {
    return InvalidInput("header has " + Str(header_bytes) + " bytes, the file " +
                        Str(bytes.size()) + " in all");
  }
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + kLengthBytes;
  json::error_code error;
  const json::value header = json::parse({text, header_bytes}, error);
  if (error || !header.is_object()) return InvalidInput("header is no JSON object");
  const std::span<const std::byte> data = bytes.subspan(kLengthBytes + header_bytes);
  std::vector<GgufTensor> tensors;
  for (const auto& [name, value] : header.get_object()) {
    if (name == "__metadata__") continue;
    if (!value.is_object()) return Bad(name, "is no JSON object");
    const json::object& fields = value.get_object();
    GgufTensor tensor;
    tensor.name = std::string(name);
    KVRM_RETURN_IF_ERROR(ReadType(fields, name, &tensor));
    KVRM_RETURN_IF_ERROR(ReadShape(fields, name, &tensor));
    KVRM_RETURN_IF_ERROR(ReadData(fields, name, data, &tensor));
    tensors.push_back(std::move(tensor));
  }
  KVRM_RETURN_IF_ERROR(CheckTiling(tensors, data));
  return tensors;
}

}  // namespace kvrm
