// What a field list (fields.h) can do to any struct that it describes: pack, unpack, show, compare.
//
// Packed bytes are little endian, field after field without gaps, so on a little-endian machine
// they are the struct itself. Pure; thread-safe.
#pragma once

#include <bit>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "frame/fields.h"

namespace kvrm {

using FieldList = std::span<const Field>;

// `object` is a struct that `fields` describes; `bytes` has its size.
void PackFields(FieldList fields, const void* object, std::byte* bytes);
void UnpackFields(FieldList fields, const std::byte* bytes, void* object);

// The value of element `index` of `field`: "17", "-1", "0.5", "4652564b".
std::string FieldText(const Field& field, const void* object, uint32_t index);
// "num_tokens", or "num_tokens[2]" where there are several.
std::string FieldName(const Field& field, uint32_t index);
// "token 17, slot 2, num_tokens [40, 0, 0, 0]"; reserved fields are left out while they are zero.
std::string FieldsText(FieldList fields, const void* object);
// {"token":17,"slot":2,"num_tokens":[40,0,0,0]}: every field; hex as a string, and a float that
// JSON cannot say as null.
std::string FieldsJson(FieldList fields, const void* object);

struct FieldDifference {
  std::string name;
  std::string first, second;  // values
};
// The first field, in order of offsets, whose bytes differ.
std::optional<FieldDifference> FirstDifference(FieldList fields, const void* first,
                                               const void* second);

struct ReservedField {
  std::string name;
  std::string value;
};
// The first reserved element that is not zero.
std::optional<ReservedField> NonzeroReserved(FieldList fields, const void* object);

template <class T>
void Pack(const T* objects, size_t count, std::byte* bytes) {
  if constexpr (std::endian::native == std::endian::little) {
    if (count > 0) std::memcpy(bytes, objects, count * sizeof(T));
  } else {
    for (size_t i = 0; i < count; ++i)
      PackFields(FieldsOf<T>::list, objects + i, bytes + i * sizeof(T));
  }
}

template <class T>
void Unpack(const std::byte* bytes, size_t count, T* objects) {
  if constexpr (std::endian::native == std::endian::little) {
    if (count > 0) std::memcpy(objects, bytes, count * sizeof(T));
  } else {
    for (size_t i = 0; i < count; ++i)
      UnpackFields(FieldsOf<T>::list, bytes + i * sizeof(T), objects + i);
  }
}

template <class T>
std::string FieldsText(const T& object) {
  return FieldsText(FieldsOf<T>::list, &object);
}
template <class T>
std::string FieldsJson(const T& object) {
  return FieldsJson(FieldsOf<T>::list, &object);
}
template <class T>
std::optional<FieldDifference> FirstDifference(const T& first, const T& second) {
  return FirstDifference(FieldsOf<T>::list, &first, &second);
}
template <class T>
std::optional<ReservedField> NonzeroReserved(const T& object) {
  return NonzeroReserved(FieldsOf<T>::list, &object);
}

}  // namespace kvrm
