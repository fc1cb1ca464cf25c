// A frame of rows that read the null page and write nothing: what programs are warmed with.
#pragma once

#include <vector>

#include "base/kv_view.h"
#include "frame/frame.h"

namespace kvrm {

class WarmUpFrame {
 public:
  WarmUpFrame(const KvGeometry& geometry, uint32_t max_rows, uint32_t max_logits)
      : max_logits_(max_logits),
        rows_(max_rows),
        segments_(geometry.groups.size()),
        dense_(geometry.groups.size(), kNullPage.value) {
    slot_.num_rows = max_rows;
    by_slot_ = &slot_;
    for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
      Segment& s = segments_[g];
      s.num_pages = 1;
      s.kv_group = static_cast<uint8_t>(g);
      s.head_end = s.layer_end = 0xFFFF;
      s.row_mask = ~uint64_t{0};
      slot_.num_tokens[g] = 1;
      slot_.num_pages[g] = 1;
      slot_.num_segments[g] = 1;
    }
    for (uint32_t i = 0; i < max_rows; ++i) {
      Row& row = rows_[i];
      row.flags = kRowNoWrite;
      row.mask_id = kNone32;
      row.lse_target = -1;
      row.logits_idx = i < max_logits ? i : kNone32;
    }
  }

  // The first `num_rows` rows; valid until the next call.
  FrameView View(uint32_t num_rows) {
    head_.magic = kFrameMagic;
    head_.version = kFrameVersion;
    head_.num_rows = num_rows;
    head_.num_slots = num_rows > 0 ? 1 : 0;
    head_.num_logits = num_rows < max_logits_ ? num_rows : max_logits_;
    head_.num_groups = static_cast<uint32_t>(segments_.size());
    FrameView view;
    view.head = &head_;
    view.rows = rows_.data();
    view.slots = &slot_;
    view.by_slot = &by_slot_;
    view.segments = segments_.data();
    view.dense = dense_.data();
    view.max_slots = 1;
    view.max_pages = 1;
    return view;
  }

 private:
  uint32_t max_logits_;
  FrameHead head_{};
  SlotHead slot_{};
  const SlotHead* by_slot_ = nullptr;
  std::vector<Row> rows_;
  std::vector<Segment> segments_;
  std::vector<uint32_t> dense_;
};

}  // namespace kvrm
