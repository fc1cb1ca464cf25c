// The tensors of a model: their names, as GGUF files have them, and shapes. One list, which the
// checks of a configuration and the plan of a load both read. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace kvrm {

inline constexpr std::string_view kEmbeddingTensor = "token_embd.weight";    // [vocab, hidden]
inline constexpr std::string_view kOutputTensor = "output.weight";           // [vocab, hidden]
inline constexpr std::string_view kOutputNormTensor = "output_norm.weight";  // [hidden]
inline constexpr std::string_view kRopeFactorsTensor = "rope_freqs.weight";  // [rope_dims/2]

struct TensorShape {
  std::string name;
  std::vector<uint64_t> dims;  // innermost first, as in the file
  bool optional = false;
};

// "blk.3.attn_q.weight" for (3, "attn_q").
std::string LayerTensorName(uint32_t layer, std::string_view part);
// "blk.3.attn_q.bias" for (3, "attn_q").
std::string LayerBiasName(uint32_t layer, std::string_view part);

// Every tensor of a model of this configuration, in the order of the forward pass.
std::vector<TensorShape> ModelTensors(const ModelConfig& config);

// Whether `tensors`, found by `find`, are those of the model: each there, of its shape and a
// readable type, and no other: a bias that is left out would give nonsense in silence. `name`
// stands before messages.
Status CheckTensors(const std::string& name, const std::vector<GgufTensor>& tensors,
                    const ModelConfig& config);

// "[576, 49152]", innermost first.
std::string ShapeText(const std::vector<uint64_t>& dims);

}  // namespace kvrm
