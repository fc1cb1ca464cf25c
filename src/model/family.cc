#include "model/family.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "model/families/families.h"

namespace kvrm {
namespace {

constexpr const Family* kFamilies[] = {
    &kLlama, &kMistral, &kQwen2, &kQwen3, &kSmolLm3, &kGemma2, &kGemma3,
};

Error WrongLength(const char* what, size_t length, uint32_t num_layers) {
  return InvalidInput(std::string(what) + " has " + std::to_string(length) +
                      " entries, must have one for each of " + std::to_string(num_layers) +
                      " layers");
}

// Which layers have the window, where there is one.
std::vector<bool> SlidingLayers(const Family& family, const FamilyFacts& facts,
                                uint32_t num_layers) {
  if (facts.slides) return *facts.slides;
  const uint64_t period = facts.full_every.value_or(family.full_every);
  std::vector<bool> slides(num_layers, true);
  for (uint32_t i = 0; period > 0 && i < num_layers; ++i) slides[i] = i % period != period - 1;
  return slides;
}

// A sliding layer has its own RoPE base even where its window holds the whole context.
void SetLayers(const Family& family, const FamilyFacts& facts, ModelConfig* config) {
  const uint64_t window = facts.window.value_or(family.window);
  const std::vector<bool> slides = SlidingLayers(family, facts, config->num_layers);
  config->local_rope.base = facts.local_rope_base.value_or(family.local_rope_base);
  for (uint32_t i = 0; i < config->num_layers; ++i) {
    LayerConfig& layer = config->layers[i];
    const bool sliding = window != 0 && slides[i];
    if (sliding && window < config->max_context) layer.window = static_cast<uint32_t>(window);
    if (sliding && config->local_rope.base > 0) layer.rope = RopeKind::kLocal;
    const bool rotates = facts.rotates
                             ? (*facts.rotates)[i]
                             : family.no_rope_every == 0 || (i + 1) % family.no_rope_every != 0;
    if (!rotates) layer.rope = RopeKind::kNone;
  }
}

}  // namespace

std::span<const Family* const> Families() { return kFamilies; }

const Family* FindFamily(std::string_view name) {
  const auto at = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                               [&](const Family* family) { return family->name == name; });
  return at == std::end(kFamilies) ? nullptr : *at;
}

const Family* FindHfFamily(std::string_view model_type) {
  const auto at = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                               [&](const Family* family) { return family->hf_type == model_type; });
  return at == std::end(kFamilies) ? nullptr : *at;
}

std::string FamilyNames() {
  std::string names;
  for (const Family* family : kFamilies)
    names += (names.empty() ? "" : " ") + std::string(family->name);
  return names;
}

std::string HfTypeNames() {
  std::string names;
  for (const Family* family : kFamilies) {
    names += (names.empty() ? "" : " ") + std::string(family->hf_type);
  }
  return names;
}

bool ModelConfig::UsesLocalRope() const {
  return std::any_of(layers.begin(), layers.end(),
                     [](const LayerConfig& layer) { return layer.rope == RopeKind::kLocal; });
}

Status ApplyFamily(const Family& family, const FamilyFacts& facts, ModelConfig* config) {
  const auto fits = [&](const std::optional<std::vector<bool>>& list) {
    return !list || list->size() == config->num_layers;
  };
  if (!fits(facts.slides)) {
    return WrongLength("list of sliding layers", facts.slides->size(), config->num_layers);
  }
  if (!fits(facts.rotates)) {
    return WrongLength("list of rotating layers", facts.rotates->size(), config->num_layers);
  }
  if (facts.window == 1) return InvalidInput("sliding window is 1, must be 0 (none) or at least 2");
  config->family = family.name;
  config->layers.assign(config->num_layers, {});
  config->qkv_bias = family.qkv_bias;
  config->head_norms = family.head_norms;
  config->post_norms = family.post_norms;
  config->gating = family.gating;
  if (family.scaled_embedding) {
    config->embedding_scale = std::sqrt(static_cast<float>(config->hidden));
  }
  config->attention_soft_cap =
      static_cast<float>(facts.attention_soft_cap.value_or(family.attention_soft_cap));
  config->logit_soft_cap = static_cast<float>(facts.logit_soft_cap.value_or(family.logit_soft_cap));
  const bool by_width =
      family.width_scaled_layers != 0 && config->num_layers == family.width_scaled_layers;
  const uint32_t scaled_by = by_width ? config->hidden / config->num_heads : config->head_dim;
  config->attention_scale =
      static_cast<float>(facts.attention_scale.value_or(1.0 / std::sqrt(scaled_by)));
  SetLayers(family, facts, config);
  return Ok();
}

Graph BuildGraph(const ModelConfig& config, const KvGeometry& geometry, bool integer_activations) {
  const Family* family = FindFamily(config.family);
  KVRM_CHECK(family != nullptr, "a model's family is one of the table");
  return family->build(config, geometry, integer_activations);
}

}  // namespace kvrm
