// model.safetensors.index.json: which file of a folder holds which tensor. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace kvrm {

inline constexpr char kSafetensorsIndex[] = "model.safetensors.index.json";
inline constexpr char kSafetensorsFile[] = "model.safetensors";  // of a folder without an index

// Tensor and file, in the text's order. Errors, one line without the file's name: no JSON object,
// no weight_map, a file that is no plain name of a file beside the index.
Result<std::vector<std::pair<std::string, std::string>>> ParseSafetensorsIndex(
    std::string_view text);

}  // namespace kvrm
