#include "model/llama_tensors.h"

namespace kvrm {

std::string LayerTensorName(uint32_t layer, std::string_view part) {
  return "blk." + std::to_string(layer) + "." + std::string(part) + ".weight";
}

std::vector<TensorShape> LlamaTensors(const ModelConfig& config) {
  const uint64_t hidden = config.hidden;
  const uint64_t q_outputs = uint64_t{config.num_heads} * config.head_dim;
  const uint64_t kv_outputs = uint64_t{config.num_kv_heads} * config.head_dim;
  std::vector<TensorShape> tensors;
  tensors.push_back({std::string(kEmbeddingTensor), {hidden, config.vocab}});
  tensors.push_back({std::string(kRopeFactorsTensor), {config.rope_dims / 2}, /*optional=*/true});
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
    const auto add = [&](std::string_view part, std::vector<uint64_t> dims) {
      tensors.push_back({LayerTensorName(layer, part), std::move(dims)});
    };
    add("attn_norm", {hidden});
    add("attn_q", {hidden, q_outputs});
    add("attn_k", {hidden, kv_outputs});
    add("attn_v", {hidden, kv_outputs});
    add("attn_output", {q_outputs, hidden});
    add("ffn_norm", {hidden});
    add("ffn_gate", {hidden, config.ffn});
    add("ffn_up", {hidden, config.ffn});
    add("ffn_down", {config.ffn, hidden});
  }
  tensors.push_back({std::string(kOutputNormTensor), {hidden}});
  tensors.push_back({std::string(kOutputTensor), {hidden, config.vocab}, /*optional=*/true});
  return tensors;
}

std::string ShapeText(const std::vector<uint64_t>& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(dims[i]);
  }
  return text + "]";
}

}  // namespace kvrm
