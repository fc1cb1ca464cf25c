#include "model/hub_folder.h"

#include <boost/json.hpp>
#include <filesystem>
#include <set>
#include <utility>

#include "model/family.h"
#include "model/hub_config.h"
#include "model/mapped_file.h"
#include "model/model_tensors.h"
#include "model/safetensors.h"

namespace kvrm {
namespace {

namespace json = boost::json;

class HubFolder final : public GgufFile {
 public:
  Status Read(const std::string& folder) {
    folder_ = std::filesystem::path(folder);
    name_ = folder;
    source_ = ModelSource::kSafetensors;
    KVRM_RETURN_IF_ERROR(ReadConfigFile());
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

  Status ReadConfigFile() {
    const std::string path = folder_ / "config.json";
    KVRM_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
    const auto bytes = file.bytes();
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    auto config = ReadHubConfig(text, folder_.filename().string());
    if (!config.ok()) return In("config.json", config.error());
    config_ = std::move(config).value();
    metadata_ = std::move(config_.metadata);
    const auto* family = std::get_if<std::string>(&metadata_.front().second.data);
    post_norms_ = FindFamily(*family)->post_norms;
    return Ok();
  }

  Status ReadTensors() {
    if (!config_.rope_factors.empty()) {
      const auto bytes = std::as_bytes(std::span(config_.rope_factors));
      const uint64_t count = config_.rope_factors.size();
      tensors_.push_back({std::string(kRopeFactorsTensor), DType::kF32, {count}, count, bytes});
    }
    constexpr const char* kIndex = "model.safetensors.index.json";
    std::error_code ignored;
    if (!std::filesystem::exists(folder_ / kIndex, ignored)) return ReadFile("model.safetensors");
    KVRM_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(folder_ / kIndex));
    const auto bytes = file.bytes();
    json::error_code error;
    const json::value index =
        json::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, error);
    const json::object* root = error ? nullptr : index.if_object();
    const json::value* map = root == nullptr ? nullptr : root->if_contains("weight_map");
    if (map == nullptr || !map->is_object()) return In(kIndex, InvalidInput("has no weight_map"));
    std::set<std::string> files;
    for (const auto& [tensor, value] : map->get_object()) {
      const std::string part = value.is_string() ? std::string(value.get_string()) : "";
      if (part.empty() || part.find_first_of("/\\") != std::string::npos) {
        return In(kIndex, InvalidInput("tensor '" + PrintableName(tensor) + "' lies in '" +
                                       PrintableName(part) + "', must be a file of the folder"));
      }
      files.insert(part);
    }
    for (const std::string& part : files) KVRM_RETURN_IF_ERROR(ReadFile(part));
    for (const auto& [tensor, value] : map->get_object()) {
      if (hub_names_.contains(std::string(tensor))) continue;
      return In(kIndex, InvalidInput("tensor '" + PrintableName(tensor) + "' is in none of " +
                                     std::to_string(files.size()) + " files"));
    }
    return Ok();
  }

  Status ReadFile(const std::string& file) {
    KVRM_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(folder_ / file));
    auto tensors = ParseSafetensors(mapped.bytes());
    if (!tensors.ok()) return In(file, tensors.error());
    file_bytes_ += mapped.bytes().size();
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
  std::vector<MappedFile> files_;
  std::set<std::string> hub_names_;
};

}  // namespace

Result<std::unique_ptr<const GgufFile>> OpenHubFolder(const std::string& folder) {
  auto opened = std::make_unique<HubFolder>();
  KVRM_RETURN_IF_ERROR(opened->Read(folder));
  return std::unique_ptr<const GgufFile>(std::move(opened));
}

}  // namespace kvrm
