#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace kvrm {
namespace {

thread_local int traps = 0;

}  // namespace

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
  std::abort();
}

}  // namespace kvrm
