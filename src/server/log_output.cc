#include "server/log_output.h"

#include <poll.h>
#include <unistd.h>

#include <string>

namespace kvrm {

// One write, so that lines of two threads do not mix.
bool LogOutput::TryWrite(std::string_view line) {
  pollfd writable{.fd = fd_, .events = POLLOUT, .revents = 0};
  if (poll(&writable, 1, /*timeout=*/0) != 1 || (writable.revents & POLLOUT) == 0) return false;
  const bool torn = torn_.exchange(false);
  std::string text(torn ? "\n" : "");
  text.append(line.substr(0, kMaxLineBytes - 1 - text.size()));
  text += '\n';
  const ssize_t written = write(fd_, text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return true;
  if (written > 0 ? text[static_cast<size_t>(written) - 1] != '\n' : torn) torn_ = true;
  return false;
}

bool LogOutput::Write(std::string_view line) {
  const uint64_t lost = dropped_;
  if (lost > told_) {
    const std::string told =
        "log: " + std::to_string(lost - told_) + " lines could not be written and are lost";
    if (TryWrite(own_ ? own_(told) : told)) told_ = lost;
  }
  if (TryWrite(line)) return true;
  ++dropped_;
  return false;
}

}  // namespace kvrm
