// A loaded model: config, tokenizer spec, and weights in the encodings that kernels read. Immutable
// after Load; thread-safe. Owns its memory (huge-page advised, read-only after load); the file may
// be closed afterwards.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/view.h"
#include "tensor/encoding.h"

namespace kvrm {

enum class WeightChoice : uint8_t { kAuto, kF32, kQ4, kQ8 };  // --weights

// One linear: y[n] = sum_k w[n, k] x[k]. Panels of 16 outputs (tensor/encoding.h).
struct LinearWeights {
  Encoding encoding = Encoding::kF32;
  uint32_t n = 0;       // outputs, a multiple of 16 after padding
  uint32_t n_live = 0;  // outputs that exist
  uint32_t k = 0;
  const std::byte* panels = nullptr;  // 64-byte aligned
};

// What a family has no use for is null.
struct LayerWeights {
  const float* attn_norm = nullptr;       // [hidden]
  const float* head_norms = nullptr;      // [2, head_dim]: of queries, of keys
  const float* qkv_bias = nullptr;        // [outputs of qkv]
  const float* post_attn_norm = nullptr;  // [hidden]
  const float* ffn_norm = nullptr;        // [hidden]
  const float* post_ffn_norm = nullptr;   // [hidden]
  LinearWeights qkv;                      // outputs: q heads, then k heads, then v heads
  LinearWeights attn_out;
  LinearWeights gate_up;  // outputs: gate panel, up panel alternating, 16 each
  LinearWeights down;
};

struct LoadOptions {
  WeightChoice weights = WeightChoice::kAuto;
  uint32_t num_threads = 1;
  std::function<void(double)> progress;  // share done, 0..1, on the calling thread; may be empty
  uint64_t memory_limit_bytes = 0;       // for the weights; 0 = what the system has available
  // In place of the file's; folders of safetensors have none of their own (text/tokenizer_json.h).
  std::optional<TokenizerSpec> tokenizer;
  ModelView view;  // laid over the windows of config()
};

class Model {
 public:
  // Errors: those of ReadConfig, ReadTokenizerSpec and PlanWeights; a tokenizer with more tokens
  // than the embedding has rows; weights that do not fit in memory; a scale that the encoding
  // cannot hold, by tensor name.
  static Result<std::unique_ptr<const Model>> Load(const GgufFile& file,
                                                   const LoadOptions& options);
  ~Model();

  const ModelConfig& config() const { return config_; }
  // One token a row of the embedding: rows without one are unused tokens.
  const TokenizerSpec& tokenizer_spec() const { return tokenizer_spec_; }
  const std::vector<LayerWeights>& layers() const { return layers_; }
  const float* output_norm() const { return output_norm_; }
  const LinearWeights& head() const { return head_; }
  // Embedding rows: the head's panels when tied (one copy of the bytes), else its own.
  const LinearWeights& embedding() const { return embedding_; }
  uint64_t weight_bytes() const { return weight_bytes_; }  // re-laid, in memory
  // "q4 (210 linears), q8 (head)"; linears as the file counts them.
  const std::string& encoding_summary() const { return encoding_summary_; }

 private:
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  friend class ModelLoader;
  ModelConfig config_;
  TokenizerSpec tokenizer_spec_;
  std::vector<LayerWeights> layers_;
  const float* output_norm_ = nullptr;
  LinearWeights head_, embedding_;
  uint64_t weight_bytes_ = 0;
  std::string encoding_summary_;
  std::byte* arena_ = nullptr;
  uint64_t arena_bytes_ = 0;
};

}  // namespace kvrm
