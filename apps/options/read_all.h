// Whole files as the program's user names them. Thread-safe.
#pragma once

#include <string>

#include "base/result.h"

namespace kvrm::cli {

// All bytes of the file `path`, or of standard input for "-". Errors: it cannot be opened or read;
// the message begins with `name` (an option, such as "--file"), then the path, then the reason.
Result<std::string> ReadAll(const std::string& name, const std::string& path);

}  // namespace kvrm::cli
