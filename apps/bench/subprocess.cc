#include "bench/subprocess.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

extern char** environ;

namespace kvrm::cli {
namespace {

std::string ReadToEnd(int fd) {
  std::string text;
  char chunk[4096];
  while (true) {
    const ssize_t count = read(fd, chunk, sizeof(chunk));
    if (count > 0) {
      text.append(chunk, static_cast<size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      return text;
    }
  }
}

// A spawned process begins with its parent's peak of resident bytes as its own: Linux keeps it over
// the exec. Where this is not allowed, its peak is told as no less than ours.
void ForgetOwnPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }

}  // namespace

Result<ProgramRun> RunMeasuredProgram(const std::vector<std::string>& command) {
  KVRM_CHECK(!command.empty(), "a command has at least a program");
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
    return Unavailable(std::string("pipe: ") + std::strerror(errno));
  }
  ForgetOwnPeak();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = -1;
  const int started =
      posix_spawn(&child, command[0].c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_fds[1]);
  if (started != 0) {
    close(pipe_fds[0]);
    return NotFound("'" + CommandLine(command) + "': " + std::strerror(started));
  }
  ProgramRun run;
  run.output = ReadToEnd(pipe_fds[0]);
  close(pipe_fds[0]);
  int status = 0;
  rusage usage{};
  while (wait4(child, &status, 0, &usage) < 0 && errno == EINTR) continue;
  run.peak_resident_bytes = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return run;
  const std::string how = WIFEXITED(status) ? "exit code " + std::to_string(WEXITSTATUS(status))
                                            : "signal " + std::to_string(WTERMSIG(status));
  return Unavailable("'" + CommandLine(command) + "' ended with " + how);
}

Result<std::string> RunProgram(const std::vector<std::string>& command) {
  KVRM_ASSIGN_OR_RETURN(ProgramRun run, RunMeasuredProgram(command));
  return std::move(run.output);
}

std::string CommandLine(const std::vector<std::string>& command) {
  std::string line;
  for (const std::string& word : command) {
    if (!line.empty()) line += ' ';
    if (word.find_first_of(" '\"\\$&;|<>()*?") == std::string::npos && !word.empty()) {
      line += word;
      continue;
    }
    line += '\'';
    for (char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

}  // namespace kvrm::cli
