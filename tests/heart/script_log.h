// The script that runs, so that a check which stops the process leaves it behind: on SIGABRT it is
// printed to stderr, ready to be saved and run again by heart_script.
#pragma once

#include "verb_script.h"

namespace kvrm::heart {

void BeginScriptLog(uint32_t setup);
void LogCommand(const Command& command);

}  // namespace kvrm::heart
