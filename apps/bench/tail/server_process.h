// A server that a benchmark starts and stops itself. Thread-compatible.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/load/server_probe.h"

namespace kvrm::cli {

class ServerProcess {
 public:
  // Starts `command` ([0] is a path); what it prints goes to the file `log`. With `talk`, a file
  // descriptor, that is its standard input and output, and the log has what it says of errors; the
  // caller keeps it. Errors: it cannot be started.
  static Result<ServerProcess> Start(std::vector<std::string> command, std::string log,
                                     std::optional<int> talk = std::nullopt);
  ~ServerProcess() { Stop(); }
  // SIGTERM; SIGKILL where it has not ended ten seconds later. Nothing where it has ended.
  void Stop();
  ServerProcess(ServerProcess&& other) noexcept;
  ServerProcess& operator=(ServerProcess&&) = delete;

  // Until it lists a model at `target`. Errors: it ended, or `timeout_s` passed; with the last line
  // that it printed.
  Result<ServerFacts> AwaitReady(const LoadTarget& target, double timeout_s);
  bool HasEnded();

  int64_t pid() const { return pid_; }
  std::string Log() const;  // what it has printed
  const std::vector<std::string>& command() const { return command_; }
  // Why it cannot be asked, with the last line that it printed.
  Error NotReady(const std::string& why) const;

 private:
  ServerProcess(pid_t pid, std::vector<std::string> command, std::string log)
      : pid_(pid), command_(std::move(command)), log_(std::move(log)) {}

  pid_t pid_;  // -1: moved from, or ended and waited for
  std::vector<std::string> command_;
  std::string log_;
};

// A port of the loopback address that nobody listens at now. Errors: the system has none.
Result<uint16_t> FreePort();

}  // namespace kvrm::cli
