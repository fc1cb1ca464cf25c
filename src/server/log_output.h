// Where log lines go: a file descriptor that may be a pipe nobody reads, or a file on a full disk.
// A line that cannot be written now is dropped and counted, for a server must not wait for its log;
// the next line that passes tells how many were lost. A line of which a full disk took a part is
// lost too, and the next one begins a line of its own. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace kvrm {

class LogOutput {
 public:
  // `fd` is not owned. What is written at once is at most kMaxLineBytes: what a pipe that says it
  // can be written takes without blocking.
  static constexpr size_t kMaxLineBytes = 4096;
  // `own` words what it has to say itself, as the log's other lines are; empty = as it is.
  using Wording = std::function<std::string(std::string_view)>;
  explicit LogOutput(int fd, Wording own = {}) : fd_(fd), own_(std::move(own)) {}

  // Appends a line end. False: dropped.
  bool Write(std::string_view line);
  uint64_t dropped() const { return dropped_; }

 private:
  bool TryWrite(std::string_view line);

  const int fd_;
  const Wording own_;
  std::atomic<bool> torn_{false};  // the last line that was written has no end
  std::atomic<uint64_t> dropped_{0};
  std::atomic<uint64_t> told_{0};  // of `dropped_`, in a line of the log
};

}  // namespace kvrm
