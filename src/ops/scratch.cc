#include "ops/op_args.h"

namespace kvrm::ops {

size_t ScratchBytes(const ScratchNeed& need) {
  // Scores, chunk outputs, running outputs, states; of int8 pages the queries' scales and offsets,
  // weights and codes (attention_kernel.h).
  const size_t queries = size_t{kMaxTaskRows} * need.max_group_heads;
  const size_t bytes = queries * (kChunkTokens + 2 * need.head_dim) * sizeof(float) +
                       queries * (16 + 8 + 2 * kChunkTokens + need.head_dim);
  return (bytes + 4095) / 4096 * 4096;
}

}  // namespace kvrm::ops
