// heart_script: runs scripts of the verb language, for whoever looks at a failure.
//
//     heart_script FILE...                     run; what disagrees, or "ok"
//     heart_script --edits FILE...             the same, and fail after every edit
//     heart_script --shrink FILE               the fewest lines that still fail, also by a signal
//     heart_script --bytes FILE OUT            as input of fuzz_verbs
//     heart_script --text FILE                 an input of fuzz_verbs as a script
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "heart_machine.h"
#include "random_scripts.h"
#include "script_log.h"

namespace kvrm::heart {
namespace {

std::string ReadFile(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "%s: cannot be read\n", path);
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

Script ReadScript(const char* path) {
  std::string error;
  const auto script = ParseScript(ReadFile(path), &error);
  if (!script) {
    std::fprintf(stderr, "%s: %s\n", path, error.c_str());
    std::exit(2);
  }
  return *script;
}

// In a process of its own, because a check may end it.
bool Fails(const Script& script, const MachineOptions& options) {
  const pid_t child = fork();
  if (child == 0) {
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDERR_FILENO);
    _exit(RunScript(script, options) ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

// Takes lines away, in halves, quarters and so on, then makes single lines simpler.
Script Shrink(Script script, const MachineOptions& options) {
  for (size_t length = script.commands.size() / 2; length > 0;) {
    bool shorter = false;
    for (size_t at = 0; at + length <= script.commands.size();) {
      Script less = script;
      const auto begin = less.commands.begin() + static_cast<ptrdiff_t>(at);
      less.commands.erase(begin, begin + static_cast<ptrdiff_t>(length));
      if (Fails(less, options)) {
        script = less;
        shorter = true;
      } else {
        at += length;
      }
    }
    if (length == 1 && shorter) continue;
    length /= 2;
  }
  for (size_t i = 0; i < script.commands.size();) {
    bool simpler = false;
    for (const Command& command : Simpler(script.commands[i])) {
      Script less = script;
      less.commands[i] = command;
      if (!Fails(less, options)) continue;
      script = less;
      simpler = true;
      break;
    }
    if (!simpler) ++i;
  }
  return script;
}

int RunFiles(const std::vector<const char*>& paths, const MachineOptions& options) {
  int status = 0;
  for (const char* path : paths) {
    const auto wrong = RunScript(ReadScript(path), options);
    std::printf("%s: %s\n", path, wrong ? wrong->c_str() : "ok");
    if (wrong) status = 1;
  }
  return status;
}

int Main(int argc, char** argv) {
  const std::string option = argc > 1 ? argv[1] : "";
  const std::vector<const char*> rest(argv + std::min(argc, 2), argv + argc);
  if (option == "--shrink" && rest.size() == 1) {
    const Script script = ReadScript(rest[0]);
    for (const bool edits : {false, true}) {
      const MachineOptions options{.fail_after_every_edit = edits};
      if (!Fails(script, options)) continue;
      std::fputs(ToText(Shrink(script, options)).c_str(), stdout);
      return 0;
    }
    std::puts("it does not fail");
    return 1;
  }
  if (option == "--bytes" && rest.size() == 2) {
    const auto bytes = BytesOfScript(ReadScript(rest[0]));
    std::ofstream(rest[1], std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return 0;
  }
  if (option == "--text" && rest.size() == 1) {
    const std::string bytes = ReadFile(rest[0]);
    const Script script =
        ScriptOfBytes({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    std::fputs(ToText(script).c_str(), stdout);
    return 0;
  }
  if (option == "--edits") return RunFiles(rest, {.fail_after_every_edit = true});
  if (argc > 1 && option[0] != '-') return RunFiles({argv + 1, argv + argc}, {});
  std::fputs("heart_script [--edits] FILE... | --shrink FILE | --bytes FILE OUT | --text FILE\n",
             stderr);
  return 2;
}

}  // namespace
}  // namespace kvrm::heart

int main(int argc, char** argv) { return kvrm::heart::Main(argc, argv); }
