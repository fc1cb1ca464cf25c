// Structs that begin with `size`: how an older or a newer caller's is read and written.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kvrm/types.h"

namespace kvrm {

// nullptr, or why `in` is refused. What `in` is too short for stays zero in `out`. `in` may be
// unaligned: it is an element of an array with the caller's stride.
template <class T>
const char* ReadVersioned(const void* in, T& out) {
  static_assert(std::is_trivially_copyable_v<T> && offsetof(T, size) == 0);
  uint32_t size = 0;
  std::memcpy(&size, in, sizeof size);
  if (size < sizeof size || size > KVRM_MAX_STRUCT) return "size is not that of a struct";
  const auto* bytes = static_cast<const unsigned char*>(in);
  for (size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) return "a field is set that this version does not know";
  }
  out = {};
  std::memcpy(&out, in, std::min<size_t>(size, sizeof(T)));
  out.size = sizeof(T);
  return nullptr;
}

// Fills the caller's `out` as far as its size goes. nullptr, or why it is refused.
template <class T>
const char* WriteVersioned(T* out, T value) {
  static_assert(std::is_trivially_copyable_v<T> && offsetof(T, size) == 0);
  uint32_t size = 0;
  std::memcpy(&size, out, sizeof size);
  if (size < sizeof size || size > KVRM_MAX_STRUCT) return "size is not that of a struct";
  value.size = size;
  auto* bytes = reinterpret_cast<unsigned char*>(out);
  std::memcpy(bytes, &value, std::min<size_t>(size, sizeof(T)));
  if (size > sizeof(T)) std::memset(bytes + sizeof(T), 0, size - sizeof(T));
  return nullptr;
}

}  // namespace kvrm
