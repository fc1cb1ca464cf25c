#include "models/installed_models.h"

#include <filesystem>

#include "hub/cache.h"
#include "hub/repo.h"
#include "model/describe.h"
#include "model/gguf.h"
#include "model/gguf_parts.h"

namespace kvrm::cli {
namespace {

InstalledModel Look(const std::string& name, const std::string& path, ModelPlace place) {
  InstalledModel model{.name = name, .path = path, .place = place};
  const auto file = GgufFile::Open(path);
  if (!file.ok()) {
    model.missing = file.error().message;
    return model;
  }
  const ModelDescription description = Describe(**file);
  model.bytes = description.file_bytes;
  for (const TensorTypeUse& use : description.types) {
    model.types += (model.types.empty() ? "" : " ") + use.type;
  }
  const auto family = (*file)->GetString("general.architecture", "");
  if (family.ok()) model.family = PrintableName(*family);
  std::error_code error;
  if (!description.missing.empty()) {
    model.missing = description.missing.front();
  } else if ((*file)->source() == ModelSource::kSafetensors &&
             !std::filesystem::exists(path + "/tokenizer.json", error)) {
    model.missing = "holds no tokenizer.json";
  }
  return model;
}

bool IsLaterPart(const std::string& file) {
  const auto part = ReadGgufPartName(file);
  return part && part->part > 1;
}

// The models of one snapshot: each GGUF file by its quant, where that is its alone, else by its
// path; or the folder. `name`: of the repository at the snapshot's revision.
void LookInSnapshot(const std::string& name, const std::string& snapshot,
                    const std::vector<std::string>& files, std::vector<InstalledModel>* models) {
  bool any = false;
  for (const std::string& file : files) {
    if (!file.ends_with(".gguf") || IsLaterPart(file)) continue;
    const auto by_quant = ChooseFiles(files, QuantOf(file));
    const bool is_first = by_quant.ok() && by_quant->files.front() == file;
    const std::string choice = is_first && !QuantOf(file).empty() ? QuantOf(file) : file;
    models->push_back(Look(name + ":" + choice, snapshot + "/" + file, ModelPlace::kHubCache));
    any = true;
  }
  const auto folder = ChooseFiles(files, "");
  if (!any && folder.ok()) models->push_back(Look(name, snapshot, ModelPlace::kHubCache));
}

void LookInRepo(const std::string& repo, const std::string& cache_dir,
                std::vector<InstalledModel>* models) {
  const RepoCache cache(cache_dir, repo);
  for (const std::string& revision : cache.Revisions()) {
    const std::string commit = cache.Commit(revision);
    const RepoSpec spec{.repo = repo, .revision = revision == kMainRevision ? "" : revision};
    LookInSnapshot(spec.Name(), cache.Snapshot(commit), cache.Files(commit), models);
  }
}

}  // namespace

std::vector<InstalledModel> FindInstalledModels(const ModelPlaces& places) {
  std::vector<InstalledModel> models;
  for (const std::string& name : InstalledNames(places.models_dir)) {
    const std::string path = places.models_dir + "/" + name;
    if (!IsLaterPart(name)) models.push_back(Look(ModelNameOf(path), path, ModelPlace::kModels));
  }
  for (const std::string& repo : CachedRepos(places.hub_cache_dir)) {
    LookInRepo(repo, places.hub_cache_dir, &models);
  }
  return models;
}

}  // namespace kvrm::cli
