#include "model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace kvrm {
namespace {

// Closes a descriptor at the end of its block.
struct FileDescriptor {
  int fd;
  ~FileDescriptor() {
    if (fd >= 0) close(fd);
  }
};

std::string KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path) {
  // Before it is opened: to open a pipe is to wait for its writer, and a device may do anything. A
  // path that changes meanwhile is not waited for either; a regular file knows no such mode.
  struct stat info{};
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return InvalidInput(path + ": is not a regular file but " + KindOf(info.st_mode));
  }
  const FileDescriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) {
    const std::string message = path + ": cannot open model file: " + std::strerror(errno);
    return errno == ENOENT ? NotFound(message) : InvalidInput(message);
  }
  if (fstat(file.fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    return InvalidInput(path + ": is not a regular file but " + KindOf(info.st_mode));
  }
  if (info.st_size == 0) return InvalidInput(path + ": is empty (0 bytes), not a model file");
  const auto size = static_cast<size_t>(info.st_size);
  void* const at = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (at == MAP_FAILED) {
    return NoRoom(path + ": cannot map " + std::to_string(size) +
                  " bytes: " + std::strerror(errno));
  }
  return MappedFile(at, size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : at_(std::exchange(other.at_, nullptr)), size_(other.size_) {}

MappedFile::~MappedFile() {
  if (at_ != nullptr) munmap(at_, size_);
}

void MappedFile::Release(std::span<const std::byte> bytes) const {
  // Linux maps up to so much around a page that is touched; what is left of it would stay.
  constexpr uintptr_t kFaultAroundBytes = 64u << 10;
  const auto first = reinterpret_cast<uintptr_t>(at_);
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  if (begin < first || begin - first > size_ || bytes.size() > size_ - (begin - first)) return;
  const uintptr_t from = std::max(first, begin / kFaultAroundBytes * kFaultAroundBytes);
  const uintptr_t past =
      (begin + bytes.size() + kFaultAroundBytes - 1) / kFaultAroundBytes * kFaultAroundBytes;
  const uintptr_t end = std::min(first + size_, past);
  madvise(reinterpret_cast<void*>(from), end - from, MADV_DONTNEED);
}

}  // namespace kvrm
