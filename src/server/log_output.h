// Where log lines go: a file descriptor that may be a pipe nobody reads, or a file on a full disk.
// A line that cannot be written now is dropped and counted, for a server must not wait for its log;
// the next line that passes tells how many were lost. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace kvrm {

class LogOutput {
 public:
  // `fd` is not owned. What is written at once is at most kMaxLineBytes: what a pipe that says it
  // can be written takes without blocking.
  static constexpr size_t kMaxLineBytes = 4096;
  explicit LogOutput(int fd) : fd_(fd) {}

  // Appends a line end. False: dropped.
  bool Write(std::string_view line);
  uint64_t dropped() const { return dropped_; }

 private:
  bool TryWrite(std::string_view line) const;

  const int fd_;
  std::atomic<uint64_t> dropped_{0};
  std::atomic<uint64_t> told_{0};  // of `dropped_`, in a line of the log
};

}  // namespace kvrm
