// Rows that windows hold and the pool does not yet: for each slot one range of token places, and
// the step at which it is due. A row writes into every KV group, so that one range serves them all.
//
// Slots wait in the order in which they are due (all wait equally long), so that finding what is
// due never looks at what is not. Thread class: engine-thread-only. Never allocates after
// construction. All calls O(1).
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/kv_view.h"

namespace kvrm {

class UnpublishedRows {
 public:
  struct Range {
    uint32_t first = 0;
    uint32_t end = 0;
    bool empty() const { return first == end; }
  };

  UnpublishedRows(uint32_t max_slots, uint32_t age_steps)
      : age_steps_(age_steps), entries_(max_slots) {}

  Range range(uint32_t slot) const { return entries_[slot].range; }

  // Rows [first, end) of this step. They continue the range or begin one. Requires: `slot` has no
  // range, or it ends at `first`.
  void Extend(uint32_t slot, uint32_t first, uint32_t end, uint64_t step) {
    Entry& entry = entries_[slot];
    if (entry.range.empty()) {
      entry.range.first = first;
      entry.due_step = step + age_steps_;
      Link(slot);
    }
    KVRM_DCHECK(1, entry.range.first == first || entry.range.end == first,
                "WINDOW-3: unpublished rows of a slot are one range");
    entry.range.end = end;
  }

  // Places from `place` on are void.
  void Cut(uint32_t slot, uint32_t place) {
    Entry& entry = entries_[slot];
    if (entry.range.empty() || place >= entry.range.end) return;
    if (place <= entry.range.first) {
      Clear(slot);
    } else {
      entry.range.end = place;
    }
  }

  void Clear(uint32_t slot) {
    Entry& entry = entries_[slot];
    if (entry.range.empty()) return;
    entry.range = {};
    (entry.before == kNone32 ? oldest_ : entries_[entry.before].after) = entry.after;
    (entry.after == kNone32 ? newest_ : entries_[entry.after].before) = entry.before;
  }

  // The slots that wait, oldest first: kNone32 = none.
  uint32_t oldest() const { return oldest_; }
  uint32_t after(uint32_t slot) const { return entries_[slot].after; }
  bool due(uint32_t slot, uint64_t step) const { return entries_[slot].due_step <= step; }

 private:
  struct Entry {
    Range range;
    uint64_t due_step = 0;
    uint32_t before = kNone32, after = kNone32;  // slots, while the range is not empty
  };
  void Link(uint32_t slot) {
    entries_[slot].before = newest_;
    entries_[slot].after = kNone32;
    (newest_ == kNone32 ? oldest_ : entries_[newest_].after) = slot;
    newest_ = slot;
  }

  const uint32_t age_steps_;
  std::vector<Entry> entries_;  // [max_slots]
  uint32_t oldest_ = kNone32, newest_ = kNone32;
};

}  // namespace kvrm
