// A progress bar on standard error while a model loads; nothing when that is no terminal.
#pragma once

#include <functional>
#include <string>

namespace kvrm::cli {

// A callback for LoadOptions::progress that draws `label` and a bar, and wipes the line at 1.0.
// Empty when standard error is no terminal.
std::function<void(double share)> ProgressBar(const std::string& label);

}  // namespace kvrm::cli
