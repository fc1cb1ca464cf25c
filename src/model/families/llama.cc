// Llama 2 and 3, SmolLM2, and Mistral, whose layers have a window. The scaled frequencies of
// Llama 3.x come with the file.
#include "model/decoder_builder.h"
#include "model/families/families.h"

namespace kvrm {

Graph BuildLlamaGraph(const ModelConfig& config, const KvGeometry& geometry,
                      bool integer_activations) {
  DecoderBuilder b(config, geometry, integer_activations);
  b.Embed();
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
    b.BeginLayer(layer);
    b.Norm(WeightRole::kAttnNorm);
    b.Qkv();
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

const Family kLlama = {.name = "llama",
                       .hf_type = "llama",
                       .gguf_rope = RopeLayout::kInterleaved,
                       .build = BuildLlamaGraph};

// GGUF files of Mistral models call themselves llama; the name is that of their config.json.
const Family kMistral = {.name = "mistral",
                         .hf_type = "mistral",
                         .gguf_rope = RopeLayout::kInterleaved,
                         .build = BuildLlamaGraph};

}  // namespace kvrm
