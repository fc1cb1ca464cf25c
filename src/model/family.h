// Model families: what a model's files do not say because its name says it, and the graph of one
// step. A family is one file in families/, one row of the table in family.cc and one golden test
// (docs/models.md shows it by example). Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/kv_view.h"
#include "base/result.h"
#include "graph/program.h"
#include "model/config.h"

namespace kvrm {

// The ops of one step (model/decoder_builder.h). `integer_activations`: what linears read is int8
// groups of 32, else float32. Requires: `config` and `geometry` agree (ReadConfig, KvGeometryOf).
Graph BuildDecoderGraph(const ModelConfig& config, const KvGeometry& geometry,
                        bool integer_activations);

// What a config.json means that leaves a field out, where a GGUF file that leaves out the like of
// it means something else. 0: as a GGUF file.
struct HubDefaults {
  uint32_t num_kv_heads = 0;  // 0: as many as heads of queries
  uint32_t head_dim = 0;      // 0: hidden / heads
  uint32_t window = 0;        // of the layers that have one
  double rope_base = 10'000;
  double query_scalar = 0;  // queries are scaled by 1/sqrt of it; 0: of the head length
  bool tied_head = false;
};

struct Family {
  std::string_view name;                       // general.architecture of a GGUF file
  std::string_view hf_type;                    // model_type of a config.json
  RopeLayout gguf_rope = RopeLayout::kHalves;  // how a GGUF file's q and k rows are ordered
  Gating gating = Gating::kSilu;
  bool qkv_bias = false;
  bool head_norms = false;        // queries and keys are normed head by head
  bool post_norms = false;        // what attention and ffn add is normed first
  bool scaled_embedding = false;  // by sqrt(hidden)
  // Norm weights are stored less one; GGUF converters add it, safetensors do not have it.
  bool norms_less_one = false;
  // A config.json's window counts only where use_sliding_window says so.
  bool window_by_flag = false;
  // What holds where a file says nothing.
  uint32_t window = 0;
  uint32_t full_every = 0;     // every n-th layer sees everything; 0: all have the window
  uint32_t no_rope_every = 0;  // every n-th layer does not rotate; 0: all do
  double local_rope_base = 0;  // of layers with a window; 0: the model's own
  float attention_soft_cap = 0, logit_soft_cap = 0;
  // Layers of the one size whose queries are scaled by 1/sqrt(hidden / heads); 0: none.
  uint32_t width_scaled_layers = 0;
  HubDefaults hub;
  // A family whose forward pass is another one brings its own.
  decltype(&BuildDecoderGraph) build = BuildDecoderGraph;
};

std::span<const Family* const> Families();
// nullptr: not known.
const Family* FindFamily(std::string_view name);
const Family* FindHfFamily(std::string_view model_type);
// "gemma2 gemma3 llama ..", for messages.
std::string FamilyNames();
std::string HfTypeNames();

// What a file says about things that families decide otherwise; absent: it says nothing.
struct FamilyFacts {
  std::optional<uint64_t> window;  // 0: none
  std::optional<uint64_t> full_every;
  std::optional<std::vector<bool>> slides;   // [num_layers]; before full_every
  std::optional<std::vector<bool>> rotates;  // [num_layers]
  std::optional<double> attention_scale, local_rope_base;
  std::optional<double> attention_soft_cap, logit_soft_cap;  // 0: none
};

// Fills in what `config`, whose sizes, RoPE and norm_eps are read, has from its family, `facts`
// before what the family says. A window that holds the whole context is none.
// Errors: a window of 1; lists whose length is not num_layers.
Status ApplyFamily(const Family& family, const FamilyFacts& facts, ModelConfig* config);

// The ops of one step, as the model's family builds them; see BuildDecoderGraph.
Graph BuildGraph(const ModelConfig& config, const KvGeometry& geometry, bool integer_activations);

}  // namespace kvrm
