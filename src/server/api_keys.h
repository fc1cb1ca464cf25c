// API keys: who may ask, whose prefixes are shared, how much each may ask for. Immutable after
// creation; thread-safe.
//
// A key file holds one key a line: `KEY [name=NAME] [max-requests=N] [max-priority=N]`; blank lines
// and lines that begin with # are skipped. Secrets never appear in errors, logs or metrics: there a
// key is its name, or `key-N` by its place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvrm {

struct ApiKey {
  std::string secret;  // 1..256 visible ASCII characters
  std::string name;
  uint32_t max_requests = 0;  // answers under way at once; 0 = no bound of its own
  int32_t max_priority = 0;   // the most urgent `priority` that its requests may ask for
};

class ApiKeys {
 public:
  ApiKeys() = default;
  // `secrets`: keys without further settings (--api-key). `file` "" = none. Errors name file and
  // line; the file is read once.
  static Result<ApiKeys> Load(const std::vector<std::string>& secrets, const std::string& file);
  // The lines of a key file, appended to `keys`.
  static Status ParseFile(std::string_view text, const std::string& name,
                          std::vector<ApiKey>& keys);

  bool empty() const { return keys_.empty(); }  // then everybody may ask
  size_t size() const { return keys_.size(); }
  const ApiKey& operator[](uint32_t index) const { return keys_[index]; }
  // The key that `presented` is. Takes as long whichever key matches, and however far.
  std::optional<uint32_t> Find(std::string_view presented) const;

 private:
  std::vector<ApiKey> keys_;
};

// Time depends on the length of `presented` alone.
bool EqualInConstantTime(std::string_view secret, std::string_view presented);

}  // namespace kvrm
