#include <algorithm>

#include "ops/op_args.h"

namespace kvrm::ops {

size_t ScratchBytes(const ScratchNeed& need) {
  const size_t groups = need.max_linear_k / kGroup;
  // Two unpacked panels: codes, d, m (linear_kernel.h).
  const size_t linear = groups * (1024 + 2 * 2 * kPanel * sizeof(float));
  // Scores, chunk outputs, running outputs, states (attention_kernel.h).
  const size_t queries = size_t{kMaxTaskRows} * need.max_group_heads;
  const size_t attention =
      queries * (kChunkTokens + 2 * need.head_dim) * sizeof(float) + queries * 16;
  return (std::max(linear, attention) + 4095) / 4096 * 4096;
}

}  // namespace kvrm::ops
