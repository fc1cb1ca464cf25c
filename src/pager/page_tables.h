// The page tables of one KV group: for each slot its pages in token order, in one flat array that
// is sized once. Knows adjacency (which pages continue a read run), not references.
//
// Thread class: engine-thread-only. Never allocates after construction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/ids.h"

namespace kvrm {

// Adjacent pages of one superblock.
struct PageRun {
  PageId page;  // the first
  uint32_t count = 0;
};

class PageTables {
 public:
  PageTables(uint32_t max_slots, uint32_t max_pages, uint32_t pages_per_superblock)
      : max_pages_(max_pages),
        pages_per_superblock_(pages_per_superblock),
        pages_(size_t{max_slots} * max_pages),
        counts_(max_slots) {}

  uint32_t num_pages(uint32_t slot) const { return counts_[slot]; }
  uint32_t max_pages() const { return max_pages_; }
  // Valid until the slot's next edit.
  std::span<const PageId> Pages(uint32_t slot) const { return {Row(slot), counts_[slot]}; }
  PageId Last(uint32_t slot) const { return Row(slot)[counts_[slot] - 1]; }

  // True when entry `index` continues the read run of the entry before it: the next page of the
  // same superblock. Runs end with their superblock, because the next one lies elsewhere.
  bool Continues(uint32_t slot, uint32_t index) const {
    const PageId* row = Row(slot);
    return index > 0 && row[index].value == row[index - 1].value + 1 &&
           row[index].value % pages_per_superblock_ != 0;
  }

  // Appends a run; returns true when it continues the last one.
  bool Push(uint32_t slot, PageRun run) {
    const uint32_t index = counts_[slot];
    KVRM_CHECK(index + run.count <= max_pages_, "PAGER-6: a page table is full");
    for (uint32_t i = 0; i < run.count; ++i) {
      Row(slot)[index + i] = PageId{run.page.value + i};
    }
    counts_[slot] += run.count;
    const bool extends = Continues(slot, index);
    if (!extends) ++read_runs_;
    return extends;
  }

  // The longest run at the end of the table that starts at entry `from` or later.
  // Requires: from < num_pages(slot).
  PageRun LastRun(uint32_t slot, uint32_t from) const {
    uint32_t begin = counts_[slot] - 1;
    while (begin > from && Continues(slot, begin)) --begin;
    return {Row(slot)[begin], counts_[slot] - begin};
  }

  // Drops the last `count` entries. Requires: they are one run (LastRun, or the last Push).
  void Pop(uint32_t slot, uint32_t count) {
    const uint32_t index = counts_[slot] - count;
    if (!Continues(slot, index)) --read_runs_;
    counts_[slot] = index;
  }

  // Entry `index` becomes `page`.
  void Replace(uint32_t slot, uint32_t index, PageId page) {
    read_runs_ -= RunsStartingNear(slot, index);
    Row(slot)[index] = page;
    read_runs_ += RunsStartingNear(slot, index);
  }

  // Read runs (segments) of all slots.
  uint64_t read_runs() const { return read_runs_; }

 private:
  const PageId* Row(uint32_t slot) const { return pages_.data() + size_t{slot} * max_pages_; }
  PageId* Row(uint32_t slot) { return pages_.data() + size_t{slot} * max_pages_; }

  // How many of the entries `index` and `index` + 1 start a read run.
  uint64_t RunsStartingNear(uint32_t slot, uint32_t index) const {
    uint64_t starts = Continues(slot, index) ? 0 : 1;
    if (index + 1 < counts_[slot] && !Continues(slot, index + 1)) ++starts;
    return starts;
  }

  const uint32_t max_pages_;
  const uint32_t pages_per_superblock_;
  std::vector<PageId> pages_;     // [max_slots][max_pages]
  std::vector<uint32_t> counts_;  // [max_slots]
  uint64_t read_runs_ = 0;
};

}  // namespace kvrm
