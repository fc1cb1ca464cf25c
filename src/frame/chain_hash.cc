#include "frame/chain_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kvrm {

uint64_t ChainHash(uint64_t previous_hash, const FrameHead& head, const void* rest,
                   uint64_t rest_bytes) {
  FrameHead chained = head;
  chained.chain_hash = previous_hash;
  // The head's hash seeds that of the rest: both in one pass, and no state to carry.
  return XXH3_64bits_withSeed(rest, rest_bytes, XXH3_64bits(&chained, sizeof chained));
}

}  // namespace kvrm
