#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "model/family.h"
#include "model/model_tensors.h"
#include "model/yarn.h"

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

std::vector<bool> Flags(const IntegerList& list) {
  std::vector<bool> flags(list.size());
  for (size_t i = 0; i < flags.size(); ++i) flags[i] = list[i] != 0;
  return flags;
}

class ConfigReader {
 public:
  explicit ConfigReader(const GgufFile& file) : file_(file) {}

  Result<ModelConfig> Run() {
    KVRM_RETURN_IF_ERROR(ReadFamily());
    KVRM_RETURN_IF_ERROR(ReadSizes());
    KVRM_RETURN_IF_ERROR(ReadHeads());
    KVRM_RETURN_IF_ERROR(ReadNumbers());
    KVRM_RETURN_IF_ERROR(ReadRopeScaling());
    KVRM_RETURN_IF_ERROR(ReadFamilyFacts());
    KVRM_RETURN_IF_ERROR(ReadVocab());
    KVRM_RETURN_IF_ERROR(RefuseOtherFeatures());
    KVRM_RETURN_IF_ERROR(CheckTensors(file_.name(), file_.tensors(), config_));
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
    family_ = FindFamily(config_.family);
    if (family_ == nullptr) {
      return NotOffered("general.architecture is '" + PrintableName(config_.family) +
                        "', known: " + FamilyNames());
    }
    KVRM_ASSIGN_OR_RETURN(const std::string name, file_.GetString("general.name", ""));
    config_.name = PrintableName(name);
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
    KVRM_ASSIGN_OR_RETURN(config_.rope.base, ReadPositive("rope.freq_base", 10'000.0));
    const bool safetensors = file_.source() == ModelSource::kSafetensors;
    config_.rope_layout = safetensors ? RopeLayout::kHalves : family_->gguf_rope;
    config_.norm_offset = safetensors && family_->norms_less_one ? 1 : 0;
    return Ok();
  }

  Status ReadFamilyFacts() {
    FamilyFacts facts;
    const std::string window = Key("attention.sliding_window");
    if (file_.Find(window) != nullptr) {
      KVRM_ASSIGN_OR_RETURN(facts.window, file_.GetUint(window, std::nullopt));
    }
    KVRM_RETURN_IF_ERROR(ReadWindowPattern(&facts));
    const GgufValue* rotated = file_.Find(Key("rope.rotated_layers"));  // of safetensors alone
    if (rotated != nullptr) {
      const auto* list = std::get_if<IntegerList>(&rotated->data);
      if (list == nullptr) return Invalid("key '" + Key("rope.rotated_layers") + "' is no list");
      facts.rotates = Flags(*list);
    }
    KVRM_RETURN_IF_ERROR(ReadFact("attention.scale", &facts.attention_scale));
    KVRM_RETURN_IF_ERROR(ReadFact("rope.freq_base_swa", &facts.local_rope_base));
    KVRM_RETURN_IF_ERROR(ReadCap("attn_logit_softcapping", &facts.attention_soft_cap));
    KVRM_RETURN_IF_ERROR(ReadCap("final_logit_softcapping", &facts.logit_soft_cap));
    const Status applied = ApplyFamily(*family_, facts, &config_);
    return applied.ok() ? applied : Invalid(applied.error().message);
  }

  Status ReadFact(std::string_view name, std::optional<double>* fact) {
    if (file_.Find(Key(name)) == nullptr) return Ok();
    KVRM_ASSIGN_OR_RETURN(*fact, ReadPositive(name, std::nullopt));
    return Ok();
  }

  // false: none, which config.json files say as null.
  Status ReadCap(std::string_view name, std::optional<double>* fact) {
    const GgufValue* value = file_.Find(Key(name));
    const bool* said = value == nullptr ? nullptr : std::get_if<bool>(&value->data);
    if (said == nullptr || *said) return ReadFact(name, fact);
    *fact = 0;
    return Ok();
  }

  // A number n: every n-th layer sees everything. A list: true where a layer has the window.
  Status ReadWindowPattern(FamilyFacts* facts) {
    const std::string key = Key("attention.sliding_window_pattern");
    const GgufValue* value = file_.Find(key);
    if (value == nullptr) return Ok();
    if (const auto* list = std::get_if<IntegerList>(&value->data)) {
      facts->slides = Flags(*list);
      return Ok();
    }
    KVRM_ASSIGN_OR_RETURN(facts->full_every, file_.GetUint(key, std::nullopt));
    return Ok();
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

  // linear: every frequency is divided by one factor; yarn: model/yarn.h.
  Status ReadRopeScaling() {
    KVRM_ASSIGN_OR_RETURN(const std::string kind,
                          file_.GetString(Key("rope.scaling.type"), "linear"));
    if (kind != "none" && kind != "linear" && kind != "yarn") {
      return NotOffered(
          "key '" + Key("rope.scaling.type") + "' is '" + PrintableName(kind) +
          "', built: none, linear, yarn, and llama3 factors as tensor rope_freqs.weight");
    }
    KVRM_ASSIGN_OR_RETURN(const double attention_factor,
                          ReadPositive("rope.scaling.attn_factor", 1.0));
    if (kind == "yarn") return ReadYarn(attention_factor);
    if (attention_factor != 1.0) {
      return NotOffered("key '" + Key("rope.scaling.attn_factor") + "' is " +
                        std::to_string(attention_factor) + ", must be 1");
    }
    if (kind == "none") return Ok();
    // An older key for the same thing; absent type means linear, absent factor means 1.
    KVRM_ASSIGN_OR_RETURN(const double older, ReadPositive("rope.scale_linear", 1.0));
    KVRM_ASSIGN_OR_RETURN(const double factor, ReadPositive("rope.scaling.factor", older));
    if (factor != 1.0) {
      config_.rope.factors.assign(config_.rope_dims / 2, static_cast<float>(factor));
    }
    return Ok();
  }

  // A file may say how far that reaches by the factor alone: max_context grows to it.
  Status ReadYarn(double attention_factor) {
    constexpr const char* kOriginal = "rope.scaling.original_context_length";
    YarnScaling yarn;
    KVRM_ASSIGN_OR_RETURN(yarn.factor, ReadPositive("rope.scaling.factor", std::nullopt));
    KVRM_RETURN_IF_ERROR(
        ReadBounded(kOriginal, kMaxContext, config_.max_context, &yarn.original_context));
    KVRM_ASSIGN_OR_RETURN(yarn.beta_fast,
                          ReadPositive("rope.scaling.yarn_beta_fast", yarn.beta_fast));
    KVRM_ASSIGN_OR_RETURN(yarn.beta_slow,
                          ReadPositive("rope.scaling.yarn_beta_slow", yarn.beta_slow));
    if (yarn.beta_fast <= yarn.beta_slow) {
      return Invalid("key '" + Key("rope.scaling.yarn_beta_fast") + "' is " +
                     std::to_string(yarn.beta_fast) + ", must be above " +
                     Key("rope.scaling.yarn_beta_slow") + " = " + std::to_string(yarn.beta_slow));
    }
    if (config_.rope.base <= 1) {
      return Invalid("key '" + Key("rope.freq_base") + "' is " + std::to_string(config_.rope.base) +
                     ", must be above 1 for yarn");
    }
    // Below 0: as the kind says.
    KVRM_ASSIGN_OR_RETURN(const double share,
                          file_.GetFloat(Key("rope.scaling.yarn_ext_factor"), 1.0));
    KVRM_ASSIGN_OR_RETURN(const double log_multiplier,
                          file_.GetFloat(Key("rope.scaling.yarn_log_multiplier"), 0.0));
    if ((share >= 0 && share != 1) || log_multiplier != 0) {
      return NotOffered("keys '" + Key("rope.scaling.yarn_ext_factor") + "' and '" +
                        Key("rope.scaling.yarn_log_multiplier") + "' are " + std::to_string(share) +
                        " and " + std::to_string(log_multiplier) + ", must be 1 and 0");
    }
    config_.rope.factors = YarnDivisors(yarn, config_.rope.base, config_.rope_dims);
    config_.rope.amplitude = attention_factor * YarnAmplitude(yarn.factor);
    const double reach = std::min<double>(yarn.factor * yarn.original_context, kMaxContext);
    if (file_.Find(Key(kOriginal)) != nullptr && reach > config_.max_context) {
      config_.max_context = static_cast<uint32_t>(reach);
    }
    return Ok();
  }

  Status ReadRopeFactors() {
    const GgufTensor* tensor = file_.FindTensor(kRopeFactorsTensor);
    if (tensor == nullptr) return Ok();
    std::vector<float> factors(config_.rope_dims / 2);
    Dequantize(tensor->type, tensor->data.data(), factors.size(), factors.data());
    if (config_.rope.factors.empty()) config_.rope.factors.assign(factors.size(), 1.0f);
    for (size_t i = 0; i < factors.size(); ++i) {
      if (!(factors[i] > 0) || !std::isfinite(factors[i])) {
        return Invalid("tensor '" + std::string(kRopeFactorsTensor) + "' holds " +
                       std::to_string(factors[i]) + " at " + Str(i) +
                       ", must be a finite number above 0");
      }
      config_.rope.factors[i] *= factors[i];
    }
    return Ok();
  }

  const GgufFile& file_;
  const Family* family_ = nullptr;
  ModelConfig config_;
};

}  // namespace

Result<ModelConfig> ReadConfig(const GgufFile& file) { return ConfigReader(file).Run(); }

}  // namespace kvrm
