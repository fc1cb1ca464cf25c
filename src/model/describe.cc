#include "model/describe.h"

#include <algorithm>

#include "model/weight_plan.h"

namespace kvrm {
namespace {

std::vector<TensorTypeUse> TypesOf(const GgufFile& file) {
  std::vector<TensorTypeUse> types;
  for (const GgufTensor& tensor : file.tensors()) {
    const DTypeInfo& info = GetDType(tensor.type);
    auto at = std::find_if(types.begin(), types.end(),
                           [&](const TensorTypeUse& use) { return use.type == info.name; });
    if (at == types.end()) {
      at = types.insert(at, {std::string(info.name), info.readable});
    }
    ++at->tensors;
    // Saturates nowhere: tensors do not overlap, so the sums are bounded by the file.
    at->values += tensor.num_values;
    at->bytes += tensor.data.size();
  }
  std::sort(types.begin(), types.end(), [](const TensorTypeUse& a, const TensorTypeUse& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.type < b.type;
  });
  return types;
}

// Prompt rows of the widest program: what a sliding group may hold beside its window.
constexpr uint32_t kStepTokens = 512;

Result<KvDescription> KvOf(const ModelConfig& config, KvFormat format) {
  KVRM_ASSIGN_OR_RETURN(const KvGeometry geometry, KvGeometryOf(config, format));
  KvDescription kv;
  kv.format = format;
  kv.bytes_per_token = geometry.bytes_per_token();
  for (const KvGroupGeometry& group : geometry.groups) {
    const uint64_t per_superblock = group.pages_per_superblock;
    const uint64_t covered = per_superblock * group.page_bytes();
    kv.groups.push_back(
        {group, 1.0 - static_cast<double>(covered) / static_cast<double>(group.superblock_bytes)});
    const uint64_t sequence_pages = group.MostPages(config.max_context, kStepTokens);
    for (size_t i = 0; i < kDescribedSequences.size(); ++i) {
      const uint64_t pages = kDescribedSequences[i] * sequence_pages + /*null page*/ 1;
      kv.bytes[i] += (pages + per_superblock - 1) / per_superblock * group.superblock_bytes;
    }
  }
  return kv;
}

void AddMissing(const Error& error, ModelDescription* description) {
  auto& missing = description->missing;
  if (std::find(missing.begin(), missing.end(), error.message) == missing.end()) {
    missing.push_back(error.message);
  }
}

}  // namespace

ModelDescription Describe(const GgufFile& file) {
  ModelDescription description;
  description.file = file.name();
  description.source = file.source();
  description.file_bytes = file.file_bytes();
  description.version = file.version();
  description.metadata = &file.metadata();
  description.types = TypesOf(file);
  if (file.source() == ModelSource::kGguf) {  // a folder's is not the model reader's
    const auto spec = ReadTokenizerSpec(file);
    if (!spec.ok()) AddMissing(spec.error(), &description);
  }
  auto config = ReadConfig(file);
  if (!config.ok()) {
    AddMissing(config.error(), &description);
    return description;
  }
  description.config = std::move(config).value();
  for (const WeightChoice choice :
       {WeightChoice::kAuto, WeightChoice::kQ4, WeightChoice::kQ8, WeightChoice::kF32}) {
    const auto plan = PlanWeights(file, *description.config, choice);
    if (plan.ok()) {
      description.weights.push_back({choice, EncodingSummary(*plan), plan->arena_bytes});
    } else if (choice == WeightChoice::kF32) {
      AddMissing(plan.error(), &description);  // not even the encoding that takes any row length
    }
  }
  for (const KvFormat format : {KvFormat::kF16, KvFormat::kInt8, KvFormat::kF32}) {
    const auto kv = KvOf(*description.config, format);
    if (kv.ok()) {
      description.kv.push_back(*kv);
    } else {
      AddMissing(kv.error(), &description);
    }
  }
  return description;
}

}  // namespace kvrm
