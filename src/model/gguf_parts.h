// Names of the files of a split model: NAME-00001-of-00003.gguf. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvrm {

inline constexpr uint64_t kMaxGgufParts = 999;

struct GgufPartName {
  std::string stem;   // "dir/NAME"
  uint64_t part = 0;  // from 1
  uint64_t count = 0;
};

// "-00002-of-00003.gguf"
std::string GgufPartEnding(uint64_t part, uint64_t count);

// nullopt: no name of a part, or numbers that no split model has.
std::optional<GgufPartName> ReadGgufPartName(std::string_view name);

}  // namespace kvrm
