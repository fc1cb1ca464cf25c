// Which file or folder `-m` and `-hf` mean: a path, the name of a model in the user's cache, or a
// repository of a hub.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "options/option_values.h"

namespace kvrm::cli {

inline constexpr char kDefaultModel[] = "SmolLM2-135M-Instruct.Q4_1.gguf";

// ${XDG_CACHE_HOME:-~/.cache}/kvrm
std::string CacheDir();
std::string ModelsDir();  // CacheDir()/models

// Where models lie that have names.
struct ModelPlaces {
  std::string models_dir;
  std::string hub_cache_dir;
};
ModelPlaces UsersModels();
// File names of the *.gguf files and the model folders in `dir`, sorted.
std::vector<std::string> InstalledNames(const std::string& dir);

// `name`: "" = the default model; a path to a file or to a folder with config.json; an installed
// file's or folder's name, a file's with or without ".gguf", whole or as a prefix that only one
// has, case ignored; or ORG/REPO[@REVISION][:QUANT] of the hub's cache. Nothing is fetched. Errors:
// kNotFound with what is installed and how to get the default; ambiguous prefixes with their
// matches.
Result<std::string> FindModel(const std::string& name, const ModelPlaces& places = UsersModels());

// What -hf names, fetched with a progress bar as far as the cache lacks it; else what -m names.
// Requires: the command has both options. Errors: those of FindModel and GetModel; both on one
// command line; --hf-revision without -hf, or another than -hf says.
Result<std::string> ModelPathOf(const OptionValues& values);

// What a model at `path` is called: a folder's ModelFolderName, a file's name without ".gguf".
std::string ModelNameOf(const std::string& path);

}  // namespace kvrm::cli
