// KVRM_CHECK: a bug stops the process, naming the law that broke. Never for input or for room.
//
// Tiers by build (KVRM_CHECK_TIER): 0 release, 1 cheap, 2 linear after each step, 3 after each
// call. KVRM_CHECK is always on; KVRM_DCHECK(tier, ...) only from that tier up. Tests run at 3.
#pragma once

namespace kvrm {

// Prints "CHECK failed: <law> [<expr>] at <file>:<line>" to stderr and aborts. Thread-safe.
[[noreturn]] void CheckFailed(const char* expr, const char* law, const char* file, int line);

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
