// For work that must not be lost when memory is refused for a moment: the event that tells of an
// answer's end, the wake of the thread that is to read it.
#pragma once

#include <chrono>
#include <new>
#include <thread>

namespace kvrm {

// Calls `action` until it does not throw std::bad_alloc any more, with a pause between two calls.
// Requires: a call that throws has changed nothing. Thread-safe; not under a lock that those who
// give memory back may wait for.
template <class Action>
void RetryUntilMemory(const Action& action) {
  constexpr auto kPause = std::chrono::milliseconds(1);
  for (;;) {
    try {
      return action();
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(kPause);
    }
  }
}

}  // namespace kvrm
