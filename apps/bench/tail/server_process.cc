#include "bench/tail/server_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "bench/subprocess.h"

extern char** environ;

namespace kvrm::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLookAgain = std::chrono::milliseconds(50);

}  // namespace

Result<ServerProcess> ServerProcess::Start(std::vector<std::string> command, std::string log,
                                           std::optional<int> talk) {
  KVRM_CHECK(!command.empty(), "a command has at least a program");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
  if (talk) {
    posix_spawn_file_actions_adddup2(&actions, *talk, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, *talk, STDOUT_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  }
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t pid = -1;
  const int started =
      posix_spawn(&pid, command[0].c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (started != 0) {
    return NotFound("'" + CommandLine(command) + "': " + std::strerror(started));
  }
  return ServerProcess(pid, std::move(command), std::move(log));
}

ServerProcess::ServerProcess(ServerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      command_(std::move(other.command_)),
      log_(std::move(other.log_)) {}

void ServerProcess::Stop() {
  if (pid_ < 0) return;
  kill(pid_, SIGTERM);
  const auto patient_until = Clock::now() + std::chrono::seconds(10);
  while (!HasEnded()) {
    if (Clock::now() > patient_until) kill(pid_, SIGKILL);
    std::this_thread::sleep_for(kLookAgain);
  }
}

bool ServerProcess::HasEnded() {
  if (pid_ < 0) return true;
  const pid_t ended = waitpid(pid_, nullptr, WNOHANG);
  if (ended == 0 || (ended < 0 && errno == EINTR)) return false;
  pid_ = -1;
  return true;
}

std::string ServerProcess::Log() const {
  std::ifstream file(log_, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Error ServerProcess::NotReady(const std::string& why) const {
  std::string log = Log();
  while (log.ends_with('\n')) log.pop_back();
  return Unavailable("'" + CommandLine(command_) + "' " + why + "; its last line: " +
                     log.substr(log.rfind('\n') + 1));  // npos + 1 is the beginning
}

Result<ServerFacts> ServerProcess::AwaitReady(const LoadTarget& target, double timeout_s) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s);
  for (;;) {
    if (HasEnded()) return NotReady("ended before it was ready");
    Result<ServerFacts> facts = AskModels(target);
    if (facts.ok()) return facts;
    if (Clock::now() > deadline) return NotReady("was not ready in time");
    std::this_thread::sleep_for(kLookAgain);
  }
}

Result<uint16_t> FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  const bool found = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (!found) return Unavailable(std::string("no free port: ") + std::strerror(error));
  return ntohs(address.sin_port);
}

}  // namespace kvrm::cli
