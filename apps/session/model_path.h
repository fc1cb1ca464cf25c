// Which file `-m` means: a path, or the name of a model in the user's cache.
#pragma once

#include <string>

#include "base/result.h"

namespace kvrm::cli {

inline constexpr char kDefaultModel[] = "SmolLM2-135M-Instruct.Q4_1.gguf";

// ${XDG_CACHE_HOME:-~/.cache}/kvrm
std::string CacheDir();
std::string ModelsDir();  // CacheDir()/models

// `name`: "" = the default model; a path to a file; or an installed model's name, with or without
// ".gguf", whole or as a prefix that only one file has, case ignored. Errors: kNotFound with what
// is installed and how to get the default; ambiguous prefixes with their matches.
Result<std::string> FindModel(const std::string& name, const std::string& models_dir);

}  // namespace kvrm::cli
