// Bytes as people read them. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>

namespace kvrm::cli {

// "1.5 GiB"
std::string SizeText(uint64_t bytes);

}  // namespace kvrm::cli
