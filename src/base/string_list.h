// Many short strings, their bytes one behind the other: four bytes each beside their own, where a
// std::string takes 32 and more. For what is read once and kept: vocabularies and merges, of which
// a model has 50,000 to 260,000. Strings are appended, never changed. Thread-compatible. Names as
// those of std::vector, which it stands in for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace kvrm {

class StringList {
 public:
  // Of all strings together.
  static constexpr uint64_t kMaxBytes = std::numeric_limits<uint32_t>::max();

  class Iterator {
   public:
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;
    Iterator() = default;
    Iterator(const StringList* list, size_t at) : list_(list), at_(at) {}
    std::string_view operator*() const { return (*list_)[at_]; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    Iterator operator++(int) { return {list_, at_++}; }
    difference_type operator-(const Iterator& other) const {
      return static_cast<difference_type>(at_) - static_cast<difference_type>(other.at_);
    }
    bool operator==(const Iterator&) const = default;

   private:
    const StringList* list_ = nullptr;
    size_t at_ = 0;
  };

  StringList() = default;
  StringList(std::initializer_list<std::string_view> texts) {
    for (const std::string_view text : texts) push_back(text);
  }
  explicit StringList(const std::vector<std::string>& texts) {
    uint64_t bytes = 0;
    for (const std::string& text : texts) bytes += text.size();
    reserve(texts.size(), bytes);
    for (const std::string& text : texts) push_back(text);
  }

  size_t size() const { return ends_.size(); }
  bool empty() const { return ends_.empty(); }
  uint64_t bytes() const { return bytes_.size(); }
  // Lives until the list changes. Requires: i < size().
  std::string_view operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(bytes_).substr(begin, ends_[i] - begin);
  }
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }

  // Room for so many strings of so many bytes together, and no more.
  void reserve(size_t count, uint64_t bytes) {
    ends_.reserve(count);
    bytes_.reserve(bytes);
  }
  // Requires: bytes() + text.size() <= kMaxBytes.
  void push_back(std::string_view text) {
    KVRM_CHECK(text.size() <= kMaxBytes - bytes_.size(), "a list of strings is below 4 GiB");
    bytes_ += text;
    ends_.push_back(static_cast<uint32_t>(bytes_.size()));
  }
  // A longer list gets empty strings.
  void resize(size_t count) {
    if (count < size()) bytes_.resize(count == 0 ? 0 : ends_[count - 1]);
    ends_.resize(count, static_cast<uint32_t>(bytes_.size()));
  }
  void clear() { resize(0); }

  bool operator==(const StringList&) const = default;

 private:
  std::string bytes_;
  std::vector<uint32_t> ends_;  // [strings] where each ends in bytes_
};

}  // namespace kvrm
