// Gemma 3, text: five layers of six have a window and frequencies of their own; queries and keys
// are normed head by head, and what attention and ffn add is normed first.
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
    b.HeadNorms();
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

const Family kGemma3 = {.name = "gemma3",
                        .hf_type = "gemma3_text",
                        .gguf_rope = RopeLayout::kHalves,
                        .hf_activation = "gelu_pytorch_tanh",
                        .head_norms = true,
                        .post_norms = true,
                        .scaled_embedding = true,
                        .norms_less_one = true,
                        .full_every = 6,
                        .local_rope_base = 10'000,
                        .width_scaled_layers = 62,
                        .build = Build};

}  // namespace kvrm
