#include <algorithm>

#include "ops/op_args.h"

namespace kvrm::ops {

size_t ScratchBytes(const ScratchNeed& need) {
  // AttentionScratch (attention_kernel.h): scores, outputs and weights of the queries of a
  // tile; of all queries of a task running outputs and codes, a state, a scale and an offset.
  const size_t queries = size_t{kMaxTaskRows} * need.num_heads;
  const size_t bytes =
      kTileQueries * ((kChunkTokens + need.head_dim) * sizeof(float) + 2 * kChunkTokens) +
      queries * (need.head_dim * (sizeof(float) + 1) + 16 + 8);
  // MatrixScratch (attention_amx.h): scores, weights, sums, offsets and scales of a tile and a
  // chunk, V's bytes, codes with a tile to spare, outputs, states.
  const size_t matrix = 16 * kChunkTokens * 6 + kChunkTokens * need.head_dim + 5 * 1024 +
                        2 * kChunkTokens * sizeof(float) + (queries + 16) * need.head_dim +
                        (queries + need.num_heads) * need.head_dim * sizeof(float) +
                        queries * (16 + 8);
  // linear_amx.h: scales of sixteen rows, unpacked panels. An op has the scratch to itself.
  const size_t panels = size_t{need.max_k / kGroup} *
                        (2 * 16 * sizeof(float) + kUnpackedPanels * kUnpackedGroupBytes);
  return (std::max({bytes, matrix, panels}) + 4095) / 4096 * 4096;
}

}  // namespace kvrm::ops
