#include "frame/field_codec.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/check.h"

namespace kvrm {
namespace {

const std::byte* ElementOf(const Field& field, const void* object, uint32_t index) {
  return static_cast<const std::byte*>(object) + field.offset + size_t{index} * field.width;
}

template <class T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// The element's bits, zero extended.
uint64_t BitsOf(const Field& field, const void* object, uint32_t index) {
  const std::byte* from = ElementOf(field, object, index);
  switch (field.width) {
    case 1:
      return Load<uint8_t>(from);
    case 2:
      return Load<uint16_t>(from);
    case 4:
      return Load<uint32_t>(from);
    default:
      KVRM_CHECK(field.width == 8, "a field is 1, 2, 4 or 8 bytes wide");
      return Load<uint64_t>(from);
  }
}

void StoreBits(const Field& field, void* object, uint32_t index, uint64_t bits) {
  std::byte* to = const_cast<std::byte*>(ElementOf(field, object, index));
  const auto store = [&](auto value) { std::memcpy(to, &value, sizeof value); };
  switch (field.width) {
    case 1:
      return store(static_cast<uint8_t>(bits));
    case 2:
      return store(static_cast<uint16_t>(bits));
    case 4:
      return store(static_cast<uint32_t>(bits));
    default:
      KVRM_CHECK(field.width == 8, "a field is 1, 2, 4 or 8 bytes wide");
      return store(bits);
  }
}

template <class T>
std::string Number(T value, int base = 10) {
  char text[24];
  std::to_chars_result end{};
  if constexpr (std::is_integral_v<T>) {
    end = std::to_chars(text, text + sizeof text, value, base);
  } else {
    end = std::to_chars(text, text + sizeof text, value);
  }
  return std::string(text, end.ptr);
}

int64_t SignExtended(uint64_t bits, uint32_t width) {
  const uint32_t unused = 64 - 8 * width;
  return static_cast<int64_t>(bits << unused) >> unused;
}

// What JSON takes for the same value.
std::string JsonValue(const Field& field, const void* object, uint32_t index) {
  const std::string text = FieldText(field, object, index);
  if (field.kind == FieldKind::kHex) return '"' + text + '"';
  const bool plain =
      field.kind != FieldKind::kFloat ||
      std::isfinite(std::bit_cast<float>(static_cast<uint32_t>(BitsOf(field, object, index))));
  return plain ? text : "null";
}

bool IsZero(const Field& field, const void* object) {
  const std::byte* from = ElementOf(field, object, 0);
  return std::all_of(from, from + field.bytes(),
                     [](std::byte byte) { return byte == std::byte{0}; });
}

}  // namespace

void PackFields(FieldList fields, const void* object, std::byte* bytes) {
  for (const Field& field : fields) {
    for (uint32_t i = 0; i < field.count; ++i) {
      uint64_t bits = BitsOf(field, object, i);
      for (uint32_t b = 0; b < field.width; ++b, bits >>= 8) {
        bytes[field.offset + i * field.width + b] = static_cast<std::byte>(bits);
      }
    }
  }
}

void UnpackFields(FieldList fields, const std::byte* bytes, void* object) {
  for (const Field& field : fields) {
    for (uint32_t i = 0; i < field.count; ++i) {
      uint64_t bits = 0;
      for (uint32_t b = field.width; b-- > 0;) {
        bits = bits << 8 | std::to_integer<uint64_t>(bytes[field.offset + i * field.width + b]);
      }
      StoreBits(field, object, i, bits);
    }
  }
}

std::string FieldText(const Field& field, const void* object, uint32_t index) {
  const uint64_t bits = BitsOf(field, object, index);
  switch (field.kind) {
    case FieldKind::kSigned:
      return Number(SignExtended(bits, field.width));
    case FieldKind::kFloat:
      KVRM_CHECK(field.width == 4, "floats of frames have four bytes");
      return Number(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    case FieldKind::kHex: {
      const std::string digits = Number(bits, 16);
      return std::string(2 * size_t{field.width} - digits.size(), '0') + digits;
    }
    case FieldKind::kUnsigned:
    case FieldKind::kReserved:
      break;
  }
  return Number(bits);
}

std::string FieldName(const Field& field, uint32_t index) {
  return field.count == 1 ? field.name : std::string(field.name) + "[" + Number(index) + "]";
}

std::string FieldsText(FieldList fields, const void* object) {
  std::string out;
  for (const Field& field : fields) {
    if (field.kind == FieldKind::kReserved && IsZero(field, object)) continue;
    if (!out.empty()) out += ", ";
    out += field.name;
    for (uint32_t i = 0; i < field.count; ++i) {
      out += field.count > 1 && i == 0 ? " [" : i > 0 ? ", " : " ";
      out += FieldText(field, object, i);
    }
    if (field.count > 1) out += ']';
  }
  return out;
}

std::string FieldsJson(FieldList fields, const void* object) {
  std::string out = "{";
  for (const Field& field : fields) {
    if (out.size() > 1) out += ',';
    out += '"' + std::string(field.name) + "\":";
    if (field.count > 1) out += '[';
    for (uint32_t i = 0; i < field.count; ++i) {
      if (i > 0) out += ',';
      out += JsonValue(field, object, i);
    }
    if (field.count > 1) out += ']';
  }
  return out + '}';
}

std::optional<FieldDifference> FirstDifference(FieldList fields, const void* first,
                                               const void* second) {
  for (const Field& field : fields) {
    for (uint32_t i = 0; i < field.count; ++i) {
      if (BitsOf(field, first, i) == BitsOf(field, second, i)) continue;
      return FieldDifference{FieldName(field, i), FieldText(field, first, i),
                             FieldText(field, second, i)};
    }
  }
  return std::nullopt;
}

std::optional<ReservedField> NonzeroReserved(FieldList fields, const void* object) {
  for (const Field& field : fields) {
    if (field.kind != FieldKind::kReserved || IsZero(field, object)) continue;
    uint32_t index = 0;
    while (BitsOf(field, object, index) == 0) ++index;
    return ReservedField{FieldName(field, index), FieldText(field, object, index)};
  }
  return std::nullopt;
}

}  // namespace kvrm
