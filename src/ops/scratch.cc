#include "ops/op_args.h"

namespace kvrm::ops {

size_t ScratchBytes(const ScratchNeed& need) {
  // AttentionScratch (attention_kernel.h): scores, outputs and weights of the queries of a
  // tile; of all queries of a task running outputs and codes, a state, a scale and an offset.
  const size_t queries = size_t{kMaxTaskRows} * need.num_heads;
  const size_t bytes =
      kTileQueries * ((kChunkTokens + need.head_dim) * sizeof(float) + 2 * kChunkTokens) +
      queries * (need.head_dim * (sizeof(float) + 1) + 16 + 8);
  return (bytes + 4095) / 4096 * 4096;
}

}  // namespace kvrm::ops
