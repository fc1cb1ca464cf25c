#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace kvrm {

void CheckFailed(const char* expr, const char* law, const char* file, int line) {
  std::fprintf(stderr, "CHECK failed: %s [%s] at %s:%d\n", law, expr, file, line);
  std::fflush(stderr);
  std::abort();
}

}  // namespace kvrm
