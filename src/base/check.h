// KVRM_CHECK: a bug stops the process, naming the law that broke. Never for input or for room.
//
// Tiers by build (KVRM_CHECK_TIER): 0 release, 1 cheap, 2 linear after each step, 3 after each
// call. KVRM_CHECK is always on; KVRM_DCHECK(tier, ...) only from that tier up. Tests run at 3.
#pragma once

namespace kvrm {

// Prints "CHECK failed: <law> [<expr>] at <file>:<line>" to stderr and aborts; under a CheckTrap of
// the same thread it throws CheckFailure instead. Thread-safe.
[[noreturn]] void CheckFailed(const char* expr, const char* law, const char* file, int line);

// That line, cut to what fits: a copy, because a law's text may die while the stack unwinds.
struct CheckFailure {
  char text[240];
};

// While one lives, checks that fail on its thread throw. Only for the boundary of a library that
// may not stop its host's process (src/capi): what was being changed is left half done, so whoever
// traps has to validate it before going on. Nothing on the way may be noexcept.
class CheckTrap {
 public:
  CheckTrap();
  ~CheckTrap();
  CheckTrap(const CheckTrap&) = delete;
  CheckTrap& operator=(const CheckTrap&) = delete;
};

}  // namespace kvrm

#define KVRM_CHECK(expr, law)                              \
  do {                                                     \
    if (!(expr)) [[unlikely]]                              \
      ::kvrm::CheckFailed(#expr, law, __FILE__, __LINE__); \
  } while (false)

#ifndef KVRM_CHECK_TIER
#define KVRM_CHECK_TIER 1
#endif

#define KVRM_DCHECK(tier, expr, law)                                \
  do {                                                              \
    if constexpr (KVRM_CHECK_TIER >= (tier)) KVRM_CHECK(expr, law); \
  } while (false)
