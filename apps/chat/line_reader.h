// Lines from a file descriptor, so that Ctrl-C can interrupt the wait for one. Thread-compatible.
#pragma once

#include <cstdint>
#include <string>

namespace kvrm::cli {

class LineReader {
 public:
  explicit LineReader(int fd) : fd_(fd) {}

  enum class Outcome : uint8_t { kLine, kEnd, kInterrupted };
  // `line` without its line end. The last line needs none. kInterrupted drops what was typed.
  Outcome Read(std::string& line);

 private:
  const int fd_;
  std::string buffer_;
  bool at_end_ = false;
};

}  // namespace kvrm::cli
