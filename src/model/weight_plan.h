// Where each tensor of a file goes in the arena of a loaded model, and in which encoding: decided
// before a byte is moved, so that the memory is known and every refusal comes early. Pure;
// thread-safe. Points into the GgufFile, which must outlive it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/gguf.h"
#include "model/model.h"

namespace kvrm {

// One tensor within a linear: panel p of the tensor is panel first_panel + p * panel_step.
struct PlannedPart {
  const GgufTensor* tensor = nullptr;
  uint32_t first_panel = 0;
  uint32_t panel_step = 1;
  uint32_t rows() const { return static_cast<uint32_t>(tensor->rows()); }
};

struct PlannedLinear {
  LinearWeights shape;  // panels is null
  std::vector<PlannedPart> parts;
  uint64_t arena_offset = 0;
  uint64_t bytes() const { return EncodedBytes(shape.encoding, shape.n, shape.k); }
};

// Float vectors of a file one behind the other: a norm's weights, a fused linear's biases.
struct PlannedVector {
  std::vector<const GgufTensor*> parts;  // none: the family has no such thing
  float offset = 0;                      // added to each value
  uint64_t arena_offset = 0;
};

struct WeightPlan {
  struct Layer {
    PlannedVector attn_norm, head_norms, qkv_bias, post_attn_norm, ffn_norm, post_ffn_norm;
    PlannedLinear qkv, attn_out, gate_up, down;
  };
  std::vector<Layer> layers;
  PlannedVector output_norm;
  PlannedLinear embedding;
  std::optional<PlannedLinear> head;  // absent when tied
  uint64_t arena_bytes = 0;           // each piece 64-byte aligned
};

// kAuto: per linear the encoding nearest to the file's types; tensors that one linear fuses share
// one: q4 when all are Q4_0 or Q4_1, else q8. kF32, kQ4, kQ8: that encoding for every linear, the
// embedding included, quantised anew where the file's type is another (tensor/encoding.h).
// Requires: `config` is ReadConfig's of `file`.
// Errors: row lengths or outputs that the encoding cannot hold, by tensor name.
Result<WeightPlan> PlanWeights(const GgufFile& file, const ModelConfig& config,
                               WeightChoice choice);

// "q4 (210 linears), q8 (head)": the file's linears and the head by encoding.
std::string EncodingSummary(const WeightPlan& plan);

}  // namespace kvrm
