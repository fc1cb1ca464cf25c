#include "base/check.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "base/last_words.h"

namespace kvrm {
namespace {

thread_local int traps = 0;

std::mutex last_words_mutex;
LastWords last_words = nullptr;  // guarded by it, as is the argument
void* last_words_arg = nullptr;

// Once: a check that fails in the last words ends the process without more of them.
void SayLastWords() {
  LastWords say = nullptr;
  void* arg = nullptr;
  {
    const std::lock_guard lock(last_words_mutex);
    say = std::exchange(last_words, nullptr);
    arg = last_words_arg;
  }
  if (say != nullptr) say(arg);
}

}  // namespace

void SetLastWords(LastWords say, void* arg) {
  const std::lock_guard lock(last_words_mutex);
  last_words = say;
  last_words_arg = arg;
}

CheckTrap::CheckTrap() { ++traps; }
CheckTrap::~CheckTrap() { --traps; }

void CheckFailed(const char* expr, const char* law, const char* file, int line) {
  if (traps > 0) {
    CheckFailure failure;
    std::snprintf(failure.text, sizeof failure.text, "%s [%s] at %s:%d", law, expr, file, line);
    throw failure;
  }
  std::fprintf(stderr, "CHECK failed: %s [%s] at %s:%d\n", law, expr, file, line);
  std::fflush(stderr);
  SayLastWords();
  std::abort();
}

}  // namespace kvrm
