#include "kvrm/commands.h"

#include <cstdio>

namespace kvrm::cli {
namespace {

std::string_view CommandName(CommandBit bit) {
  for (const CommandSpec& command : CommandTable()) {
    if (command.bit == bit) return command.name;
  }
  return "";
}

int Report(const OptionValues& values, const std::string& message, int exit_code) {
  const std::string_view name = CommandName(values.command());
  std::fflush(stdout);
  std::fprintf(stderr, "kvrm %.*s: %s\n", static_cast<int>(name.size()), name.data(),
               message.c_str());
  return exit_code;
}

}  // namespace

int Failed(const OptionValues& values, const Error& error) {
  return Report(values, error.message, kExitFailed);
}

int OutputFailed(const OptionValues& values) {
  return Report(values, "standard output cannot be written", kExitFailed);
}

int WriteOutput(const OptionValues& values, const std::string& output) {
  const bool written = std::fwrite(output.data(), 1, output.size(), stdout) == output.size() &&
                       std::fflush(stdout) == 0;
  return written ? kExitDone : OutputFailed(values);
}

int UsageError(const OptionValues& values, const std::string& message) {
  return Report(values, message, kExitUsage);
}

}  // namespace kvrm::cli
