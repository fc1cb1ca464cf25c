#include "model/model_tensors.h"

#include <map>

namespace kvrm {

std::string LayerTensorName(uint32_t layer, std::string_view part) {
  return "blk." + std::to_string(layer) + "." + std::string(part) + ".weight";
}

std::string LayerBiasName(uint32_t layer, std::string_view part) {
  return "blk." + std::to_string(layer) + "." + std::string(part) + ".bias";
}

std::vector<TensorShape> ModelTensors(const ModelConfig& config) {
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
    const auto bias = [&](std::string_view part, uint64_t outputs) {
      if (config.qkv_bias) tensors.push_back({LayerBiasName(layer, part), {outputs}});
    };
    add("attn_norm", {hidden});
    add("attn_q", {hidden, q_outputs});
    add("attn_k", {hidden, kv_outputs});
    add("attn_v", {hidden, kv_outputs});
    bias("attn_q", q_outputs);
    bias("attn_k", kv_outputs);
    bias("attn_v", kv_outputs);
    if (config.head_norms) {
      add("attn_q_norm", {config.head_dim});
      add("attn_k_norm", {config.head_dim});
    }
    add("attn_output", {q_outputs, hidden});
    if (config.post_norms) add("post_attention_norm", {hidden});
    add("ffn_norm", {hidden});
    add("ffn_gate", {hidden, config.ffn});
    add("ffn_up", {hidden, config.ffn});
    add("ffn_down", {config.ffn, hidden});
    if (config.post_norms) add("post_ffw_norm", {hidden});
  }
  tensors.push_back({std::string(kOutputNormTensor), {hidden}});
  tensors.push_back({std::string(kOutputTensor), {hidden, config.vocab}, /*optional=*/true});
  return tensors;
}

Status CheckTensors(const std::string& name, const std::vector<GgufTensor>& tensors,
                    const ModelConfig& config) {
  const auto not_offered = [&](const std::string& what) { return Unsupported(name + ": " + what); };
  std::map<std::string_view, const GgufTensor*> left;
  for (const GgufTensor& tensor : tensors) left.emplace(tensor.name, &tensor);
  const std::string layers =
      config.family + " with " + std::to_string(config.num_layers) + " layers";
  for (const TensorShape& shape : ModelTensors(config)) {
    const auto at = left.find(shape.name);
    if (at == left.end()) {
      if (shape.optional) continue;
      return InvalidInput(name + ": tensor '" + shape.name + "' is missing, which family " +
                          layers + " has");
    }
    const GgufTensor& tensor = *at->second;
    left.erase(at);
    if (tensor.dims != shape.dims) {
      return InvalidInput(name + ": tensor '" + shape.name + "' has shape " +
                          ShapeText(tensor.dims) + ", must be " + ShapeText(shape.dims));
    }
    if (!GetDType(tensor.type).readable) {
      return not_offered("tensor '" + shape.name + "' has type " +
                         std::string(GetDType(tensor.type).name) +
                         ", readable: " + ReadableTypes());
    }
  }
  for (const GgufTensor& tensor : tensors) {
    if (!left.contains(tensor.name)) continue;
    return not_offered("tensor '" + PrintableName(tensor.name) + "' is not one of family " +
                       layers);
  }
  return Ok();
}

std::string ShapeText(const std::vector<uint64_t>& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(dims[i]);
  }
  return text + "]";
}

}  // namespace kvrm
