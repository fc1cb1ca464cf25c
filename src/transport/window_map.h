// Where token places lie: in windows by strides, in the pool by a page table. Arithmetic only; it
// holds no state of sequences. Thread-safe.
#pragma once

#include <cstdint>

#include "base/kv_view.h"
#include "base/result.h"
#include "transport/train_merger.h"
#include "transport/window_residency.h"

namespace kvrm {

// Whether windows of these strides can serve `geometry`: errors name field, value and limit.
Status CheckWindows(const KvGeometry& geometry, const WindowGeometry& windows, uint32_t max_slots);

class WindowMap {
 public:
  // Requires: CheckWindows is ok.
  WindowMap(const KvGeometry& geometry, const WindowGeometry& windows, uint32_t max_slots)
      : geometry_(geometry), windows_(windows), max_slots_(max_slots) {}

  const KvGeometry& geometry() const { return geometry_; }
  uint32_t num_groups() const { return static_cast<uint32_t>(geometry_.groups.size()); }
  uint32_t page_tokens(uint32_t group) const { return geometry_.groups[group].page_tokens; }
  uint32_t window_tokens(uint32_t group) const { return windows_.groups[group].window_tokens; }
  uint64_t token_bytes(uint32_t group) const {
    return geometry_.groups[group].part_page_bytes / page_tokens(group);
  }
  bool ring(uint32_t group) const { return geometry_.groups[group].kind == KvGroupKind::kSliding; }
  uint64_t window_bytes(uint32_t group) const;

  // Token places that rows see which stand at [first_row, last_row]: [first, end).
  struct Places {
    uint32_t first = 0;
    uint32_t end = 0;
  };
  Places Visible(uint32_t group, uint32_t first_row, uint32_t last_row) const;

  // Adds the copies of places [first, end) of a window: kStage, pool -> window, or kPublish, window
  // -> pool; one for each part of each run of adjacent pages, due at once. Places on the null page
  // are left out. `pages` // [max_pages], the slot's table in `group`.
  void AddCopies(uint32_t group, uint32_t slot, Places places, const uint32_t* pages,
                 CopyCause cause, TrainMerger& merger) const;

 private:
  uint32_t RunEnd(uint32_t group, Places places, const uint32_t* pages) const;
  void AddRun(uint32_t group, uint32_t slot, Places run, uint32_t first_page, CopyCause cause,
              TrainMerger& merger) const;

  const KvGeometry geometry_;
  const WindowGeometry windows_;
  const uint32_t max_slots_;
};

}  // namespace kvrm
