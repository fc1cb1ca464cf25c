// What a model is, read from its file and checked: every key against every other and against the
// tensors' shapes. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/kv_view.h"
#include "base/result.h"
#include "base/tokenizer_spec.h"
#include "graph/program.h"
#include "model/gguf.h"

namespace kvrm {

enum class RopeLayout : uint8_t {
  kInterleaved,  // pairs (2i, 2i+1): llama-family GGUF files
  kHalves,       // pairs (i, i + d/2)
};

struct RopeConfig {
  double base = 10000.0;
  std::vector<float> factors;  // [rope_dims/2] frequency divisors, empty = none
  double amplitude = 1;        // of cosines and sines
};

// What may differ from layer to layer.
struct LayerConfig {
  uint32_t window = 0;  // tokens that a row sees, its own included; 0 = all
  RopeKind rope = RopeKind::kGlobal;
};

struct ModelConfig {
  std::string family;  // "llama": a name that FindFamily knows
  std::string name;    // general.name
  uint32_t num_layers = 0;
  uint32_t hidden = 0;
  uint32_t ffn = 0;
  uint32_t num_heads = 0;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t vocab = 0;
  uint32_t max_context = 0;
  float norm_eps = 1e-5f;
  uint32_t rope_dims = 0;  // rotated dimensions of a head
  RopeLayout rope_layout = RopeLayout::kInterleaved;
  RopeConfig rope, local_rope;      // of RopeKind::kGlobal and kLocal
  float attention_scale = 0;        // 1/sqrt(head_dim) unless the file says otherwise
  bool tied_head = true;            // no output.weight: the head is the embedding
  std::vector<LayerConfig> layers;  // [num_layers]

  // Of the family (model/family.h).
  bool qkv_bias = false;
  bool head_norms = false;  // queries and keys are normed head by head
  bool post_norms = false;  // what attention and ffn add is normed first
  Gating gating = Gating::kSilu;
  float norm_offset = 0;      // what the file leaves out of each norm's weights
  float embedding_scale = 1;  // of embedded tokens
  float attention_soft_cap = 0, logit_soft_cap = 0;  // 0 = none

  bool UsesLocalRope() const;
};

// Errors: unknown architecture (named, with those known), missing or contradicting keys, missing,
// misshapen or unsupported tensors (by name), RoPE scaling kinds that are not built.
Result<ModelConfig> ReadConfig(const GgufFile& file);
// Errors: token arrays missing or of contradicting lengths, vocabulary above the embedding's rows.
Result<TokenizerSpec> ReadTokenizerSpec(const GgufFile& file);

// KV geometry of a model: a group of the layers that see everything and one for each window, as far
// as there are such layers; full first, windows ascending. Part = layer, K and V together; page b =
// kv_heads * KvTileOf(format, head_dim).head_bytes. Errors: head_dim not a multiple of 16, more
// than kMaxKvGroups groups.
Result<KvGeometry> KvGeometryOf(const ModelConfig& config, KvFormat format);

}  // namespace kvrm
