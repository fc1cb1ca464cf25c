#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/check.h"

namespace kvrm {
namespace {

constexpr uint64_t kNoPair = ~uint64_t{0};
constexpr uint32_t kNoRank = ~uint32_t{0};
constexpr uint32_t kEnd = ~uint32_t{0};
// Up to here a scan over a few words beats the heap; words of real text are nearly all shorter.
constexpr size_t kShortPiece = 32;

uint64_t PairKey(TokenId left, TokenId right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

uint64_t Mix(uint64_t key) { return key * 0x9E3779B97F4A7C15u; }

}  // namespace

BpeMerger::BpeMerger(std::span<const TokenId, 256> byte_tokens, std::span<const BpeMerge> merges) {
  std::ranges::copy(byte_tokens, byte_tokens_);
  BuildTable(merges, {});
}

BpeMerger::BpeMerger(std::span<const BpeMerge> merges, std::span<const uint32_t> ranks) {
  std::ranges::fill(byte_tokens_, TokenId{-1});
  BuildTable(merges, ranks);
}

void BpeMerger::BuildTable(std::span<const BpeMerge> merges, std::span<const uint32_t> ranks) {
  KVRM_CHECK(merges.size() < kNoRank, "ranks fit 32 bits");
  KVRM_CHECK(ranks.empty() || ranks.size() == merges.size(), "one rank a merge");
  const size_t size = std::bit_ceil(std::max<size_t>(merges.size() * 2, 2));
  table_.assign(size, Entry{kNoPair, kNoRank, -1});
  table_shift_ = 64 - static_cast<uint32_t>(std::countr_zero(size));
  for (uint32_t i = 0; i < merges.size(); ++i) {
    const BpeMerge& merge = merges[i];
    const uint32_t rank = ranks.empty() ? i : ranks[i];
    const uint64_t pair = PairKey(merge.left, merge.right);
    size_t slot = Mix(pair) >> table_shift_;
    while (table_[slot].pair != kNoPair && table_[slot].pair != pair) slot = (slot + 1) % size;
    if (table_[slot].pair == kNoPair) table_[slot] = {pair, rank, merge.merged};
  }
}

const BpeMerger::Entry* BpeMerger::Find(TokenId left, TokenId right) const {
  const uint64_t pair = PairKey(left, right);
  size_t slot = Mix(pair) >> table_shift_;
  while (table_[slot].pair != kNoPair) {
    if (table_[slot].pair == pair) return &table_[slot];
    slot = (slot + 1) & (table_.size() - 1);
  }
  return nullptr;
}

uint32_t BpeMerger::RankOf(TokenId left, TokenId right, BpeScratch& scratch) const {
  ++scratch.steps;
  const Entry* entry = Find(left, right);
  return entry == nullptr ? kNoRank : entry->rank;
}

void BpeMerger::Merge(std::string_view piece, BpeScratch& scratch,
                      std::vector<TokenId>& out) const {
  KVRM_CHECK(piece.size() < kEnd, "a piece is shorter than 4 GiB");
  scratch.ids.clear();
  for (const char byte : piece) {
    const TokenId id = byte_tokens_[static_cast<uint8_t>(byte)];
    if (id >= 0) scratch.ids.push_back(id);
  }
  MergeIds(scratch, out);
}

void BpeMerger::MergeIds(BpeScratch& scratch, std::vector<TokenId>& out) const {
  KVRM_CHECK(scratch.ids.size() < kEnd, "a piece has fewer than 2^32 - 1 symbols");
  if (scratch.ids.size() < 2) {
    out.insert(out.end(), scratch.ids.begin(), scratch.ids.end());
  } else if (scratch.ids.size() <= kShortPiece) {
    MergeShort(scratch, out);
  } else {
    MergeLong(scratch, out);
  }
}

// ranks[i]: rank of the pair (i, i + 1). Each round takes the first of the lowest.
void BpeMerger::MergeShort(BpeScratch& scratch, std::vector<TokenId>& out) const {
  std::vector<TokenId>& ids = scratch.ids;
  std::vector<uint32_t>& ranks = scratch.ranks;
  ranks.resize(ids.size() - 1);
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = RankOf(ids[i], ids[i + 1], scratch);
  while (!ranks.empty()) {
    const auto best = std::ranges::min_element(ranks);
    if (*best == kNoRank) break;
    const auto at = static_cast<size_t>(best - ranks.begin());
    ids[at] = Find(ids[at], ids[at + 1])->merged;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(at) + 1);
    ranks.erase(best);
    if (at > 0) ranks[at - 1] = RankOf(ids[at - 1], ids[at], scratch);
    if (at < ranks.size()) ranks[at] = RankOf(ids[at], ids[at + 1], scratch);
  }
  out.insert(out.end(), ids.begin(), ids.end());
}

// A linked list of symbols and a heap of (rank, place). An entry is out of date when the rank at
// its place has changed since; where it has not, what stands there now is as good as what stood
// there then, so nothing else need be compared.
void BpeMerger::MergeLong(BpeScratch& scratch, std::vector<TokenId>& out) const {
  const auto size = static_cast<uint32_t>(scratch.ids.size());
  scratch.ranks.assign(size, kNoRank);
  scratch.next.resize(size);
  scratch.previous.resize(size);
  scratch.heap.clear();
  for (uint32_t i = 0; i < size; ++i) {
    scratch.next[i] = i + 1 < size ? i + 1 : kEnd;
    scratch.previous[i] = i > 0 ? i - 1 : kEnd;
    if (i + 1 == size) break;
    scratch.ranks[i] = RankOf(scratch.ids[i], scratch.ids[i + 1], scratch);
    if (scratch.ranks[i] != kNoRank) scratch.heap.push_back(uint64_t{scratch.ranks[i]} << 32 | i);
  }
  std::ranges::make_heap(scratch.heap, std::greater<>{});
  while (!scratch.heap.empty()) {
    std::ranges::pop_heap(scratch.heap, std::greater<>{});
    const uint64_t entry = scratch.heap.back();
    scratch.heap.pop_back();
    ++scratch.steps;
    const auto at = static_cast<uint32_t>(entry);
    if (scratch.ranks[at] == entry >> 32) MergeAt(at, scratch);
  }
  for (uint32_t i = 0; i != kEnd; i = scratch.next[i]) out.push_back(scratch.ids[i]);
}

// Merges the symbols at `at` and after it; the pairs on both sides change.
void BpeMerger::MergeAt(uint32_t at, BpeScratch& scratch) const {
  const uint32_t gone = scratch.next[at];
  scratch.ids[at] = Find(scratch.ids[at], scratch.ids[gone])->merged;
  scratch.ranks[gone] = kNoRank;
  scratch.next[at] = scratch.next[gone];
  if (scratch.next[at] != kEnd) scratch.previous[scratch.next[at]] = at;
  const auto renew = [&](uint32_t place) {
    const uint32_t right = scratch.next[place];
    const uint32_t rank =
        right == kEnd ? kNoRank : RankOf(scratch.ids[place], scratch.ids[right], scratch);
    scratch.ranks[place] = rank;
    if (rank == kNoRank) return;
    scratch.heap.push_back(uint64_t{rank} << 32 | place);
    std::ranges::push_heap(scratch.heap, std::greater<>{});
  };
  renew(at);
  if (scratch.previous[at] != kEnd) renew(scratch.previous[at]);
}

}  // namespace kvrm
