#include "ops/op_args.h"

namespace kvrm::ops {

size_t ScratchBytes(const ScratchNeed& need) {
  // Scores, chunk outputs, running outputs, states (attention_kernel.h).
  const size_t queries = size_t{kMaxTaskRows} * need.max_group_heads;
  const size_t bytes = queries * (kChunkTokens + 2 * need.head_dim) * sizeof(float) + queries * 16;
  return (bytes + 4095) / 4096 * 4096;
}

}  // namespace kvrm::ops
