#include "model/hub_config.h"

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>
#include <numbers>
#include <optional>

#include "model/family.h"
#include "model/yarn.h"

namespace kvrm {
namespace {

namespace json = boost::json;

constexpr uint64_t kMaxLayers = 1'024;  // ReadConfig says it by name

class HubConfigReader {
 public:
  explicit HubConfigReader(const json::object& config) : config_(config) {}

  Result<HubConfig> Run(const std::string& name) {
    KVRM_RETURN_IF_ERROR(ReadFamily());
    Put("general.architecture", std::string(family_->name));
    Put("general.name", name);
    KVRM_RETURN_IF_ERROR(ReadSizes());
    KVRM_RETURN_IF_ERROR(ReadWindows());
    KVRM_RETURN_IF_ERROR(ReadCapsAndScale());
    KVRM_RETURN_IF_ERROR(ReadRope());
    KVRM_RETURN_IF_ERROR(RefuseOtherAttention());
    KVRM_ASSIGN_OR_RETURN(const auto tied, Flag("tie_word_embeddings"));
    result_.tied_head = tied.value_or(family_->hub.tied_head);
    result_.own_head = !tied.value_or(true);
    return std::move(result_);
  }

 private:
  template <class T>
  void Put(const std::string& key, T value) {
    result_.metadata.emplace_back(key, GgufValue{std::move(value)});
  }
  std::string Key(const char* name) const { return std::string(family_->name) + "." + name; }

  // null counts as absent; where it does not, the reader of the field asks for it.
  static const json::value* Find(const json::object& object, const char* field) {
    const json::value* value = object.if_contains(field);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  static bool IsNull(const json::object& object, const char* field) {
    const json::value* value = object.if_contains(field);
    return value != nullptr && value->is_null();
  }
  static Error WrongType(const std::string& field, const char* wanted) {
    return InvalidInput("field '" + field + "' is no " + wanted);
  }
  // nullptr: absent. `within`: what the field's name stands behind in a message.
  static Result<const json::object*> Object(const json::object& object, const std::string& within,
                                            const char* field) {
    const json::value* value = Find(object, field);
    if (value == nullptr) return static_cast<const json::object*>(nullptr);
    if (!value->is_object()) return WrongType(within + field, "object");
    return &value->get_object();
  }
  Result<std::optional<uint64_t>> Count(const json::object& object, const char* field) const {
    const json::value* value = Find(object, field);
    if (value == nullptr) return std::optional<uint64_t>();
    json::error_code error;
    const auto number = value->to_number<uint64_t>(error);
    if (error) return WrongType(field, "whole number");
    return std::optional<uint64_t>(number);
  }
  static Result<std::optional<double>> Number(const json::object& object, const char* field) {
    const json::value* value = Find(object, field);
    if (value == nullptr) return std::optional<double>();
    json::error_code error;
    const auto number = value->to_number<double>(error);
    if (error) return WrongType(field, "number");
    return std::optional<double>(number);
  }
  Result<std::optional<bool>> Flag(const char* field) const {
    const json::value* value = Find(config_, field);
    if (value == nullptr) return std::optional<bool>();
    if (!value->is_bool()) return WrongType(field, "bool");
    return std::optional<bool>(value->get_bool());
  }
  static Result<std::string> Text(const json::object& object, const char* field,
                                  const char* fallback) {
    const json::value* value = Find(object, field);
    if (value == nullptr) return std::string(fallback);
    if (!value->is_string()) return WrongType(field, "string");
    return std::string(value->get_string());
  }

  Status ReadFamily() {
    KVRM_ASSIGN_OR_RETURN(const std::string type, Text(config_, "model_type", ""));
    family_ = FindHfFamily(type);
    if (family_ == nullptr) {
      return Unsupported("model_type is '" + PrintableName(type) + "', known: " + HfTypeNames());
    }
    const char* expected = family_->gating == Gating::kSilu ? "silu" : "gelu_pytorch_tanh";
    for (const char* field : {"hidden_act", "hidden_activation"}) {
      KVRM_ASSIGN_OR_RETURN(const std::string act, Text(config_, field, expected));
      if (act != expected) {
        return Unsupported(std::string("field '") + field + "' is '" + PrintableName(act) +
                           "', family " + std::string(family_->name) + " has " + expected);
      }
    }
    return Ok();
  }

  Status CopyCount(const char* field, const char* key) {
    KVRM_ASSIGN_OR_RETURN(const auto value, Count(config_, field));
    if (value) Put(Key(key), *value);
    return Ok();
  }

  Status ReadSizes() {
    KVRM_RETURN_IF_ERROR(CopyCount("num_hidden_layers", "block_count"));
    KVRM_RETURN_IF_ERROR(CopyCount("hidden_size", "embedding_length"));
    KVRM_RETURN_IF_ERROR(CopyCount("intermediate_size", "feed_forward_length"));
    KVRM_RETURN_IF_ERROR(CopyCount("max_position_embeddings", "context_length"));
    KVRM_RETURN_IF_ERROR(CopyCount("num_attention_heads", "attention.head_count"));
    KVRM_RETURN_IF_ERROR(ReadKvHeads());
    KVRM_ASSIGN_OR_RETURN(const auto head_dim, HeadDim());
    if (head_dim) {
      Put(Key("attention.key_length"), *head_dim);
      Put(Key("attention.value_length"), *head_dim);
    }
    KVRM_RETURN_IF_ERROR(CopyCount("vocab_size", "vocab_size"));
    KVRM_ASSIGN_OR_RETURN(const auto eps, Number(config_, "rms_norm_eps"));
    if (eps) Put(Key("attention.layer_norm_rms_epsilon"), *eps);
    return Ok();
  }

  // null: as many as there are heads of queries.
  Status ReadKvHeads() {
    constexpr const char* kField = "num_key_value_heads";
    KVRM_RETURN_IF_ERROR(CopyCount(kField, "attention.head_count_kv"));
    if (!config_.contains(kField) && family_->hub.num_kv_heads != 0) {
      Put(Key("attention.head_count_kv"), uint64_t{family_->hub.num_kv_heads});
    }
    return Ok();
  }

  // Absent: hidden_size / num_attention_heads.
  Result<std::optional<uint64_t>> HeadDim() const {
    KVRM_ASSIGN_OR_RETURN(auto dims, Count(config_, "head_dim"));
    if (!dims && family_->hub.head_dim != 0) dims = family_->hub.head_dim;
    return dims;
  }

  // null is no window, other than an absent field. A family whose layers slide by a pattern has no
  // such model.
  Status ReadWindows() {
    constexpr const char* kField = "sliding_window";
    KVRM_ASSIGN_OR_RETURN(auto window, Count(config_, kField));
    KVRM_ASSIGN_OR_RETURN(const auto used, Flag("use_sliding_window"));
    if (IsNull(config_, kField) && family_->full_every != 0) {
      return InvalidInput(std::string("field '") + kField + "' is null, family " +
                          std::string(family_->name) + " needs a number");
    }
    if (!window && family_->hub.window != 0) window = family_->hub.window;
    const bool off = family_->window_by_flag && (!used.value_or(false) || !window);
    const bool none = off || IsNull(config_, kField);
    if (none) {
      Put(Key("attention.sliding_window"), uint64_t{0});
    } else if (window) {
      Put(Key("attention.sliding_window"), *window);
    }
    if (const json::value* types = Find(config_, "layer_types")) {
      if (!types->is_array()) return WrongType("layer_types", "list");
      std::vector<int64_t> slides;
      for (const json::value& type : types->get_array()) {
        const bool sliding = type == "sliding_attention";
        if (!sliding && type != "full_attention") {
          return Unsupported("field 'layer_types' holds " + PrintableName(json::serialize(type)) +
                             ", known: full_attention sliding_attention");
        }
        slides.push_back(sliding ? 1 : 0);
      }
      Put(Key("attention.sliding_window_pattern"), std::move(slides));
    } else if (family_->window_by_flag && !none) {
      KVRM_RETURN_IF_ERROR(ReadFirstSlidingLayer());
    } else {
      KVRM_RETURN_IF_ERROR(CopyCount("sliding_window_pattern", "attention.sliding_window_pattern"));
    }
    return ReadRotatedLayers();
  }

  // A list with 1 where a layer does rotate, else every n-th does not.
  Status ReadRotatedLayers() {
    std::vector<int64_t> layers;
    KVRM_ASSIGN_OR_RETURN(const auto interval, Count(config_, "no_rope_layer_interval"));
    if (const json::value* rotates = Find(config_, "no_rope_layers")) {
      if (!rotates->is_array()) return WrongType("no_rope_layers", "list");
      for (const json::value& layer : rotates->get_array()) layers.push_back(layer == 1 ? 1 : 0);
    } else if (interval && family_->no_rope_every != 0) {
      if (*interval == 0) return InvalidInput("field 'no_rope_layer_interval' is 0");
      KVRM_ASSIGN_OR_RETURN(const auto count, Count(config_, "num_hidden_layers"));
      for (uint64_t i = 0; i < std::min(count.value_or(0), kMaxLayers); ++i) {
        layers.push_back((i + 1) % *interval != 0 ? 1 : 0);
      }
    } else {
      return Ok();
    }
    Put(Key("rope.rotated_layers"), std::move(layers));
    return Ok();
  }

  // Qwen: the layers from max_window_layers on have the window.
  Status ReadFirstSlidingLayer() {
    KVRM_ASSIGN_OR_RETURN(const auto first, Count(config_, "max_window_layers"));
    KVRM_ASSIGN_OR_RETURN(const auto layers, Count(config_, "num_hidden_layers"));
    if (!first || family_->no_rope_every != 0) {
      return Unsupported("field 'use_sliding_window' is true, but no layer_types say where");
    }
    std::vector<int64_t> slides;
    for (uint64_t i = 0; i < std::min(layers.value_or(0), kMaxLayers); ++i) {
      slides.push_back(i >= *first ? 1 : 0);
    }
    Put(Key("attention.sliding_window_pattern"), std::move(slides));
    return Ok();
  }

  // A cap that is null is none, other than an absent one: false stands for it.
  Status ReadCapsAndScale() {
    for (const char* field : {"attn_logit_softcapping", "final_logit_softcapping"}) {
      KVRM_ASSIGN_OR_RETURN(const auto cap, Number(config_, field));
      if (cap) Put(Key(field), *cap);
      if (IsNull(config_, field)) Put(Key(field), false);
    }
    KVRM_ASSIGN_OR_RETURN(auto scaled_by, Number(config_, "query_pre_attn_scalar"));
    if (!scaled_by && family_->hub.query_scalar != 0) scaled_by = family_->hub.query_scalar;
    if (scaled_by) Put(Key("attention.scale"), 1.0 / std::sqrt(*scaled_by));
    return Ok();
  }

  Status RefuseOtherAttention() const {
    KVRM_ASSIGN_OR_RETURN(const auto both_ways, Flag("use_bidirectional_attention"));
    if (!both_ways.value_or(false)) return Ok();
    return Unsupported("field 'use_bidirectional_attention' is true, must be false");
  }

  // Two ways to say the same: rope_theta and rope_scaling, or rope_parameters, which may differ by
  // the kind of layer. A part that is null is as if it were absent.
  Status ReadRope() {
    KVRM_ASSIGN_OR_RETURN(const json::object* scaling, Object(config_, "", "rope_scaling"));
    KVRM_ASSIGN_OR_RETURN(const json::object* parameters, Object(config_, "", "rope_parameters"));
    const bool by_scaling = scaling != nullptr && !scaling->empty();
    const json::object* global = by_scaling ? scaling : parameters;
    const json::object* local = nullptr;
    for (const json::object* given : {parameters, scaling}) {
      if (given == nullptr) continue;
      const std::string within = given == scaling ? "rope_scaling." : "rope_parameters.";
      KVRM_ASSIGN_OR_RETURN(const auto* sliding, Object(*given, within, "sliding_attention"));
      KVRM_ASSIGN_OR_RETURN(const auto* full, Object(*given, within, "full_attention"));
      if (sliding != nullptr) local = sliding;
      if (given == global && given->contains("full_attention")) global = full;
    }
    KVRM_RETURN_IF_ERROR(ReadLocalRope(local));
    KVRM_RETURN_IF_ERROR(CheckAllRotates(config_));
    if (global != nullptr) KVRM_RETURN_IF_ERROR(CheckAllRotates(*global));
    KVRM_ASSIGN_OR_RETURN(const auto base, BaseOf(global, "rope_theta"));
    Put(Key("rope.freq_base"), base.value_or(family_->hub.rope_base));
    if (global == nullptr) return Ok();
    return ReadScaling(*global, base.value_or(family_->hub.rope_base));
  }

  // What `parameters` (nullptr: nothing) say goes before what stands beside them.
  Result<std::optional<double>> BaseOf(const json::object* parameters, const char* beside) const {
    if (parameters != nullptr) {
      KVRM_ASSIGN_OR_RETURN(const auto base, Number(*parameters, "rope_theta"));
      if (base) return base;
    }
    return Number(config_, beside);
  }

  Status ReadLocalRope(const json::object* local) {
    if (local != nullptr) {
      KVRM_ASSIGN_OR_RETURN(const std::string kind, KindOf(*local));
      if (kind != "default") {
        return Unsupported("RoPE scaling of sliding_attention is '" + PrintableName(kind) +
                           "', must be default");
      }
      KVRM_RETURN_IF_ERROR(CheckAllRotates(*local));
    }
    KVRM_ASSIGN_OR_RETURN(const auto base, BaseOf(local, "rope_local_base_freq"));
    if (base) Put(Key("rope.freq_base_swa"), *base);
    return Ok();
  }

  static Status CheckAllRotates(const json::object& object) {
    KVRM_ASSIGN_OR_RETURN(const auto share, Number(object, "partial_rotary_factor"));
    if (share.value_or(1.0) == 1.0) return Ok();
    return Unsupported("field 'partial_rotary_factor' is " + std::to_string(*share) +
                       ", must be 1");
  }

  static Result<std::string> KindOf(const json::object& scaling) {
    KVRM_ASSIGN_OR_RETURN(const std::string older, Text(scaling, "type", "default"));
    return Text(scaling, "rope_type", older.c_str());
  }

  Status ReadScaling(const json::object& scaling, double base) {
    KVRM_ASSIGN_OR_RETURN(const std::string kind, KindOf(scaling));
    if (kind == "default") return Ok();
    KVRM_ASSIGN_OR_RETURN(const auto factor, Number(scaling, "factor"));
    if (kind == "linear" && factor) {
      Put(Key("rope.scaling.type"), std::string("linear"));
      Put(Key("rope.scaling.factor"), *factor);
      return Ok();
    }
    if (kind == "llama3" && factor) return ReadLlama3(scaling, base, *factor);
    if (kind == "yarn" && factor) return ReadYarn(scaling, *factor);
    return Unsupported("RoPE scaling is '" + PrintableName(kind) +
                       "', built: default, linear, llama3 and yarn, with their factor");
  }

  // What stands beside the scaling goes first.
  Result<std::optional<uint64_t>> OriginalContext(const json::object& scaling) const {
    constexpr const char* kField = "original_max_position_embeddings";
    KVRM_ASSIGN_OR_RETURN(const auto beside, Count(config_, kField));
    return beside ? beside : Count(scaling, kField);
  }

  // GGUF's keys say the same; its attn_factor is over and above what the factor implies.
  Status ReadYarn(const json::object& scaling, double factor) {
    const json::value* truncate = scaling.if_contains("truncate");  // null: false
    if (truncate != nullptr && !(truncate->is_bool() && truncate->get_bool())) {
      return Unsupported("field 'truncate' of RoPE scaling yarn must be true");
    }
    Put(Key("rope.scaling.type"), std::string("yarn"));
    Put(Key("rope.scaling.factor"), factor);
    KVRM_ASSIGN_OR_RETURN(const auto original, OriginalContext(scaling));
    if (original) Put(Key("rope.scaling.original_context_length"), *original);
    KVRM_ASSIGN_OR_RETURN(const auto fast, Number(scaling, "beta_fast"));
    if (fast.value_or(0) != 0) Put(Key("rope.scaling.yarn_beta_fast"), *fast);
    KVRM_ASSIGN_OR_RETURN(const auto slow, Number(scaling, "beta_slow"));
    if (slow.value_or(0) != 0) Put(Key("rope.scaling.yarn_beta_slow"), *slow);
    KVRM_ASSIGN_OR_RETURN(auto amplitude, Number(scaling, "attention_factor"));
    KVRM_ASSIGN_OR_RETURN(const auto mscale, Number(scaling, "mscale"));
    KVRM_ASSIGN_OR_RETURN(const auto of_all, Number(scaling, "mscale_all_dim"));
    if (!amplitude && mscale.value_or(0) != 0 && of_all.value_or(0) != 0) {
      amplitude = YarnAmplitude(factor, *mscale) / YarnAmplitude(factor, *of_all);
    }
    if (amplitude) Put(Key("rope.scaling.attn_factor"), *amplitude / YarnAmplitude(factor));
    return Ok();
  }

  // Long wavelengths are divided by the factor, short ones are left, those between are blended.
  Status ReadLlama3(const json::object& scaling, double base, double factor) {
    KVRM_ASSIGN_OR_RETURN(const auto low, Number(scaling, "low_freq_factor"));
    KVRM_ASSIGN_OR_RETURN(const auto high, Number(scaling, "high_freq_factor"));
    KVRM_ASSIGN_OR_RETURN(const auto original, OriginalContext(scaling));
    if (!low || !high || !original || *low >= *high) {
      return InvalidInput(
          "RoPE scaling llama3 needs low_freq_factor < high_freq_factor and "
          "original_max_position_embeddings");
    }
    KVRM_ASSIGN_OR_RETURN(const auto hidden, Count(config_, "hidden_size"));
    KVRM_ASSIGN_OR_RETURN(const auto heads, Count(config_, "num_attention_heads"));
    KVRM_ASSIGN_OR_RETURN(auto dims, HeadDim());
    if (!dims && hidden && heads && *heads > 0) dims = *hidden / *heads;
    constexpr uint64_t kMaxHeadDims = 1'024;  // of a head; ReadConfig says it by name
    for (uint64_t i = 0; dims && i < std::min(*dims, kMaxHeadDims) / 2; ++i) {
      const double wavelength =
          2 * std::numbers::pi *
          std::pow(base, 2.0 * static_cast<double>(i) / static_cast<double>(*dims));
      const double turns = static_cast<double>(*original) / wavelength;
      double divisor = 1.0;
      if (turns < *low) {
        divisor = factor;
      } else if (turns <= *high) {
        const double smooth = (turns - *low) / (*high - *low);
        divisor = 1.0 / ((1.0 - smooth) / factor + smooth);
      }
      result_.rope_factors.push_back(static_cast<float>(divisor));
    }
    return Ok();
  }

  const json::object& config_;
  const Family* family_ = nullptr;
  HubConfig result_;
};

// What follows "model.layers.N.", and what GGUF files call it.
struct LayerName {
  std::string_view hub, gguf;
};
constexpr LayerName kLayerNames[] = {
    {"input_layernorm.weight", "attn_norm.weight"},
    {"self_attn.q_proj.weight", "attn_q.weight"},
    {"self_attn.k_proj.weight", "attn_k.weight"},
    {"self_attn.v_proj.weight", "attn_v.weight"},
    {"self_attn.q_proj.bias", "attn_q.bias"},
    {"self_attn.k_proj.bias", "attn_k.bias"},
    {"self_attn.v_proj.bias", "attn_v.bias"},
    {"self_attn.o_proj.weight", "attn_output.weight"},
    {"self_attn.q_norm.weight", "attn_q_norm.weight"},
    {"self_attn.k_norm.weight", "attn_k_norm.weight"},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},
    {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.down_proj.weight", "ffn_down.weight"},
    {"pre_feedforward_layernorm.weight", "ffn_norm.weight"},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
};
constexpr std::string_view kAfterAttention = "post_attention_layernorm.weight";

}  // namespace

Result<HubConfig> ReadHubConfig(std::string_view text, const std::string& name) {
  json::error_code error;
  const json::value config = json::parse({text.data(), text.size()}, error);
  if (error || !config.is_object()) return InvalidInput("is no JSON object");
  return HubConfigReader(config.get_object()).Run(name);
}

std::string GgufTensorName(std::string_view hub_name, bool post_norms) {
  if (hub_name == "model.embed_tokens.weight") return "token_embd.weight";
  if (hub_name == "model.norm.weight") return "output_norm.weight";
  if (hub_name == "lm_head.weight") return "output.weight";
  constexpr std::string_view kLayers = "model.layers.";
  if (!hub_name.starts_with(kLayers)) return std::string(hub_name);
  const std::string_view rest = hub_name.substr(kLayers.size());
  uint32_t layer = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
  const auto digits = static_cast<size_t>(end - rest.data());
  if (error != std::errc() || digits >= rest.size() || rest[digits] != '.') {
    return std::string(hub_name);
  }
  const std::string_view part = rest.substr(digits + 1);
  const std::string prefix = "blk." + std::to_string(layer) + ".";
  // Before the ffn in llama's layers, behind attention in Gemma's.
  if (part == kAfterAttention) {
    return prefix + (post_norms ? "post_attention_norm.weight" : "ffn_norm.weight");
  }
  for (const LayerName& known : kLayerNames) {
    if (known.hub == part) return prefix + std::string(known.gguf);
  }
  return std::string(hub_name);
}

}  // namespace kvrm
