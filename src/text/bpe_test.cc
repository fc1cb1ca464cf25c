#include "text/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace kvrm {
namespace {

std::array<TokenId, 256> IdentityBytes() {
  std::array<TokenId, 256> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<TokenId>(i);
  return bytes;
}

// The textbook rule, as slow as it reads.
std::vector<TokenId> MergeSlowly(std::vector<TokenId> ids, const std::vector<BpeMerge>& merges) {
  std::map<std::pair<TokenId, TokenId>, size_t> ranks;
  for (size_t i = 0; i < merges.size(); ++i)
    ranks.emplace(std::pair{merges[i].left, merges[i].right}, i);
  for (;;) {
    size_t best_rank = merges.size();
    size_t best_at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = ranks.find({ids[i], ids[i + 1]});
      if (found != ranks.end() && found->second < best_rank) {
        best_rank = found->second;
        best_at = i;
      }
    }
    if (best_rank == merges.size()) return ids;
    ids[best_at] = merges[best_rank].merged;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best_at) + 1);
  }
}

// Random merges over three letters and what they make, so that merges feed each other.
std::vector<BpeMerge> RandomMerges(std::mt19937& random, size_t count) {
  std::vector<TokenId> known = {'a', 'b', 'c'};
  std::vector<BpeMerge> merges;
  for (size_t i = 0; i < count; ++i) {
    const auto merged = static_cast<TokenId>(256 + i);
    merges.push_back({known[random() % known.size()], known[random() % known.size()], merged});
    known.push_back(merged);
  }
  std::ranges::shuffle(merges, random);
  return merges;
}

TEST(BpeMerger, EqualsTheTextbookRuleAtAnyLength) {
  std::mt19937 random(1);
  const auto bytes = IdentityBytes();
  for (int round = 0; round < 300; ++round) {
    const std::vector<BpeMerge> merges = RandomMerges(random, 1 + random() % 40);
    const BpeMerger merger(bytes, merges);
    BpeScratch scratch;
    for (const size_t length : {1u, 2u, 5u, 31u, 32u, 33u, 34u, 120u}) {
      std::string piece;
      for (size_t i = 0; i < length; ++i) piece += static_cast<char>('a' + random() % 3);
      std::vector<TokenId> got;
      merger.Merge(piece, scratch, got);
      EXPECT_EQ(got, MergeSlowly({piece.begin(), piece.end()}, merges)) << piece;
    }
  }
}

TEST(BpeMerger, AppendsAndKeepsWhatWasThere) {
  const BpeMerger merger(IdentityBytes(), {});
  BpeScratch scratch;
  std::vector<TokenId> out = {9};
  merger.Merge("", scratch, out);
  merger.Merge("x", scratch, out);
  EXPECT_EQ(out, (std::vector<TokenId>{9, 'x'}));
}

TEST(BpeMerger, OfEqualPairsTheFirstCounts) {
  const std::vector<BpeMerge> merges = {{'a', 'b', 300}, {'a', 'b', 301}};
  const BpeMerger merger(IdentityBytes(), merges);
  BpeScratch scratch;
  std::vector<TokenId> out;
  merger.Merge("ab", scratch, out);
  EXPECT_EQ(out, (std::vector<TokenId>{300}));
}

TEST(BpeMerger, AVanishedByteLeavesItsNeighboursAdjacent) {
  std::array<TokenId, 256> bytes = IdentityBytes();
  bytes['!'] = -1;
  const std::vector<BpeMerge> merges = {{'a', 'b', 300}};
  const BpeMerger merger(bytes, merges);
  BpeScratch scratch;
  std::vector<TokenId> out;
  merger.Merge("a!b!", scratch, out);
  EXPECT_EQ(out, (std::vector<TokenId>{300}));
}

}  // namespace
}  // namespace kvrm
