#include "script_log.h"

#include <csignal>
#include <cstdio>

namespace kvrm::heart {
namespace {

Script g_script;

// Not async-signal-safe, and need not be: abort() was called by this thread, in a check.
void PrintScript(int) {
  std::signal(SIGABRT, SIG_DFL);
  std::fprintf(stderr, "\nthe script that stopped the process:\n%s", ToText(g_script).c_str());
}

}  // namespace

void BeginScriptLog(uint32_t setup) {
  static const auto previous = std::signal(SIGABRT, PrintScript);
  (void)previous;
  g_script.setup = setup;
  g_script.commands.clear();
}

void LogCommand(const Command& command) { g_script.commands.push_back(command); }

}  // namespace kvrm::heart
