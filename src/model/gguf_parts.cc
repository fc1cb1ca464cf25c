#include "model/gguf_parts.h"

#include <charconv>
#include <cstdio>

namespace kvrm {

std::string GgufPartEnding(uint64_t part, uint64_t count) {
  char text[64];
  std::snprintf(text, sizeof text, "-%05llu-of-%05llu.gguf", static_cast<unsigned long long>(part),
                static_cast<unsigned long long>(count));
  return text;
}

std::optional<GgufPartName> ReadGgufPartName(std::string_view name) {
  const size_t ending_bytes = GgufPartEnding(1, 1).size();
  if (name.size() <= ending_bytes) return std::nullopt;
  GgufPartName result;
  result.stem = name.substr(0, name.size() - ending_bytes);
  const std::string_view ending = name.substr(result.stem.size());
  constexpr size_t kPartAt = 1, kCountAt = 10;  // behind "-", behind "-00002-of-"
  std::from_chars(ending.data() + kPartAt, ending.data() + ending.size(), result.part);
  std::from_chars(ending.data() + kCountAt, ending.data() + ending.size(), result.count);
  const bool named = ending == GgufPartEnding(result.part, result.count);
  const bool possible =
      result.part >= 1 && result.part <= result.count && result.count <= kMaxGgufParts;
  return named && possible ? std::optional(result) : std::nullopt;
}

}  // namespace kvrm
