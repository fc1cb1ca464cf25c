#include "model/gguf_parser.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>

namespace kvrm {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are little endian");

constexpr uint32_t kMagic = 0x4655'4747;  // "GGUF"
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMinAlignment = 8;
constexpr uint64_t kMaxAlignment = 65'536;
constexpr uint64_t kMaxKeyBytes = 65'535;
constexpr uint64_t kMaxTensorNameBytes = 64;
constexpr uint32_t kMaxDims = 4;
// The least that an entry takes in the file: name length, one character, and the fixed fields.
constexpr uint64_t kMinKeyEntryBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorEntryBytes = 8 + 1 + 4 + 8 + 4 + 8;

// Numbers of the format's metadata value types.
enum class ValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};
constexpr uint32_t kNumValueTypes = 13;

std::string Quoted(std::string_view name) { return "'" + PrintableName(name) + "'"; }
std::string Str(uint64_t value) { return std::to_string(value); }

// Reads forward through the bytes; nothing is read past their end.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return bytes_.size() - position_; }

  // `field` names what is being read, for the message.
  Status Truncated(uint64_t needed, std::string_view field) const {
    return InvalidInput("truncated at " + std::string(field) + ": needs " + Str(needed) +
                        " bytes at offset " + Str(position_) + ", file has " + Str(bytes_.size()));
  }

  template <class T>
  Result<T> Read(std::string_view field) {
    if (left() < sizeof(T)) return Truncated(sizeof(T), field).error();
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof value);
    position_ += sizeof value;
    return value;
  }

  // Within the bytes.
  Result<std::string_view> ReadText(std::string_view field, uint64_t min_bytes,
                                    uint64_t max_bytes) {
    KVRM_ASSIGN_OR_RETURN(const uint64_t length, Read<uint64_t>(field));
    if (length < min_bytes || length > max_bytes) {
      return InvalidInput(std::string(field) + " has length " + Str(length) + ", must be " +
                          Str(min_bytes) + " to " + Str(max_bytes));
    }
    if (length > left()) return Truncated(length, field).error();
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data() + position_), length);
    position_ += length;
    return text;
  }
  Result<std::span<const std::byte>> ReadBytes(std::string_view field, uint64_t count) {
    if (count > left()) return Truncated(count, field).error();
    const std::span<const std::byte> bytes = bytes_.subspan(position_, count);
    position_ += count;
    return bytes;
  }
  Result<std::string> ReadString(std::string_view field, uint64_t min_bytes, uint64_t max_bytes) {
    KVRM_ASSIGN_OR_RETURN(const std::string_view text, ReadText(field, min_bytes, max_bytes));
    return std::string(text);
  }

 private:
  std::span<const std::byte> bytes_;
  uint64_t position_ = 0;
};

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, GgufContents* contents)
      : bytes_(bytes), cursor_(bytes), contents_(*contents) {}

  Status Run() {
    KVRM_RETURN_IF_ERROR(ReadHeader());
    for (uint64_t i = 0; i < num_keys_; ++i) KVRM_RETURN_IF_ERROR(ReadKey(i));
    KVRM_RETURN_IF_ERROR(ReadAlignment());
    for (uint64_t i = 0; i < num_tensors_; ++i) KVRM_RETURN_IF_ERROR(ReadTensor(i));
    KVRM_RETURN_IF_ERROR(PlaceTensors());
    return CheckOverlap();
  }

 private:
  Status ReadHeader() {
    KVRM_ASSIGN_OR_RETURN(const uint32_t magic, cursor_.Read<uint32_t>("magic"));
    if (magic != kMagic) {
      return InvalidInput("magic is " + Quoted({reinterpret_cast<const char*>(&magic), 4}) +
                          ", must be 'GGUF': not a GGUF file");
    }
    KVRM_ASSIGN_OR_RETURN(contents_.version, cursor_.Read<uint32_t>("version"));
    if (contents_.version != 2 && contents_.version != 3) {
      const bool swapped = (contents_.version & 0xFFFF) == 0;
      return Unsupported("version is " + Str(contents_.version) + ", must be 2 or 3" +
                         (swapped ? " (a big-endian file)" : ""));
    }
    KVRM_ASSIGN_OR_RETURN(num_tensors_, cursor_.Read<uint64_t>("tensor count"));
    KVRM_ASSIGN_OR_RETURN(num_keys_, cursor_.Read<uint64_t>("key count"));
    KVRM_RETURN_IF_ERROR(CheckCount("key count", num_keys_, kMinKeyEntryBytes));
    KVRM_RETURN_IF_ERROR(CheckCount("tensor count", num_tensors_, kMinTensorEntryBytes));
    return Ok();
  }

  Status CheckCount(std::string_view field, uint64_t count, uint64_t min_entry_bytes) const {
    const uint64_t limit =
        std::min<uint64_t>(cursor_.left() / min_entry_bytes, std::numeric_limits<uint32_t>::max());
    if (count <= limit) return Ok();
    return InvalidInput(std::string(field) + " is " + Str(count) + ", the last " +
                        Str(cursor_.left()) + " of the file's " + Str(bytes_.size()) +
                        " bytes hold at most " + Str(limit));
  }

  Status ReadKey(uint64_t index) {
    const std::string field = "key " + Str(index);
    KVRM_ASSIGN_OR_RETURN(std::string key, cursor_.ReadString(field, 1, kMaxKeyBytes));
    const std::string label = "key " + Quoted(key);
    KVRM_ASSIGN_OR_RETURN(const ValueType type, ReadValueType(label));
    GgufValue value;
    if (type == ValueType::kArray) {
      KVRM_ASSIGN_OR_RETURN(value, ReadArray(label));
    } else {
      KVRM_ASSIGN_OR_RETURN(value, ReadScalar(label, type));
    }
    contents_.metadata.emplace_back(std::move(key), std::move(value));
    return Ok();
  }

  Result<ValueType> ReadValueType(const std::string& label) {
    KVRM_ASSIGN_OR_RETURN(const uint32_t type, cursor_.Read<uint32_t>(label));
    if (type >= kNumValueTypes) {
      return InvalidInput(label + " has value type " + Str(type) + ", must be below " +
                          Str(kNumValueTypes));
    }
    return static_cast<ValueType>(type);
  }

  template <class Wide, class T>
  Result<GgufValue> ReadWidened(const std::string& label) {
    KVRM_ASSIGN_OR_RETURN(const T value, cursor_.Read<T>(label));
    return GgufValue{static_cast<Wide>(value)};
  }

  Result<GgufValue> ReadScalar(const std::string& label, ValueType type) {
    switch (type) {
      case ValueType::kUint8:
        return ReadWidened<uint64_t, uint8_t>(label);
      case ValueType::kUint16:
        return ReadWidened<uint64_t, uint16_t>(label);
      case ValueType::kUint32:
        return ReadWidened<uint64_t, uint32_t>(label);
      case ValueType::kUint64:
        return ReadWidened<uint64_t, uint64_t>(label);
      case ValueType::kInt8:
        return ReadWidened<int64_t, int8_t>(label);
      case ValueType::kInt16:
        return ReadWidened<int64_t, int16_t>(label);
      case ValueType::kInt32:
        return ReadWidened<int64_t, int32_t>(label);
      case ValueType::kInt64:
        return ReadWidened<int64_t, int64_t>(label);
      case ValueType::kFloat32:
        return ReadWidened<double, float>(label);
      case ValueType::kFloat64:
        return ReadWidened<double, double>(label);
      case ValueType::kBool: {
        KVRM_ASSIGN_OR_RETURN(const uint8_t value, cursor_.Read<uint8_t>(label));
        if (value > 1) return InvalidInput(label + " is bool " + Str(value) + ", must be 0 or 1");
        return GgufValue{value == 1};
      }
      case ValueType::kString: {
        KVRM_ASSIGN_OR_RETURN(std::string text, cursor_.ReadString(label, 0, kNoLimit));
        return GgufValue{std::move(text)};
      }
      case ValueType::kArray:
        break;
    }
    KVRM_CHECK(false, "ReadScalar is given a checked scalar type");
  }

  Result<GgufValue> ReadArray(const std::string& label) {
    const std::string items = "array of " + label;
    KVRM_ASSIGN_OR_RETURN(const ValueType type, ReadValueType(items));
    if (type == ValueType::kArray) {
      return Unsupported(label + " is an array of arrays, must be an array of scalars or strings");
    }
    KVRM_ASSIGN_OR_RETURN(const uint64_t count, cursor_.Read<uint64_t>(items));
    KVRM_RETURN_IF_ERROR(CheckCount("length of " + items, count, MinItemBytes(type)));
    if (type == ValueType::kString) return ReadStrings(items, count);
    if (type == ValueType::kFloat32 || type == ValueType::kFloat64) {
      std::vector<double> values(count);
      for (double& v : values) {
        KVRM_ASSIGN_OR_RETURN(const GgufValue item, ReadScalar(items, type));
        v = std::get<double>(item.data);
      }
      return GgufValue{std::move(values)};
    }
    return ReadIntegers(items, type, count);
  }

  // Requires: the bytes are there.
  Result<GgufValue> ReadIntegers(const std::string& items, ValueType type, uint64_t count) {
    const uint64_t width = MinItemBytes(type);
    const bool is_signed = type == ValueType::kInt8 || type == ValueType::kInt16 ||
                           type == ValueType::kInt32 || type == ValueType::kInt64;
    KVRM_ASSIGN_OR_RETURN(const auto bytes, cursor_.ReadBytes(items, count * width));
    IntegerList values(bytes, width, is_signed);
    for (uint64_t i = 0; i < count; ++i) {
      if (type == ValueType::kBool && values[i] > 1) {
        return InvalidInput(items + " is bool " + Str(static_cast<uint64_t>(values[i])) +
                            ", must be 0 or 1");
      }
      if (type == ValueType::kUint64 && values[i] < 0) {
        return Unsupported(items + " holds " + Str(static_cast<uint64_t>(values[i])) +
                           ", must be below 2^63");
      }
    }
    return GgufValue{std::move(values)};
  }

  // Twice over them: vocabularies are large, and what they take in memory is what they need.
  Result<GgufValue> ReadStrings(const std::string& items, uint64_t count) {
    const Cursor first = cursor_;
    uint64_t text_bytes = 0;  // at most the file's
    for (uint64_t i = 0; i < count; ++i) {
      KVRM_ASSIGN_OR_RETURN(const std::string_view text, cursor_.ReadText(items, 0, kNoLimit));
      text_bytes += text.size();
    }
    if (text_bytes > GgufValue::Strings::kMaxBytes) {
      return Unsupported(items + " holds " + Str(text_bytes) +
                         " bytes of strings, must be at most " +
                         Str(GgufValue::Strings::kMaxBytes));
    }
    cursor_ = first;
    GgufValue::Strings strings;
    strings.reserve(count, text_bytes);
    for (uint64_t i = 0; i < count; ++i) {
      KVRM_ASSIGN_OR_RETURN(const std::string_view text, cursor_.ReadText(items, 0, kNoLimit));
      strings.push_back(text);
    }
    return GgufValue{std::move(strings)};
  }

  static uint64_t MinItemBytes(ValueType type) {
    switch (type) {
      case ValueType::kUint8:
      case ValueType::kInt8:
      case ValueType::kBool:
        return 1;
      case ValueType::kUint16:
      case ValueType::kInt16:
        return 2;
      case ValueType::kUint32:
      case ValueType::kInt32:
      case ValueType::kFloat32:
        return 4;
      default:
        return 8;
    }
  }

  Status ReadAlignment() {
    for (const auto& [key, value] : contents_.metadata) {
      if (key != "general.alignment") continue;
      const auto* number = std::get_if<uint64_t>(&value.data);
      if (number == nullptr) {
        return InvalidInput(
            "key 'general.alignment' has another type, must be an unsigned integer");
      }
      if (!std::has_single_bit(*number) || *number < kMinAlignment || *number > kMaxAlignment) {
        return InvalidInput("key 'general.alignment' is " + Str(*number) +
                            ", must be a power of two from " + Str(kMinAlignment) + " to " +
                            Str(kMaxAlignment));
      }
      alignment_ = *number;
    }
    return Ok();
  }

  Status ReadTensor(uint64_t index) {
    const std::string field = "tensor " + Str(index);
    GgufTensor tensor;
    KVRM_ASSIGN_OR_RETURN(tensor.name, cursor_.ReadString(field, 1, kMaxTensorNameBytes));
    const std::string label = "tensor " + Quoted(tensor.name);
    KVRM_ASSIGN_OR_RETURN(const uint32_t num_dims, cursor_.Read<uint32_t>(label));
    if (num_dims < 1 || num_dims > kMaxDims) {
      return InvalidInput(label + " has " + Str(num_dims) + " dimensions, must be 1 to " +
                          Str(kMaxDims));
    }
    tensor.num_values = 1;
    for (uint32_t d = 0; d < num_dims; ++d) {
      KVRM_ASSIGN_OR_RETURN(const uint64_t dim, cursor_.Read<uint64_t>(label));
      if (dim == 0)
        return InvalidInput(label + " has dimension " + Str(d) + " of 0, must be at least 1");
      if (__builtin_mul_overflow(tensor.num_values, dim, &tensor.num_values)) {
        return InvalidInput(label + " has 2^64 values or more (dimension " + Str(d) + " is " +
                            Str(dim) + "), file has " + Str(bytes_.size()) + " bytes");
      }
      tensor.dims.push_back(dim);
    }
    KVRM_RETURN_IF_ERROR(ReadTensorType(label, &tensor));
    KVRM_ASSIGN_OR_RETURN(const uint64_t offset, cursor_.Read<uint64_t>(label));
    if (offset % alignment_ != 0) {
      return InvalidInput(label + " has offset " + Str(offset) + ", must be a multiple of " +
                          Str(alignment_));
    }
    offsets_.push_back(offset);
    contents_.tensors.push_back(std::move(tensor));
    return Ok();
  }

  Status ReadTensorType(const std::string& label, GgufTensor* tensor) {
    KVRM_ASSIGN_OR_RETURN(const uint32_t type, cursor_.Read<uint32_t>(label));
    const DTypeInfo* info = FindDType(type);
    if (info == nullptr) {
      return Unsupported(label + " has type " + Str(type) + ", which is no known tensor type");
    }
    tensor->type = info->type;
    if (tensor->dims[0] % info->block_values != 0) {
      return InvalidInput(label + " has row length " + Str(tensor->dims[0]) +
                          ", must be a multiple of " + Str(info->block_values) +
                          ", the block of type " + std::string(info->name));
    }
    return Ok();
  }

  // The data section begins at the next multiple of the alignment after the tensor list.
  Status PlaceTensors() {
    const uint64_t list_end = cursor_.position();
    const uint64_t data_begin = (list_end + alignment_ - 1) / alignment_ * alignment_;
    const uint64_t data_bytes = bytes_.size() > data_begin ? bytes_.size() - data_begin : 0;
    for (size_t i = 0; i < contents_.tensors.size(); ++i) {
      GgufTensor& tensor = contents_.tensors[i];
      const DTypeInfo& info = GetDType(tensor.type);
      uint64_t bytes = 0;
      const bool too_large = __builtin_mul_overflow(tensor.num_values / info.block_values,
                                                    uint64_t{info.block_bytes}, &bytes);
      // Differences of checked numbers only: no sum of file values can wrap.
      if (too_large || offsets_[i] > data_bytes || bytes > data_bytes - offsets_[i]) {
        return InvalidInput(
            "tensor " + Quoted(tensor.name) + " needs " + (too_large ? "over 2^64" : Str(bytes)) +
            " bytes at offset " + Str(offsets_[i]) + " of the data section, which has " +
            Str(data_bytes) + " (file cut off at " + Str(bytes_.size()) + " bytes?)");
      }
      tensor.data = bytes_.subspan(data_begin + offsets_[i], bytes);
    }
    return Ok();
  }

  Status CheckOverlap() const {
    const auto& tensors = contents_.tensors;
    std::vector<uint32_t> order(tensors.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return offsets_[a] < offsets_[b]; });
    for (size_t i = 1; i < order.size(); ++i) {
      const GgufTensor& low = tensors[order[i - 1]];
      const GgufTensor& high = tensors[order[i]];
      const uint64_t low_end = offsets_[order[i - 1]] + low.data.size();
      if (low_end > offsets_[order[i]]) {
        return InvalidInput("tensor " + Quoted(high.name) + " begins at offset " +
                            Str(offsets_[order[i]]) + ", within tensor " + Quoted(low.name) +
                            ", which ends at " + Str(low_end));
      }
    }
    return Ok();
  }

  static constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

  std::span<const std::byte> bytes_;
  Cursor cursor_;
  GgufContents& contents_;
  uint64_t num_tensors_ = 0;
  uint64_t num_keys_ = 0;
  uint64_t alignment_ = kDefaultAlignment;
  std::vector<uint64_t> offsets_;  // [tensors] within the data section
};

}  // namespace

Status ParseGguf(std::span<const std::byte> bytes, GgufContents* contents) {
  return Parser(bytes, contents).Run();
}

}  // namespace kvrm
