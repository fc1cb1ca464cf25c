// The integers of an array of a model file, as wide in memory as they are in the file. Never
// changed after creation; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace kvrm {

class IntegerList {
 public:
  IntegerList() = default;
  // What is built beside a file.
  IntegerList(const std::vector<int64_t>& values)  // NOLINT(google-explicit-constructor)
      : IntegerList(std::as_bytes(std::span(values)), sizeof(int64_t), /*is_signed=*/true) {}
  // Little endian. Requires: `width` is 1, 2, 4 or 8 and divides the bytes; unsigned ones of 8
  // bytes are below 2^63.
  IntegerList(std::span<const std::byte> bytes, size_t width, bool is_signed)
      : bytes_(bytes.begin(), bytes.end()), width_(width), is_signed_(is_signed) {}

  size_t size() const { return bytes_.size() / width_; }
  // Requires: i < size().
  int64_t operator[](size_t i) const {
    switch (width_) {
      case 1:
        return is_signed_ ? At<int8_t>(i) : At<uint8_t>(i);
      case 2:
        return is_signed_ ? At<int16_t>(i) : At<uint16_t>(i);
      case 4:
        return is_signed_ ? At<int32_t>(i) : int64_t{At<uint32_t>(i)};
      default:
        return At<int64_t>(i);
    }
  }
  std::vector<int64_t> ToVector() const {
    std::vector<int64_t> values(size());
    for (size_t i = 0; i < values.size(); ++i) values[i] = (*this)[i];
    return values;
  }

 private:
  template <class T>
  T At(size_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + i * sizeof(T), sizeof(T));
    return value;
  }

  std::vector<std::byte> bytes_;
  size_t width_ = sizeof(int64_t);
  bool is_signed_ = true;
};

}  // namespace kvrm
