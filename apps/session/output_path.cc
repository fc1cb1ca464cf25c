#include "session/output_path.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace kvrm::cli {

Status CheckOutputPath(const std::string& option, const std::string& path) {
  if (path.empty()) return Ok();
  std::FILE* file = std::fopen(path.c_str(), "ab");
  if (file == nullptr) {
    return Unavailable(option + " " + path + ": cannot be written: " + std::strerror(errno));
  }
  std::fclose(file);
  return Ok();
}

}  // namespace kvrm::cli
