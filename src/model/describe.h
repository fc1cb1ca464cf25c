// What `kvrm inspect` tells of a model file: metadata, tensors by type, KV geometry with the
// superblock choice, memory for 1, 8 and 32 sequences. Any file that parses is described; one that
// cannot be run says what is missing. Pure; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/superblock.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/model.h"

namespace kvrm {

inline constexpr std::array<uint32_t, 3> kDescribedSequences = {1, 8, 32};

struct TensorTypeUse {
  std::string type;  // "Q4_1"
  bool readable = false;
  uint64_t tensors = 0, values = 0, bytes = 0;
};

struct WeightsDescription {
  WeightChoice choice = WeightChoice::kAuto;
  std::string encodings;  // Model::encoding_summary()
  uint64_t bytes = 0;     // re-laid, in memory
};

struct KvGroupDescription {
  KvGroupGeometry geometry;
  double waste = 0;  // share of a superblock that no page covers
};

struct KvDescription {
  KvFormat format = KvFormat::kF16;
  std::vector<KvGroupDescription> groups;
  uint64_t bytes_per_token = 0;
  // KV bytes at full context for kDescribedSequences: whole superblocks, the null page included.
  std::array<uint64_t, kDescribedSequences.size()> bytes{};
};

struct ModelDescription {
  std::string file;
  ModelSource source = ModelSource::kGguf;
  uint64_t file_bytes = 0;
  uint32_t version = 0;
  const std::vector<std::pair<std::string, GgufValue>>* metadata = nullptr;  // the file's own
  std::vector<TensorTypeUse> types;  // by bytes, the largest first
  std::optional<ModelConfig> config;
  std::vector<WeightsDescription> weights;  // auto first; those that the file allows
  std::vector<KvDescription> kv;            // f16, int8, f32
  std::vector<std::string> missing;         // why it cannot be run; empty = it can
};

// The result is valid as long as `file` is.
ModelDescription Describe(const GgufFile& file);

// Lines for people; ASCII.
std::string DescribeText(const GgufFile& file);
// One JSON object, one line, valid UTF-8 whatever the file holds. Arrays of more than 8 items stand
// as {"type": ..., "length": ...}.
std::string DescribeJson(const GgufFile& file);

}  // namespace kvrm
