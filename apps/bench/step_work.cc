#include "bench/step_work.h"

#include "tensor/encoding.h"

namespace kvrm::cli {
namespace {

double MultiplyAdds(const LinearWeights& weights) {
  return static_cast<double>(weights.n_live) * weights.k;
}

}  // namespace

uint64_t DecodeStepBytes(const Model& model, const KvGeometry& geometry, uint32_t num_seqs,
                         double context_tokens) {
  uint64_t weight_bytes = model.weight_bytes();
  const LinearWeights& embedding = model.embedding();
  if (embedding.panels != model.head().panels) {
    weight_bytes -= EncodedBytes(embedding.encoding, embedding.n, embedding.k);
  }
  return weight_bytes + static_cast<uint64_t>(num_seqs * context_tokens *
                                              static_cast<double>(geometry.bytes_per_token()));
}

PrefillOperations PrefillWork(const Model& model, uint32_t prompt_tokens) {
  const double tokens = prompt_tokens;
  double per_token = 0;
  for (const LayerWeights& layer : model.layers()) {
    per_token += MultiplyAdds(layer.qkv) + MultiplyAdds(layer.attn_out) +
                 MultiplyAdds(layer.gate_up) + MultiplyAdds(layer.down);
  }
  const ModelConfig& config = model.config();
  // Token i sees i + 1 tokens, once for its scores and once for its sum.
  const double seen = tokens * (tokens + 1) / 2;
  PrefillOperations work;
  work.linear = 2 * (per_token * tokens + MultiplyAdds(model.head()));
  work.attention = 2.0 * 2.0 * config.num_layers * config.num_heads * config.head_dim * seen;
  return work;
}

}  // namespace kvrm::cli
