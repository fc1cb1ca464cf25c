#include "hub/blob_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

namespace kvrm {
namespace {

constexpr size_t kChunkBytes = 1u << 20;

}  // namespace

BlobWriter::BlobWriter(std::string blob_path, std::string name, uint64_t num_bytes)
    : blob_path_(std::move(blob_path)),
      incomplete_path_(blob_path_ + ".incomplete"),
      name_(std::move(name)),
      num_bytes_(num_bytes) {}

BlobWriter::~BlobWriter() {
  if (fd_ >= 0) close(fd_);
}

Error BlobWriter::Failed(const std::string& doing) const {
  const int reason = errno;
  const std::string message = incomplete_path_ + ": cannot " + doing + ": " +
                              std::strerror(reason) + ", after " + std::to_string(written_) +
                              " of " + std::to_string(num_bytes_) + " bytes";
  const bool full = reason == ENOSPC || reason == EDQUOT || reason == EFBIG;
  return full ? NoRoom(message) : InvalidInput(message);
}

Result<std::unique_ptr<BlobWriter>> BlobWriter::Open(const std::string& blob_path,
                                                     const std::string& name, uint64_t num_bytes) {
  std::unique_ptr<BlobWriter> writer(new BlobWriter(blob_path, name, num_bytes));
  writer->fd_ = open(writer->incomplete_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (writer->fd_ < 0) return writer->Failed("open");
  KVRM_RETURN_IF_ERROR(writer->ReadWritten());
  std::error_code error;
  const auto space = std::filesystem::space(writer->incomplete_path_, error);
  const uint64_t to_come = num_bytes - writer->written_;
  if (!error && space.available < to_come) {
    return NoRoom(blob_path + ": " + std::to_string(to_come) + " bytes are to come, the disk has " +
                  std::to_string(space.available) + " free");
  }
  return writer;
}

Status BlobWriter::ReadWritten() {
  digest_ = Digest::For(name_, num_bytes_);
  struct stat info{};
  if (fstat(fd_, &info) != 0) return Failed("look at it");
  if (static_cast<uint64_t>(info.st_size) > num_bytes_) return StartAgain();
  std::vector<char> chunk(kChunkBytes);
  for (;;) {
    const ssize_t got = read(fd_, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed("read");
    if (got == 0) return Ok();
    if (digest_) digest_->Update({chunk.data(), static_cast<size_t>(got)});
    written_ += static_cast<uint64_t>(got);
  }
}

Status BlobWriter::Write(std::span<const char> bytes) {
  if (bytes.size() > num_bytes_ - written_) {
    return InvalidInput("more than the " + std::to_string(num_bytes_) +
                        " bytes that were announced");
  }
  while (!bytes.empty()) {
    const ssize_t put = write(fd_, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return Failed("write");
    const auto done = bytes.first(static_cast<size_t>(put));
    if (digest_) digest_->Update(done);
    written_ += done.size();
    bytes = bytes.subspan(done.size());
  }
  return Ok();
}

Status BlobWriter::StartAgain() {
  if (ftruncate(fd_, 0) != 0 || lseek(fd_, 0, SEEK_SET) != 0) return Failed("empty it");
  written_ = 0;
  digest_ = Digest::For(name_, num_bytes_);
  return Ok();
}

Status BlobWriter::Finish() {
  KVRM_CHECK(whole(), "a blob gets its name once it is whole");
  const std::string found = digest_ ? digest_->Finish() : name_;
  if (found != name_) {
    std::remove(incomplete_path_.c_str());
    return InvalidInput("checksum is " + found + ", must be " + name_ + "; what came was removed");
  }
  // The name promises the bytes, after a power cut too.
  if (fsync(fd_) != 0 || std::rename(incomplete_path_.c_str(), blob_path_.c_str()) != 0) {
    return Failed("give it its name");
  }
  return Ok();
}

Result<FileLock> FileLock::Take(const std::string& path, const std::function<void()>& on_wait) {
  FileLock lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (lock.fd_ < 0) return Unavailable(path + ": cannot open: " + std::strerror(errno));
  if (flock(lock.fd_, LOCK_EX | LOCK_NB) == 0) return lock;
  on_wait();
  while (flock(lock.fd_, LOCK_EX) != 0) {
    if (errno != EINTR) return Unavailable(path + ": cannot lock: " + std::strerror(errno));
  }
  return lock;
}

FileLock::~FileLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace kvrm
