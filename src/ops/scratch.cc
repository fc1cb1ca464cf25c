#include "ops/op_args.h"

namespace kvrm::ops {

size_t ScratchBytes(const ScratchNeed& need) {
  // AttentionScratch (attention_kernel.h): what the queries of one KV head need, then what those
  // of all heads do: running outputs and codes, a state, a scale and an offset.
  const size_t tile_queries = size_t{kMaxTaskRows} * (need.num_heads / need.num_kv_heads);
  const size_t queries = size_t{kMaxTaskRows} * need.num_heads;
  const size_t bytes =
      tile_queries * ((kChunkTokens + need.head_dim) * sizeof(float) + 2 * kChunkTokens) +
      queries * (need.head_dim * (sizeof(float) + 1) + 16 + 8);
  return (bytes + 4095) / 4096 * 4096;
}

}  // namespace kvrm::ops
