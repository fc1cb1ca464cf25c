#include "session/model_path.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <vector>

namespace kvrm::cli {
namespace {

namespace fs = std::filesystem;

std::string EnvironmentOr(const char* name, const std::string& fallback) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : fallback;
}

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Names of the *.gguf files in `dir`, sorted.
std::vector<std::string> InstalledModels(const std::string& dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".gguf") names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

bool IsFile(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

}  // namespace

std::string CacheDir() {
  return EnvironmentOr("XDG_CACHE_HOME", EnvironmentOr("HOME", "") + "/.cache") + "/kvrm";
}

std::string ModelsDir() { return CacheDir() + "/models"; }

Result<std::string> FindModel(const std::string& name, const std::string& models_dir) {
  if (name.empty()) {
    const std::string path = models_dir + "/" + kDefaultModel;
    if (IsFile(path)) return path;
    return NotFound("the default model is not installed (" + path + "); `tools/get-model` gets it");
  }
  if (IsFile(name)) return name;
  std::error_code error;
  if (fs::is_directory(name, error)) {
    if (IsFile(name + "/config.json")) return name;  // as hubs have them
    return InvalidInput("model '" + name + "': a directory without config.json, not a model");
  }
  if (fs::exists(name, error)) {
    return InvalidInput("model '" + name + "': not a regular file");
  }
  if (name.find('/') != std::string::npos) {
    return NotFound("model '" + name + "': no such file");
  }
  const std::vector<std::string> installed = InstalledModels(models_dir);
  std::vector<std::string> matches;
  const std::string wanted = Lower(name);
  for (const std::string& file : installed) {
    const std::string lower = Lower(file);
    if (lower == wanted || lower == wanted + ".gguf") return models_dir + "/" + file;
    if (lower.compare(0, wanted.size(), wanted) == 0) matches.push_back(file);
  }
  if (matches.size() == 1) return models_dir + "/" + matches[0];
  if (matches.size() > 1) {
    return InvalidInput("model '" + name + "' could be each of " + Joined(matches));
  }
  return NotFound("model '" + name + "': no such file, nor an installed model (" +
                  (installed.empty() ? "none" : Joined(installed)) + " in " + models_dir +
                  "); `tools/get-model` gets the default model");
}

}  // namespace kvrm::cli
