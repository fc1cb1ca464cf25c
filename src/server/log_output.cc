#include "server/log_output.h"

#include <poll.h>
#include <unistd.h>

#include <string>

namespace kvrm {

// One write, so that lines of two threads do not mix.
bool LogOutput::TryWrite(std::string_view line) const {
  pollfd writable{.fd = fd_, .events = POLLOUT, .revents = 0};
  if (poll(&writable, 1, /*timeout=*/0) != 1 || (writable.revents & POLLOUT) == 0) return false;
  std::string text(line.substr(0, kMaxLineBytes - 1));
  text += '\n';
  return write(fd_, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

bool LogOutput::Write(std::string_view line) {
  const uint64_t lost = dropped_;
  if (lost > told_ && TryWrite("log: " + std::to_string(lost - told_) +
                               " lines could not be written and are lost")) {
    told_ = lost;
  }
  if (TryWrite(line)) return true;
  ++dropped_;
  return false;
}

}  // namespace kvrm
