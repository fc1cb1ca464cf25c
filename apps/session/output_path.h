// Whether a file can be written, told before a model is loaded for it. Thread-safe.
#pragma once

#include <string>

#include "base/result.h"

namespace kvrm::cli {

// `option`: "--record", for the message. "" is no file and fine. A file that is not there is made.
Status CheckOutputPath(const std::string& option, const std::string& path);

}  // namespace kvrm::cli
