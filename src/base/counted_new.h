// Counts every allocation of the binary that counted_new.cc is linked into. Test code only.
#pragma once

#include <cstdint>

namespace kvrm::testing {

// Calls of operator new so far, on all threads. Thread-safe.
uint64_t NumAllocations();
// Bytes that they asked for, all together; what was given back since is not taken off. Thread-safe.
uint64_t AllocatedBytes();

}  // namespace kvrm::testing
