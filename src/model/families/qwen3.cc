// Qwen 3: queries and keys are normed head by head before they are rotated.
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
    b.AddAttention();
    b.Norm(WeightRole::kFfnNorm);
    b.GateUp();
    b.Gate(Gating::kSilu);
    b.AddFfn();
  }
  return b.Finish();
}

}  // namespace

const Family kQwen3 = {.name = "qwen3",
                       .hf_type = "qwen3",
                       .gguf_rope = RopeLayout::kHalves,
                       .head_norms = true,
                       .build = Build};

}  // namespace kvrm
