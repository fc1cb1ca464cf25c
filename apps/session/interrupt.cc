#include "session/interrupt.h"

#include <csignal>

namespace kvrm::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void OnInterrupt(int) { interrupted = 1; }

}  // namespace

void CatchInterrupts() {
  struct sigaction action{};
  action.sa_handler = OnInterrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a read that waits for a line returns
  sigaction(SIGINT, &action, nullptr);
}

bool TakeInterrupt() {
  const bool was_set = interrupted != 0;
  interrupted = 0;
  return was_set;
}

}  // namespace kvrm::cli
