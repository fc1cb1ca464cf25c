// A regular file mapped read-only, for as long as the object lives. Movable; thread-safe to read.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"

namespace kvrm {

class MappedFile {
 public:
  // Errors: a path that cannot be opened or is no regular file, an empty file.
  static Result<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) = delete;
  ~MappedFile();
  // What lies of `bytes` in this file need not stay in memory; it is read again when it is touched.
  // Other bytes are left alone.
  void Release(std::span<const std::byte> bytes) const;
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(at_), size_}; }

 private:
  MappedFile(void* at, size_t size) : at_(at), size_(size) {}
  void* at_;
  size_t size_;
};

}  // namespace kvrm
