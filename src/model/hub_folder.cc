#include "model/hub_folder.h"

#include <filesystem>
#include <set>
#include <utility>

#include "model/family.h"
#include "model/generation_defaults.h"
#include "model/hub_config.h"
#include "model/mapped_file.h"
#include "model/model_tensors.h"
#include "model/safetensors.h"
#include "model/safetensors_index.h"

namespace kvrm {
namespace {

class HubFolder final : public GgufFile {
 public:
  Status Read(const std::string& folder) {
    folder_ = std::filesystem::path(folder);
    name_ = folder;
    source_ = ModelSource::kSafetensors;
    KVRM_RETURN_IF_ERROR(ReadConfigFile());
    KVRM_RETURN_IF_ERROR(ReadGenerationFile());
    KVRM_RETURN_IF_ERROR(ReadTensors());
    if (config_.own_head && !hub_names_.contains("lm_head.weight")) {
      return InvalidInput(folder +
                          ": tensor 'lm_head.weight' is missing, though config.json says " +
                          "that the head is not the embedding");
    }
    return OrderNames();
  }

 private:
  Error In(const std::string& file, const Error& error) const {
    return {error.kind, (folder_ / file).string() + ": " + error.message};
  }

  static std::string_view TextOf(const MappedFile& file) {
    const auto bytes = file.bytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  bool Has(const char* file) const {
    std::error_code ignored;
    return std::filesystem::exists(folder_ / file, ignored);
  }

  Status ReadConfigFile() {
    KVRM_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(folder_ / "config.json"));
    auto config = ReadHubConfig(TextOf(file), ModelFolderName(folder_.string()));
    if (!config.ok()) return In("config.json", config.error());
    config_ = std::move(config).value();
    metadata_ = std::move(config_.metadata);
    const auto* family = std::get_if<std::string>(&metadata_.front().second.data);
    post_norms_ = FindFamily(*family)->post_norms;
    return Ok();
  }

  Status ReadGenerationFile() {
    constexpr const char* kFile = "generation_config.json";
    if (!Has(kFile)) return Ok();
    KVRM_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(folder_ / kFile));
    auto defaults = ReadHubGeneration(TextOf(file));
    if (!defaults.ok()) return In(kFile, defaults.error());
    for (auto& entry : *defaults) metadata_.push_back(std::move(entry));
    return Ok();
  }

  Status ReadTensors() {
    if (!config_.rope_factors.empty()) {
      const auto bytes = std::as_bytes(std::span(config_.rope_factors));
      const uint64_t count = config_.rope_factors.size();
      tensors_.push_back({std::string(kRopeFactorsTensor), DType::kF32, {count}, count, bytes});
    }
    if (!Has(kSafetensorsIndex)) return ReadFile(kSafetensorsFile);
    KVRM_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(folder_ / kSafetensorsIndex));
    const auto index = ParseSafetensorsIndex(TextOf(file));
    if (!index.ok()) return In(kSafetensorsIndex, index.error());
    std::set<std::string> files;
    for (const auto& [tensor, part] : *index) files.insert(part);
    for (const std::string& part : files) KVRM_RETURN_IF_ERROR(ReadFile(part));
    for (const auto& [tensor, part] : *index) {
      if (hub_names_.contains(tensor)) continue;
      return In(kSafetensorsIndex,
                InvalidInput("tensor '" + PrintableName(tensor) + "' is in none of " +
                             std::to_string(files.size()) + " files"));
    }
    return Ok();
  }

  Status ReadFile(const std::string& file) {
    KVRM_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(folder_ / file));
    auto tensors = ParseSafetensors(mapped.bytes());
    if (!tensors.ok()) return In(file, tensors.error());
    file_bytes_ += mapped.bytes().size();
    mapped.Release(mapped.bytes());  // parsed: what a load needs, it reads again
    files_.push_back(std::move(mapped));
    for (GgufTensor& tensor : *tensors) {
      hub_names_.insert(tensor.name);
      // Old files carry the frequencies, which follow from the configuration.
      if (tensor.name.ends_with("rotary_emb.inv_freq")) continue;
      tensor.name = GgufTensorName(tensor.name, post_norms_);
      if (tensor.name == kOutputTensor && config_.tied_head) continue;
      tensors_.push_back(std::move(tensor));
    }
    return Ok();
  }

  std::filesystem::path folder_;
  HubConfig config_;  // rope_factors are viewed by a tensor
  bool post_norms_ = false;
  std::set<std::string> hub_names_;
};

}  // namespace

std::string ModelFolderName(const std::string& folder) {
  std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "dir/"
  constexpr std::string_view kPrefix = "models--", kSlash = "--";
  const std::filesystem::path snapshots = path.parent_path();
  const std::string repo = snapshots.parent_path().filename().string();
  const size_t slash = repo.find(kSlash, kPrefix.size());
  if (snapshots.filename() != "snapshots" || !repo.starts_with(kPrefix) ||
      slash == std::string::npos) {
    return path.filename().string();
  }
  return repo.substr(kPrefix.size(), slash - kPrefix.size()) + "/" +
         repo.substr(slash + kSlash.size());
}

Result<std::unique_ptr<const GgufFile>> OpenHubFolder(const std::string& folder) {
  auto opened = std::make_unique<HubFolder>();
  KVRM_RETURN_IF_ERROR(opened->Read(folder));
  return std::unique_ptr<const GgufFile>(std::move(opened));
}

}  // namespace kvrm
