#include "pager/superblock_bins.h"

#include <bit>

namespace kvrm {

SuperblockBins::SuperblockBins(uint32_t max_superblocks) : used_{}, links_(max_superblocks) {
  for (auto& row : heads_) row.fill(kNone);
}

// A full superblock (run 0) is filed too, but stands in no bit set: nobody looks for it.
void SuperblockBins::Insert(SuperblockId id, BinKey key) {
  SuperblockId& head = heads_[key.longest_free_run][key.pages_in_use];
  links_[id.value] = {kNone, head};
  if (head != kNone) links_[head.value].previous = id;
  head = id;
  if (key.longest_free_run == 0) return;
  used_[key.longest_free_run] |= uint64_t{1} << key.pages_in_use;
  runs_ |= uint64_t{1} << (key.longest_free_run - 1);
}

void SuperblockBins::Remove(SuperblockId id, BinKey key) {
  SuperblockId& head = heads_[key.longest_free_run][key.pages_in_use];
  const Links links = links_[id.value];
  if (links.next != kNone) links_[links.next.value].previous = links.previous;
  if (links.previous != kNone) {
    links_[links.previous.value].next = links.next;
  } else {
    head = links.next;
  }
  if (head != kNone || key.longest_free_run == 0) return;
  uint64_t& used = used_[key.longest_free_run];
  used &= ~(uint64_t{1} << key.pages_in_use);
  if (used == 0) runs_ &= ~(uint64_t{1} << (key.longest_free_run - 1));
}

const SuperblockId* SuperblockBins::FindFitting(uint32_t count) const {
  const uint64_t fitting = runs_ >> (count - 1) << (count - 1);
  if (fitting == 0) return nullptr;
  const uint32_t run = static_cast<uint32_t>(std::countr_zero(fitting)) + 1;
  const uint32_t fullest = static_cast<uint32_t>(std::bit_width(used_[run])) - 1;
  return &heads_[run][fullest];
}

uint32_t SuperblockBins::LongestRun() const { return static_cast<uint32_t>(std::bit_width(runs_)); }

}  // namespace kvrm
