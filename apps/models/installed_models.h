// The models that are on this machine under names that -m takes. Reads files; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "session/model_path.h"

namespace kvrm::cli {

enum class ModelPlace : uint8_t { kModels, kHubCache };

struct InstalledModel {
  std::string name;  // for -m
  std::string path;  // a GGUF file (the first, where it is split) or a folder
  ModelPlace place = ModelPlace::kModels;
  uint64_t bytes = 0;         // of all its files
  std::string family, types;  // "llama", "Q4_1 F32": types by bytes, the largest first
  std::string missing;        // why it cannot be run; empty = it can
};

// Sorted by place and name. What is in neither place's form is left out.
std::vector<InstalledModel> FindInstalledModels(const ModelPlaces& places);

}  // namespace kvrm::cli
