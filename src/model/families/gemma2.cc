// Gemma 2: every other layer has a window, scores and logits are capped, and what attention and ffn
// add is normed first.
#include "model/decoder_builder.h"
#include "model/families/families.h"

namespace kvrm {
namespace {

Graph Build(const ModelConfig& config, const KvGeometry& geometry, bool integer_activations) {
  DecoderBuilder b(config, geometry, integer_activations);
  b.Embed();
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
    b.BeginLayer(layer);
    b.Norm(WeightRole::kAttnNorm);
    b.Qkv();
    b.Rope();
    b.Attend();
    b.AddNormedAttention();
    b.Norm(WeightRole::kFfnNorm);
    b.GateUp();
    b.Gate(Gating::kGeluTanh);
    b.AddNormedFfn();
  }
  return b.Finish();
}

}  // namespace

const Family kGemma2 = {.name = "gemma2",
                        .hf_type = "gemma2",
                        .gguf_rope = RopeLayout::kHalves,
                        .hf_activation = "gelu_pytorch_tanh",
                        .post_norms = true,
                        .scaled_embedding = true,
                        .norms_less_one = true,
                        .window = 4096,
                        .full_every = 2,
                        .attention_soft_cap = 50,
                        .logit_soft_cap = 30,
                        .width_scaled_layers = 46,
                        .build = Build};

}  // namespace kvrm
