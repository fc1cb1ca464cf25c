// Runs another program and gathers what it prints. Thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace kvrm::cli {

// Standard output of `command` ([0] is a path); its standard error goes to /dev/null. Errors: it
// cannot be started, or it ended with another code than 0 (both named with the command).
Result<std::string> RunProgram(const std::vector<std::string>& command);

// The same, with the most bytes that it had resident at once, file pages counted, as the system
// says of a process that has ended.
struct ProgramRun {
  std::string output;
  uint64_t peak_resident_bytes = 0;
};
Result<ProgramRun> RunMeasuredProgram(const std::vector<std::string>& command);

// As a shell would take it back: words quoted where they must be.
std::string CommandLine(const std::vector<std::string>& command);

}  // namespace kvrm::cli
