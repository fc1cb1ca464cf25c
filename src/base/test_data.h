// Where tests find data (docs/architecture.md, section 9, point 10). Test code only.
//
// What tests must have lies in tests/data of the project. Larger sets are read from KVRM_DATA,
// default ../shared/data beside the project; where that folder is absent the test is skipped by
// name, and with CI=true its absence is a failure. The same for the default model.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace kvrm::testing {

inline std::string EnvOr(const char* name, const std::string& fallback) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : fallback;
}

inline std::string ProjectDataDir() { return std::string(KVRM_SOURCE_DIR) + "/tests/data"; }

inline std::string DataDir() {
  return EnvOr("KVRM_DATA", std::string(KVRM_SOURCE_DIR) + "/../shared/data");
}

inline std::string DefaultModelPath() {
  const std::string cache = EnvOr("XDG_CACHE_HOME", EnvOr("HOME", "") + "/.cache");
  return EnvOr("KVRM_MODEL", cache + "/kvrm/models/SmolLM2-135M-Instruct.Q4_1.gguf");
}

inline bool InCi() { return EnvOr("CI", "") == "true"; }
inline bool Exists(const std::string& path) { return std::filesystem::exists(path); }

}  // namespace kvrm::testing

// Skips the test when `path` is absent; fails it in CI.
#define KVRM_REQUIRE_DATA(path)                                             \
  if (!::kvrm::testing::Exists(path)) {                                     \
    if (::kvrm::testing::InCi()) FAIL() << "missing test data: " << (path); \
    GTEST_SKIP() << "missing test data: " << (path);                        \
  }                                                                         \
  static_assert(true)
