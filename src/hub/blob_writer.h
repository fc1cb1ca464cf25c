// A blob on its way into a cache: ETAG.incomplete, which grows, is checked and gets its name.
// Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"
#include "hub/digest.h"

namespace kvrm {

class BlobWriter {
 public:
  // Goes on with what an earlier writer left beside `blob_path`. `name`: the blob's ETag, its
  // checksum where it is one. Errors: the file cannot be opened or read; kNoRoom: the file system
  // has less free than what is to come, with both numbers.
  static Result<std::unique_ptr<BlobWriter>> Open(const std::string& blob_path,
                                                  const std::string& name, uint64_t num_bytes);
  ~BlobWriter();
  BlobWriter(const BlobWriter&) = delete;
  BlobWriter& operator=(const BlobWriter&) = delete;

  uint64_t written() const { return written_; }
  uint64_t num_bytes() const { return num_bytes_; }
  bool whole() const { return written_ == num_bytes_; }

  // Errors: more than num_bytes; what the system says (a full disk: kNoRoom).
  Status Write(std::span<const char> bytes);
  // From the first byte again.
  Status StartAgain();
  // Requires: whole(). The file gets the blob's name. Errors: another checksum, in which case the
  // bytes are removed.
  Status Finish();

 private:
  BlobWriter(std::string blob_path, std::string name, uint64_t num_bytes);
  Status ReadWritten();
  Error Failed(const std::string& doing) const;

  const std::string blob_path_, incomplete_path_, name_;
  const uint64_t num_bytes_;
  int fd_ = -1;
  uint64_t written_ = 0;
  std::unique_ptr<Digest> digest_;  // null: the name is no checksum
};

// Holds the lock file `path` until it is destroyed, as huggingface_hub does.
class FileLock {
 public:
  // Waits for whoever holds it; `on_wait` is called once before. Errors: it cannot be opened.
  static Result<FileLock> Take(const std::string& path, const std::function<void()>& on_wait);
  FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace kvrm
