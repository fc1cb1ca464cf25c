// Counts every allocation of the binary that counted_new.cc is linked into. Test code only.
#pragma once

#include <cstdint>

namespace kvrm::testing {

// Calls of operator new so far, on all threads. Thread-safe.
uint64_t NumAllocations();

}  // namespace kvrm::testing
