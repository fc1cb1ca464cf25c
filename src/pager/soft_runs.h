// The soft runs of one KV group: for each slot the free pages that are kept for its growth, if any,
// and in which order the slots lose them to others, the oldest first. They follow the slot's last
// page (PAGER-8). Knows which pages, not their states: PagePool does.
//
// Thread class: engine-thread-only. Never allocates after construction. Every call is O(1).
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "pager/index_list.h"
#include "pager/page_tables.h"

namespace kvrm {

class SoftRuns {
 public:
  explicit SoftRuns(uint32_t max_slots) : runs_(max_slots), links_(max_slots) {}

  // count 0: the slot has none.
  PageRun Of(uint32_t slot) const { return runs_[slot].pages; }
  uint64_t num_slots() const { return order_.size(); }
  uint32_t oldest() const { return order_.first(); }  // a slot; kNone32: none has any

  enum class Age : uint8_t { kYoungest, kOldest };
  // Gives pages to the slot, as its run or right before or behind what it has. `age` counts when it
  // has none.
  void Add(uint32_t slot, PageRun pages, Age age) {
    PageRun& run = runs_[slot].pages;
    if (run.count == 0) {
      run = pages;
      age == Age::kYoungest ? order_.PushBack(links_, slot) : order_.PushFront(links_, slot);
      return;
    }
    const bool before = pages.page.value + pages.count == run.page.value;
    KVRM_CHECK(before || run.page.value + run.count == pages.page.value,
               "PAGER-8: a soft run would fall in two");
    if (before) run.page = pages.page;
    run.count += pages.count;
  }
  // Takes its first `count` pages from the slot.
  void RemoveFirst(uint32_t slot, uint32_t count) {
    PageRun& run = runs_[slot].pages;
    KVRM_CHECK(count >= 1 && count <= run.count,
               "PAGER-8: soft pages are taken that are not there");
    run = {PageId{run.page.value + count}, run.count - count};
    if (run.count == 0) order_.Remove(links_, slot);
  }

  // How often others took the slot's run: pages that it used before the last time cannot return to
  // a run that is gone.
  void NoteStolen(uint32_t slot) { ++runs_[slot].times_stolen; }
  uint32_t times_stolen(uint32_t slot) const { return runs_[slot].times_stolen; }

 private:
  struct Run {
    PageRun pages{kNullPage, 0};
    uint32_t times_stolen = 0;
  };
  std::vector<Run> runs_;         // [max_slots]
  std::vector<ListLinks> links_;  // [max_slots]
  IndexList order_;               // of slots that have a run
};

}  // namespace kvrm
