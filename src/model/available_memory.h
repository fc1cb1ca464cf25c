// How much memory a load may take now. Reads the system's files; thread-safe.
#pragma once

#include <cstdint>

namespace kvrm {

// The least of what the machine has available (reclaimable cache counted) and what this process's
// cgroup still allows. UINT64_MAX when the system says neither.
uint64_t AvailableMemoryBytes();

}  // namespace kvrm
