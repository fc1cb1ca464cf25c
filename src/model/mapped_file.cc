#include "model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
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

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path) {
  const FileDescriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) {
    const std::string message = path + ": cannot open model file: " + std::strerror(errno);
    return errno == ENOENT ? NotFound(message) : InvalidInput(message);
  }
  struct stat info{};
  if (fstat(file.fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    return InvalidInput(path + ": is not a regular file");
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

}  // namespace kvrm
