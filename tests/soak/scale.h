// How much of a long run a test does: a slice, or what tools/soak asks for. Test code.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

namespace kvrm::testing {

// The number in the environment variable `name`, else `slice`.
inline uint64_t ScaleOf(const char* name, uint64_t slice) {
  const char* text = std::getenv(name);
  return text == nullptr ? slice : std::strtoull(text, nullptr, 10);
}

}  // namespace kvrm::testing
