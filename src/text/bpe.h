// Byte-pair merging: the tokens of one piece of text. Immutable after creation; thread-safe, each
// caller brings its own BpeScratch.
//
// Law: the result is that of the textbook rule (of all neighbouring pairs merge the best ranked,
// the leftmost of equals, until none is left), in O(n log n) steps for any piece of n bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace kvrm {

// "left right becomes merged"; a lower rank is merged earlier.
struct BpeMerge {
  TokenId left;
  TokenId right;
  TokenId merged;
};

// Reused memory of one thread, and the count of what was done (tests hold it to a bound).
struct BpeScratch {
  std::vector<TokenId> ids;
  std::vector<uint32_t> ranks;
  std::vector<uint32_t> next, previous;
  std::vector<uint64_t> heap;
  uint64_t steps = 0;  // looks at a pair, moves in the heap's list, bytes searched for a cut
};

class BpeMerger {
 public:
  // `byte_tokens`: [256] the token of each byte, -1 = none: such a byte vanishes before merging, as
  // in the reference tokenizers. `merges`: best first; of equal pairs the first counts.
  BpeMerger(std::span<const TokenId, 256> byte_tokens, std::span<const BpeMerge> merges);
  // Over symbols of the caller's, where several merges may have the same rank: of those the
  // leftmost comes first. `ranks`: [merges], below 2^32 - 1, lower is earlier; empty = by place.
  BpeMerger(std::span<const BpeMerge> merges, std::span<const uint32_t> ranks);

  // Appends the tokens of `piece` to `out`. Requires: piece.size() < 2^32 - 1.
  void Merge(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const;
  // The same for the symbols in scratch.ids, which is used up.
  void MergeIds(BpeScratch& scratch, std::vector<TokenId>& out) const;

 private:
  struct Entry {
    uint64_t pair;  // left in the high half; kNoPair = empty
    uint32_t rank;
    TokenId merged;
  };

  void BuildTable(std::span<const BpeMerge> merges, std::span<const uint32_t> ranks);
  const Entry* Find(TokenId left, TokenId right) const;
  uint32_t RankOf(TokenId left, TokenId right, BpeScratch& scratch) const;
  void MergeShort(BpeScratch& scratch, std::vector<TokenId>& out) const;
  void MergeLong(BpeScratch& scratch, std::vector<TokenId>& out) const;
  void MergeAt(uint32_t at, BpeScratch& scratch) const;

  TokenId byte_tokens_[256];
  std::vector<Entry> table_;  // open addressing, a power of two, at most half full
  uint32_t table_shift_ = 0;
};

}  // namespace kvrm
