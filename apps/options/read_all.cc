#include "options/read_all.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace kvrm::cli {

Result<std::string> ReadAll(const std::string& name, const std::string& path) {
  const bool standard_input = path == "-";
  const auto failed = [&](int error) -> Error {
    return {error == ENOENT ? ErrorKind::kNotFound : ErrorKind::kInvalidInput,
            name + " '" + path + "': " + std::strerror(error)};
  };
  const int fd = standard_input ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failed(errno);
  std::string text;
  char chunk[65'536];
  ssize_t got = 0;
  do {
    got = read(fd, chunk, sizeof(chunk));
    if (got > 0) text.append(chunk, static_cast<size_t>(got));
  } while (got > 0 || (got < 0 && errno == EINTR));
  const int error = got < 0 ? errno : 0;
  if (!standard_input) close(fd);
  if (error != 0) return failed(error);
  return text;
}

}  // namespace kvrm::cli
