#include "chat/line_reader.h"

#include <unistd.h>

#include <cerrno>

namespace kvrm::cli {

LineReader::Outcome LineReader::Read(std::string& line) {
  while (true) {
    const size_t end = buffer_.find('\n');
    if (end != std::string::npos || (at_end_ && !buffer_.empty())) {
      line = buffer_.substr(0, end);
      buffer_.erase(0, end == std::string::npos ? end : end + 1);
      if (line.ends_with('\r')) line.pop_back();
      return Outcome::kLine;
    }
    if (at_end_) return Outcome::kEnd;
    char chunk[4096];
    const ssize_t count = read(fd_, chunk, sizeof(chunk));
    if (count > 0) {
      buffer_.append(chunk, static_cast<size_t>(count));
    } else if (count < 0 && errno == EINTR) {
      buffer_.clear();
      return Outcome::kInterrupted;
    } else {
      at_end_ = true;
    }
  }
}

}  // namespace kvrm::cli
