#include "model/config.h"

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "base/superblock.h"
#include "model/llama_tensors.h"
#include "tensor/kv_tile.h"

namespace kvrm {
namespace {

// Above every model known and far below where products of them overflow 64 bits.
constexpr uint64_t kMaxLayers = 1'024;
constexpr uint64_t kMaxHidden = 1u << 20;
constexpr uint64_t kMaxFfn = 1u << 22;
constexpr uint64_t kMaxHeads = 4'096;
constexpr uint64_t kMaxHeadDim = 1'024;
constexpr uint64_t kMaxContext = 1u << 30;
constexpr uint64_t kMaxVocab = 1u << 24;

std::string Str(uint64_t value) { return std::to_string(value); }

class ConfigReader {
 public:
  explicit ConfigReader(const GgufFile& file) : file_(file) {}

  Result<ModelConfig> Run() {
    KVRM_RETURN_IF_ERROR(ReadFamily());
    KVRM_RETURN_IF_ERROR(ReadSizes());
    KVRM_RETURN_IF_ERROR(ReadHeads());
    KVRM_RETURN_IF_ERROR(ReadNumbers());
    KVRM_RETURN_IF_ERROR(ReadWindows());
    KVRM_RETURN_IF_ERROR(ReadVocab());
    KVRM_RETURN_IF_ERROR(RefuseOtherFeatures());
    KVRM_RETURN_IF_ERROR(CheckTensors());
    KVRM_RETURN_IF_ERROR(ReadRopeScaling());
    KVRM_RETURN_IF_ERROR(ReadRopeFactors());
    return config_;
  }

 private:
  std::string Key(std::string_view name) const { return config_.family + "." + std::string(name); }

  Error Invalid(const std::string& what) const { return InvalidInput(file_.name() + ": " + what); }
  Error NotOffered(const std::string& what) const {
    return Unsupported(file_.name() + ": " + what);
  }

  Status ReadFamily() {
    KVRM_ASSIGN_OR_RETURN(config_.family, file_.GetString("general.architecture", std::nullopt));
    if (config_.family != "llama") {
      return NotOffered("general.architecture is '" + PrintableName(config_.family) +
                        "', known: llama");
    }
    KVRM_ASSIGN_OR_RETURN(const std::string name, file_.GetString("general.name", ""));
    config_.name = PrintableName(name);
    KVRM_ASSIGN_OR_RETURN(const uint64_t parts, file_.GetUint("split.count", 1));
    if (parts > 1) {
      return NotOffered("split.count is " + Str(parts) +
                        ", must be 1: the model is split into files");
    }
    return Ok();
  }

  // `fallback`: what an optional key means when it is absent.
  Status ReadBounded(std::string_view name, uint64_t max, std::optional<uint64_t> fallback,
                     uint32_t* out) {
    KVRM_ASSIGN_OR_RETURN(const uint64_t value, file_.GetUint(Key(name), fallback));
    if (value < 1 || value > max) {
      return Invalid("key '" + Key(name) + "' is " + Str(value) + ", must be 1 to " + Str(max));
    }
    *out = static_cast<uint32_t>(value);
    return Ok();
  }

  Status ReadSizes() {
    KVRM_RETURN_IF_ERROR(ReadBounded("block_count", kMaxLayers, std::nullopt, &config_.num_layers));
    KVRM_RETURN_IF_ERROR(
        ReadBounded("embedding_length", kMaxHidden, std::nullopt, &config_.hidden));
    if (config_.hidden % 16 != 0) {
      return NotOffered("key '" + Key("embedding_length") + "' is " + Str(config_.hidden) +
                        ", must be a multiple of 16");
    }
    KVRM_RETURN_IF_ERROR(ReadBounded("feed_forward_length", kMaxFfn, std::nullopt, &config_.ffn));
    return ReadBounded("context_length", kMaxContext, std::nullopt, &config_.max_context);
  }

  Status ReadHeads() {
    KVRM_RETURN_IF_ERROR(
        ReadBounded("attention.head_count", kMaxHeads, std::nullopt, &config_.num_heads));
    KVRM_RETURN_IF_ERROR(ReadBounded("attention.head_count_kv", kMaxHeads, config_.num_heads,
                                     &config_.num_kv_heads));
    if (config_.num_heads % config_.num_kv_heads != 0) {
      return Invalid("key '" + Key("attention.head_count") + "' is " + Str(config_.num_heads) +
                     ", must be a multiple of " + Key("attention.head_count_kv") + " = " +
                     Str(config_.num_kv_heads));
    }
    const std::string key_length = Key("attention.key_length");
    if (file_.Find(key_length) == nullptr && config_.hidden % config_.num_heads != 0) {
      return Invalid("key '" + Key("embedding_length") + "' is " + Str(config_.hidden) +
                     ", must be a multiple of " + Key("attention.head_count") + " = " +
                     Str(config_.num_heads) + " (or " + key_length + " given)");
    }
    KVRM_RETURN_IF_ERROR(ReadBounded("attention.key_length", kMaxHeadDim,
                                     config_.hidden / config_.num_heads, &config_.head_dim));
    uint32_t value_length = 0;
    KVRM_RETURN_IF_ERROR(
        ReadBounded("attention.value_length", kMaxHeadDim, config_.head_dim, &value_length));
    if (value_length != config_.head_dim) {
      return NotOffered("key '" + Key("attention.value_length") + "' is " + Str(value_length) +
                        ", must equal " + key_length + " = " + Str(config_.head_dim));
    }
    KVRM_RETURN_IF_ERROR(ReadBounded("rope.dimension_count", config_.head_dim, config_.head_dim,
                                     &config_.rope_dims));
    if (config_.rope_dims % 2 != 0) {
      return Invalid("key '" + Key("rope.dimension_count") + "' is " + Str(config_.rope_dims) +
                     ", must be even");
    }
    return Ok();
  }

  Result<double> ReadPositive(std::string_view name, std::optional<double> fallback) {
    KVRM_ASSIGN_OR_RETURN(const double value, file_.GetFloat(Key(name), fallback));
    // In a float's normal range: what is read here is narrowed to one.
    if (!(value >= std::numeric_limits<float>::min() &&
          value <= std::numeric_limits<float>::max())) {
      return Invalid("key '" + Key(name) + "' is " + std::to_string(value) +
                     ", must be a finite number above 0");
    }
    return value;
  }

  Status ReadNumbers() {
    KVRM_ASSIGN_OR_RETURN(const double eps,
                          ReadPositive("attention.layer_norm_rms_epsilon", std::nullopt));
    config_.norm_eps = static_cast<float>(eps);
    KVRM_ASSIGN_OR_RETURN(config_.rope_base, ReadPositive("rope.freq_base", 10'000.0));
    KVRM_ASSIGN_OR_RETURN(const double scale,
                          ReadPositive("attention.scale", 1.0 / std::sqrt(config_.head_dim)));
    config_.attention_scale = static_cast<float>(scale);
    config_.rope_layout = RopeLayout::kInterleaved;
    return Ok();
  }

  // A window that holds the whole context is none. Which layers slide: all, or as the pattern says,
  // a number n (every n-th layer sees everything) or a list, one entry a layer.
  Status ReadWindows() {
    config_.layers.resize(config_.num_layers);
    const std::string key = Key("attention.sliding_window");
    KVRM_ASSIGN_OR_RETURN(const uint64_t window, file_.GetUint(key, 0));
    if (window == 1) return Invalid("key '" + key + "' is 1, must be 0 (none) or at least 2");
    KVRM_ASSIGN_OR_RETURN(const std::vector<bool> slides, ReadWindowPattern());
    if (window == 0 || window >= config_.max_context) return Ok();
    for (uint32_t layer = 0; layer < config_.num_layers; ++layer) {
      if (slides[layer]) config_.layers[layer].window = static_cast<uint32_t>(window);
    }
    return Ok();
  }

  Result<std::vector<bool>> ReadWindowPattern() {
    const std::string key = Key("attention.sliding_window_pattern");
    std::vector<bool> slides(config_.num_layers, true);
    const GgufValue* value = file_.Find(key);
    const auto* list = value == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(&value->data);
    if (list == nullptr) {
      KVRM_ASSIGN_OR_RETURN(const uint64_t period, file_.GetUint(key, 0));
      for (uint32_t layer = 0; period > 0 && layer < config_.num_layers; ++layer) {
        slides[layer] = layer % period != period - 1;
      }
      return slides;
    }
    if (list->size() != config_.num_layers) {
      return Invalid("key '" + key + "' has " + Str(list->size()) + " entries, must have " +
                     Key("block_count") + " = " + Str(config_.num_layers));
    }
    for (uint32_t layer = 0; layer < config_.num_layers; ++layer) {
      slides[layer] = (*list)[layer] != 0;
    }
    return slides;
  }

  // The embedding's rows are the vocabulary; what keys say must agree with them.
  Status ReadVocab() {
    const GgufTensor* embedding = file_.FindTensor(kEmbeddingTensor);
    if (embedding == nullptr) {
      return Invalid("tensor '" + std::string(kEmbeddingTensor) + "' is missing");
    }
    const uint64_t rows = embedding->rows();
    if (rows > kMaxVocab) {
      return Invalid("tensor '" + std::string(kEmbeddingTensor) + "' has " + Str(rows) +
                     " rows, must be at most " + Str(kMaxVocab));
    }
    KVRM_ASSIGN_OR_RETURN(const uint64_t declared, file_.GetUint(Key("vocab_size"), rows));
    if (declared != rows) {
      return Invalid("key '" + Key("vocab_size") + "' is " + Str(declared) + ", must equal the " +
                     Str(rows) + " rows of tensor '" + std::string(kEmbeddingTensor) + "'");
    }
    const GgufValue* tokens = file_.Find("tokenizer.ggml.tokens");
    const auto* strings =
        tokens == nullptr ? nullptr : std::get_if<GgufValue::Strings>(&tokens->data);
    if (strings != nullptr && strings->size() != rows) {
      return Invalid("key 'tokenizer.ggml.tokens' has " + Str(strings->size()) +
                     " entries, must equal the " + Str(rows) + " rows of tensor '" +
                     std::string(kEmbeddingTensor) + "'");
    }
    config_.vocab = static_cast<uint32_t>(rows);
    config_.tied_head = file_.FindTensor(kOutputTensor) == nullptr;
    return Ok();
  }

  // Features that some files of this family ask for and that would be wrong to ignore.
  Status RefuseOtherFeatures() {
    KVRM_ASSIGN_OR_RETURN(const uint64_t experts, file_.GetUint(Key("expert_count"), 0));
    if (experts > 0) {
      return NotOffered("key '" + Key("expert_count") + "' is " + Str(experts) +
                        ", must be 0: mixtures of experts are not offered");
    }
    for (const char* name : {"rope_factors_long.weight", "rope_factors_short.weight"}) {
      if (file_.FindTensor(name) != nullptr) {
        return NotOffered("tensor '" + std::string(name) +
                          "' asks for long-context RoPE factors, which are not offered");
      }
    }
    return Ok();
  }

  // Every tensor that the family needs, of its shape and a readable type, and no other: a bias that
  // is left out would give nonsense in silence.
  Status CheckTensors() {
    std::set<std::string_view> known;
    const auto shapes = LlamaTensors(config_);
    for (const TensorShape& shape : shapes) {
      const GgufTensor* tensor = file_.FindTensor(shape.name);
      if (tensor == nullptr) {
        if (shape.optional) continue;
        return Invalid("tensor '" + shape.name + "' is missing (" + Key("block_count") + " is " +
                       Str(config_.num_layers) + ")");
      }
      known.insert(shape.name);
      if (tensor->dims != shape.dims) {
        return Invalid("tensor '" + shape.name + "' has shape " + ShapeText(tensor->dims) +
                       ", must be " + ShapeText(shape.dims));
      }
      if (!GetDType(tensor->type).readable) {
        return NotOffered("tensor '" + shape.name + "' has type " +
                          std::string(GetDType(tensor->type).name) +
                          ", readable: F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q6_K");
      }
    }
    for (const GgufTensor& tensor : file_.tensors()) {
      if (!known.contains(tensor.name)) {
        return NotOffered("tensor '" + PrintableName(tensor.name) +
                          "' is not one of family llama with " + Key("block_count") + " = " +
                          Str(config_.num_layers));
      }
    }
    return Ok();
  }

  // Position interpolation divides every frequency by one factor.
  Status ReadRopeScaling() {
    KVRM_ASSIGN_OR_RETURN(const std::string kind,
                          file_.GetString(Key("rope.scaling.type"), "linear"));
    if (kind != "none" && kind != "linear") {
      return NotOffered("key '" + Key("rope.scaling.type") + "' is '" + PrintableName(kind) +
                        "', built: none, linear, and llama3 factors as tensor rope_freqs.weight");
    }
    KVRM_ASSIGN_OR_RETURN(const double attention_factor,
                          ReadPositive("rope.scaling.attn_factor", 1.0));
    if (attention_factor != 1.0) {
      return NotOffered("key '" + Key("rope.scaling.attn_factor") + "' is " +
                        std::to_string(attention_factor) + ", must be 1");
    }
    if (kind == "none") return Ok();
    // An older key for the same thing; absent type means linear, absent factor means 1.
    KVRM_ASSIGN_OR_RETURN(const double older, ReadPositive("rope.scale_linear", 1.0));
    KVRM_ASSIGN_OR_RETURN(const double factor, ReadPositive("rope.scaling.factor", older));
    if (factor != 1.0) {
      config_.rope_factors.assign(config_.rope_dims / 2, static_cast<float>(factor));
    }
    return Ok();
  }

  Status ReadRopeFactors() {
    const GgufTensor* tensor = file_.FindTensor(kRopeFactorsTensor);
    if (tensor == nullptr) return Ok();
    std::vector<float> factors(config_.rope_dims / 2);
    Dequantize(tensor->type, tensor->data.data(), factors.size(), factors.data());
    if (config_.rope_factors.empty()) config_.rope_factors.assign(factors.size(), 1.0f);
    for (size_t i = 0; i < factors.size(); ++i) {
      if (!(factors[i] > 0) || !std::isfinite(factors[i])) {
        return Invalid("tensor '" + std::string(kRopeFactorsTensor) + "' holds " +
                       std::to_string(factors[i]) + " at " + Str(i) +
                       ", must be a finite number above 0");
      }
      config_.rope_factors[i] *= factors[i];
    }
    return Ok();
  }

  const GgufFile& file_;
  ModelConfig config_;
};

}  // namespace

Result<ModelConfig> ReadConfig(const GgufFile& file) { return ConfigReader(file).Run(); }

Result<KvGeometry> KvGeometryOf(const ModelConfig& config, KvFormat format) {
  if (config.head_dim % 16 != 0) {
    return Unsupported("head length " + Str(config.head_dim) + " is not a multiple of 16");
  }
  std::map<uint32_t, KvGroupGeometry> by_window;  // 0, full, stands first
  for (const LayerConfig& layer : config.layers) ++by_window[layer.window].num_parts;
  if (by_window.size() > kMaxKvGroups) {
    return Unsupported("layers have " + Str(by_window.size()) + " different windows, at most " +
                       Str(kMaxKvGroups) + " KV groups are offered");
  }
  KvGeometry geometry;
  std::map<uint32_t, uint8_t> group_of;
  for (auto& [window, group] : by_window) {
    group.kind = window == 0 ? KvGroupKind::kFull : KvGroupKind::kSliding;
    group.window_tokens = window;
    group.format = format;
    group.page_tokens = kKvTileTokens;
    group.part_page_bytes =
        uint64_t{config.num_kv_heads} * KvTileOf(format, config.head_dim).head_bytes;
    KVRM_ASSIGN_OR_RETURN(const SuperblockChoice choice,
                          ChooseSuperblock(group.num_parts, group.part_page_bytes));
    group.pages_per_superblock = choice.pages_per_superblock;
    group.superblock_bytes = choice.superblock_bytes;
    group_of[window] = static_cast<uint8_t>(geometry.groups.size());
    geometry.groups.push_back(group);
  }
  std::vector<uint16_t> next_part(geometry.groups.size(), 0);
  for (const LayerConfig& layer : config.layers) {
    const uint8_t group = group_of[layer.window];
    geometry.layer_group.push_back(group);
    geometry.layer_part.push_back(next_part[group]++);
  }
  return geometry;
}

}  // namespace kvrm
