#include "session/model_path.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "hub/cache.h"
#include "hub/hub.h"
#include "model/gguf.h"
#include "model/hub_folder.h"
#include "session/progress_bar.h"
#include "session/size_text.h"

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

bool IsFile(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool IsModelFolder(const std::string& path) { return IsFile(path + "/config.json"); }

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// A path that exists; NotFound when there is none.
Result<std::string> AsPath(const std::string& name) {
  if (IsFile(name) || IsModelFolder(name)) return name;
  std::error_code error;
  if (fs::is_directory(name, error)) {
    return InvalidInput("model '" + name + "': a directory without config.json, not a model");
  }
  if (fs::exists(name, error)) return InvalidInput("model '" + name + "': not a regular file");
  return NotFound("model '" + name + "': no such file");
}

Result<std::string> AsInstalled(const std::string& name, const std::string& models_dir) {
  const std::vector<std::string> installed = InstalledNames(models_dir);
  std::vector<std::string> matches;
  const std::string wanted = Lower(name);
  for (const std::string& model : installed) {
    const std::string lower = Lower(model);
    if (lower == wanted || lower == wanted + ".gguf") return models_dir + "/" + model;
    if (lower.compare(0, wanted.size(), wanted) == 0) matches.push_back(model);
  }
  if (matches.size() == 1) return models_dir + "/" + matches[0];
  if (matches.size() > 1) {
    return InvalidInput("model '" + name + "' could be each of " + Joined(matches));
  }
  return NotFound("model '" + name + "': no such file, nor an installed model (" +
                  (installed.empty() ? "none" : Joined(installed)) + " in " + models_dir +
                  "); `tools/get-model` gets the default model");
}

// Progress and notes of downloads, on standard error.
HubListener Narrator() {
  HubListener listener;
  listener.on_file = [](const std::string& file, uint64_t num_bytes) {
    const std::string label =
        "downloading " + fs::path(file).filename().string() + " (" + SizeText(num_bytes) + ")";
    auto bar = ProgressBar(label);
    if (!bar) std::fprintf(stderr, "%s\n", label.c_str());
    return bar;
  };
  listener.note = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  return listener;
}

// -hf with --hf-revision, which must not say something else.
Result<RepoSpec> HubSpecOf(const OptionValues& values) {
  auto spec = ParseRepoSpec(values.Text("hf-repo"));
  if (!spec.ok()) return Error{spec.error().kind, "-hf " + spec.error().message};
  const std::string& revision = values.Text("hf-revision");
  if (revision.empty()) return spec;
  if (!IsRevision(revision)) {
    return InvalidInput("--hf-revision '" + PrintableName(revision) +
                        "': takes a branch, a tag or a commit");
  }
  if (!spec->revision.empty() && spec->revision != revision) {
    return InvalidInput("-hf " + spec->Name() + " and --hf-revision " + revision +
                        ": give one of them");
  }
  spec->revision = revision;
  return spec;
}

}  // namespace

std::string CacheDir() {
  return EnvironmentOr("XDG_CACHE_HOME", EnvironmentOr("HOME", "") + "/.cache") + "/kvrm";
}

std::string ModelsDir() { return CacheDir() + "/models"; }

std::vector<std::string> InstalledNames(const std::string& dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".gguf" || IsModelFolder(it->path().string())) {
      names.push_back(it->path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

ModelPlaces UsersModels() { return {ModelsDir(), HubCacheDir()}; }

Result<std::string> FindModel(const std::string& name, const ModelPlaces& places) {
  if (name.empty()) {
    const std::string path = places.models_dir + "/" + kDefaultModel;
    if (IsFile(path)) return path;
    return NotFound("the default model is not installed (" + path + "); `tools/get-model` gets it");
  }
  auto path = AsPath(name);
  if (path.ok() || path.error().kind != ErrorKind::kNotFound) return path;
  if (name.find('/') == std::string::npos) return AsInstalled(name, places.models_dir);
  const auto spec = ParseRepoSpec(name);
  if (!spec.ok()) return path;
  auto cached = GetCachedModel(*spec, places.hub_cache_dir);
  if (cached.ok()) return cached;
  return Error{cached.error().kind,
               path.error().message + ", and of hubs: " + cached.error().message + "; -hf gets it"};
}

Result<std::string> ModelPathOf(const OptionValues& values) {
  const std::string& repo = values.Text("hf-repo");
  const bool has_model = values.Source("model") == ValueSource::kCommandLine;
  const bool has_repo = values.Source("hf-repo") == ValueSource::kCommandLine;
  if (has_model && has_repo) return InvalidInput("-m and -hf: give one of them");
  if (repo.empty() || has_model) {
    if (values.Source("hf-revision") == ValueSource::kCommandLine) {
      return InvalidInput("--hf-revision: belongs to -hf; with -m it is ORG/REPO@REVISION");
    }
    return FindModel(values.Text("model"));
  }
  KVRM_ASSIGN_OR_RETURN(const RepoSpec spec, HubSpecOf(values));
  KVRM_ASSIGN_OR_RETURN(const HubSettings settings, ReadHubSettings());
  return GetModel(spec, settings, Narrator());
}

std::string ModelNameOf(const std::string& path) {
  if (IsModelFolder(path)) return ModelFolderName(path);
  const std::string name = fs::path(path).filename().string();
  return name.ends_with(".gguf") ? name.substr(0, name.size() - 5) : name;
}

}  // namespace kvrm::cli
