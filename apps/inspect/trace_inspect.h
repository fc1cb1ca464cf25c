// kvrm inspect FILE.kvft: what a frame trace holds, one epoch of it, whether all of it is sound,
// and where it parts from another.
#pragma once

#include <string>

#include "options/option_values.h"

namespace kvrm::cli {

// Whether the file `path` is meant as a frame trace: by its first bytes, or by its name.
bool IsFrameTrace(const std::string& path);
// Returns the exit code. Requires: `values` are those of `inspect`.
int InspectTrace(const OptionValues& values, const std::string& path);

}  // namespace kvrm::cli
