// The page tables of one KV group: for each slot its pages in token order, in one flat array that
// is sized once. Knows adjacency (which pages continue a read run), not references.
//
// Entry i is the page of token places [i, i + 1) * page_tokens, always: what slid out of a window
// or was trimmed cold leaves a *hole*, the null page, in its place. Holes in front of first() are a
// window's.
//
// Thread class: engine-thread-only. Never allocates after construction.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/ids.h"

namespace kvrm {

// Adjacent pages of one superblock; or, with the null page as the first, adjacent holes.
struct PageRun {
  PageId page;  // the first
  uint32_t count = 0;
  bool holes() const { return page == kNullPage; }
};

class PageTables {
 public:
  // `slides`: holes in front are a window's, and first() counts them; else first() stays 0.
  PageTables(uint32_t max_slots, uint32_t max_pages, uint32_t pages_per_superblock,
             bool slides = false)
      : max_pages_(max_pages),
        slides_(slides),
        pages_per_superblock_(pages_per_superblock),
        pages_(size_t{max_slots} * max_pages),
        counts_(max_slots),
        firsts_(max_slots) {}

  uint32_t num_pages(uint32_t slot) const { return counts_[slot]; }  // entries, holes included
  uint32_t first(uint32_t slot) const { return firsts_[slot]; }      // entries that slid out
  uint32_t max_pages() const { return max_pages_; }
  // All entries; valid until the slot's next edit.
  std::span<const PageId> Pages(uint32_t slot) const { return {Row(slot), counts_[slot]}; }
  PageId Last(uint32_t slot) const { return Row(slot)[counts_[slot] - 1]; }

  // True when entry `index` continues the read run of the entry before it: the next page of the
  // same superblock. Runs end with their superblock, because the next one lies elsewhere.
  bool Continues(uint32_t slot, uint32_t index) const {
    const PageId* row = Row(slot);
    return index > 0 && row[index - 1] != kNullPage &&
           row[index].value == row[index - 1].value + 1 &&
           row[index].value % pages_per_superblock_ != 0;
  }

  // Appends a run; returns true when it continues the last one.
  bool Push(uint32_t slot, PageRun run) {
    const uint32_t index = counts_[slot];
    KVRM_CHECK(index + run.count <= max_pages_, "PAGER-6: a page table is full");
    counts_[slot] += run.count;
    Write(slot, index, run);
    if (run.holes()) {
      if (slides_ && firsts_[slot] == index) firsts_[slot] += run.count;
      return false;
    }
    const bool extends = Continues(slot, index);
    if (!extends) ++read_runs_;
    return extends;
  }

  // The longest run at the end of the table that starts at entry `from` or later.
  // Requires: from < num_pages(slot).
  PageRun LastRun(uint32_t slot, uint32_t from) const {
    uint32_t begin = counts_[slot] - 1;
    while (begin > from && Joins(slot, begin)) --begin;
    return {Row(slot)[begin], counts_[slot] - begin};
  }

  // The longest run from entry `begin` on that ends before entry `end`. Requires: begin < end.
  PageRun RunAt(uint32_t slot, uint32_t begin, uint32_t end) const {
    uint32_t next = begin + 1;
    while (next < end && Joins(slot, next)) ++next;
    return {Row(slot)[begin], next - begin};
  }

  // Drops the last `count` entries. Requires: they are one run (LastRun, or the last Push).
  void Pop(uint32_t slot, uint32_t count) {
    const uint32_t index = counts_[slot] - count;
    if (StartsRun(slot, index)) --read_runs_;
    counts_[slot] = index;
    firsts_[slot] = std::min(firsts_[slot], index);
  }

  // The entries of `run`, which stands at `index`, become holes.
  void Punch(uint32_t slot, uint32_t index, PageRun run) {
    read_runs_ -= RunsStartingNear(slot, index, run.count);
    Write(slot, index, {kNullPage, run.count});
    read_runs_ += RunsStartingNear(slot, index, run.count);
  }
  // Undoes Punch.
  void Fill(uint32_t slot, uint32_t index, PageRun run) {
    read_runs_ -= RunsStartingNear(slot, index, run.count);
    Write(slot, index, run);
    read_runs_ += RunsStartingNear(slot, index, run.count);
  }
  void set_first(uint32_t slot, uint32_t first) { firsts_[slot] = first; }

  // Entry `index` becomes `page`.
  void Replace(uint32_t slot, uint32_t index, PageId page) {
    read_runs_ -= RunsStartingNear(slot, index, 1);
    Row(slot)[index] = page;
    read_runs_ += RunsStartingNear(slot, index, 1);
  }

  // Read runs (segments) of all slots.
  uint64_t read_runs() const { return read_runs_; }

 private:
  const PageId* Row(uint32_t slot) const { return pages_.data() + size_t{slot} * max_pages_; }
  PageId* Row(uint32_t slot) { return pages_.data() + size_t{slot} * max_pages_; }

  bool StartsRun(uint32_t slot, uint32_t index) const {
    return Row(slot)[index] != kNullPage && !Continues(slot, index);
  }
  // True when entry `index` and the one before it belong to one PageRun.
  bool Joins(uint32_t slot, uint32_t index) const {
    const PageId* row = Row(slot);
    return Continues(slot, index) || (row[index] == kNullPage && row[index - 1] == kNullPage);
  }

  // How many of the entries `index` and `index` + `count` start a read run; those between do not,
  // because they belong to one run.
  uint64_t RunsStartingNear(uint32_t slot, uint32_t index, uint32_t count) const {
    uint64_t starts = StartsRun(slot, index) ? 1 : 0;
    if (index + count < counts_[slot] && StartsRun(slot, index + count)) ++starts;
    return starts;
  }

  void Write(uint32_t slot, uint32_t index, PageRun run) {
    PageId* row = Row(slot);
    for (uint32_t i = 0; i < run.count; ++i) {
      row[index + i] = run.holes() ? kNullPage : PageId{run.page.value + i};
    }
  }

  const uint32_t max_pages_;
  const bool slides_;
  const uint32_t pages_per_superblock_;
  std::vector<PageId> pages_;     // [max_slots][max_pages]
  std::vector<uint32_t> counts_;  // [max_slots]
  std::vector<uint32_t> firsts_;  // [max_slots]
  uint64_t read_runs_ = 0;
};

}  // namespace kvrm
