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

Result<KvDescription> KvOf(const ModelConfig& config, KvFormat format) {
  KVRM_ASSIGN_OR_RETURN(const KvGeometry geometry, KvGeometryOf(config, format));
  KvDescription kv;
  kv.format = format;
  kv.group = geometry.groups[0];
  const uint64_t covered = kv.group.pages_per_superblock * kv.group.page_bytes();
  kv.waste = 1.0 - static_cast<double>(covered) / static_cast<double>(kv.group.superblock_bytes);
  kv.bytes_per_token = geometry.bytes_per_token();
  const uint64_t pages_per_sequence =
      (uint64_t{config.max_context} + kv.group.page_tokens - 1) / kv.group.page_tokens;
  for (size_t i = 0; i < kDescribedSequences.size(); ++i) {
    const uint64_t pages = kDescribedSequences[i] * pages_per_sequence + /*null page*/ 1;
    const uint64_t p = kv.group.pages_per_superblock;
    kv.bytes[i] = (pages + p - 1) / p * kv.group.superblock_bytes;
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
  description.file_bytes = file.file_bytes();
  description.version = file.version();
  description.metadata = &file.metadata();
  description.types = TypesOf(file);
  const auto spec = ReadTokenizerSpec(file);
  if (!spec.ok()) AddMissing(spec.error(), &description);
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
