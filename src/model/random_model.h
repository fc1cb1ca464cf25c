// A seeded random model: a small, complete llama-family GGUF file with a working byte-level BPE
// tokenizer, so that the whole stack runs in tests and benches without a real model. The bytes
// depend on the spec alone: equal on every machine and compiler. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace kvrm {

// The usual chat markup with <|im_start|> and <|im_end|>, as a template.
extern const char kRandomModelChatTemplate[];

struct RandomModelSpec {
  uint64_t seed = 1;
  std::string family = "llama";
  uint32_t layers = 2;
  uint32_t hidden = 64;
  uint32_t heads = 4;
  uint32_t kv_heads = 2;
  uint32_t head_dim = 16;
  uint32_t ffn = 96;
  uint32_t vocab = 320;  // >= kMinRandomVocab; merges, then unused tokens fill it
  uint32_t context = 256;
  // Tokens that a layer sees, and which layers see everything all the same: every n-th. 0 = none.
  uint32_t window = 0;
  uint32_t full_every = 0;
  float rope_base = 10'000.0f;
  std::vector<float> rope_factors;  // [head_dim/2] written as rope_freqs.weight; empty = none
  // Types of the file's tensors; a type's block must divide hidden, heads * head_dim and ffn.
  DType linear_type = DType::kQ4_1;
  DType embedding_type = DType::kQ8_0;  // and of the head when not tied
  bool tied = true;
  std::string chat_template = kRandomModelChatTemplate;  // empty = none
  // Plants a NaN (in a block format: in its scale) at the beginning of one row of a named tensor.
  std::string nan_tensor;
  uint32_t nan_row = 0;
};

// 3 control tokens (0 <|endoftext|>, 1 <|im_start|>, 2 <|im_end|>, the end of a turn) and 256 bytes
// (token 3 + byte value).
inline constexpr uint32_t kMinRandomVocab = 259;

// Requires: a spec that ReadConfig would take. Logits of the model are finite, some units wide.
std::vector<std::byte> WriteRandomModel(const RandomModelSpec& spec);

}  // namespace kvrm
