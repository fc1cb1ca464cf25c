// A frame of rows that read the null page and write nothing: what programs are warmed and timed
// with.
#pragma once

#include <algorithm>
#include <vector>

#include "base/kv_view.h"
#include "frame/frame.h"

namespace kvrm {

class WarmUpFrame {
 public:
  // `max_position`: the furthest place of a row; each page before it is the null page.
  // `table_tokens`: that the slot's table covers at least, wherever its rows stand.
  WarmUpFrame(const KvGeometry& geometry, uint32_t max_rows, uint32_t max_logits,
              uint32_t max_position = 0, uint32_t table_tokens = 0)
      : geometry_(geometry), max_logits_(max_logits), table_tokens_(table_tokens), rows_(max_rows) {
    for (const KvGroupGeometry& group : geometry.groups) {
      const uint32_t end = std::max(max_position + 1, table_tokens);
      max_pages_ = std::max(max_pages_, (end + group.page_tokens - 1) / group.page_tokens);
    }
    segments_.resize(geometry.groups.size() * max_pages_);
    dense_.resize(geometry.groups.size() * max_pages_, kNullPage.value);
    by_slot_ = &slot_;
    for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
      for (uint32_t page = 0; page < max_pages_; ++page) {
        Segment& s = segments_[size_t{g} * max_pages_ + page];
        s.first_token = page * geometry.groups[g].page_tokens;
        s.num_pages = 1;
        s.kv_group = static_cast<uint8_t>(g);
        s.head_end = s.layer_end = 0xFFFF;
        s.row_mask = ~uint64_t{0};
      }
    }
    for (uint32_t i = 0; i < max_rows; ++i) {
      Row& row = rows_[i];
      row.flags = kRowNoWrite;
      row.mask_id = kNone32;
      row.lse_target = -1;
      row.logits_idx = i < max_logits ? i : kNone32;
    }
  }

  // The first `num_rows` rows, all at place 0; valid until the next call.
  FrameView View(uint32_t num_rows) {
    for (uint32_t i = 0; i < num_rows; ++i) rows_[i].position = rows_[i].kv_index = 0;
    return ViewOf(num_rows, /*num_tokens=*/1);
  }
  // The first `num_rows` rows as a piece of a prompt whose last row stands at `position`.
  // Requires: num_rows - 1 <= position <= max_position.
  FrameView View(uint32_t num_rows, uint32_t position) {
    for (uint32_t i = 0; i < num_rows; ++i) {
      rows_[i].position = rows_[i].kv_index = position + 1 - num_rows + i;
    }
    return ViewOf(num_rows, position + 1);
  }

 private:
  FrameView ViewOf(uint32_t num_rows, uint32_t num_tokens) {
    const auto groups = static_cast<uint32_t>(geometry_.groups.size());
    slot_.num_rows = num_rows;
    for (uint32_t g = 0; g < groups; ++g) {
      const uint32_t page_tokens = geometry_.groups[g].page_tokens;
      slot_.num_tokens[g] = std::max(num_tokens, table_tokens_);
      slot_.num_pages[g] = (slot_.num_tokens[g] + page_tokens - 1) / page_tokens;
      slot_.num_segments[g] = slot_.num_pages[g];
    }
    head_.magic = kFrameMagic;
    head_.version = kFrameVersion;
    head_.num_rows = num_rows;
    head_.num_slots = num_rows > 0 ? 1 : 0;
    head_.num_logits = num_rows < max_logits_ ? num_rows : max_logits_;
    head_.num_groups = groups;
    FrameView view;
    view.head = &head_;
    view.rows = rows_.data();
    view.slots = &slot_;
    view.by_slot = &by_slot_;
    view.segments = segments_.data();
    view.dense = dense_.data();
    view.max_slots = 1;
    view.max_pages = max_pages_;
    return view;
  }

  const KvGeometry geometry_;
  const uint32_t max_logits_;
  const uint32_t table_tokens_;
  uint32_t max_pages_ = 1;
  FrameHead head_{};
  SlotHead slot_{};
  const SlotHead* by_slot_ = nullptr;
  std::vector<Row> rows_;
  std::vector<Segment> segments_;  // [group][max_pages]
  std::vector<uint32_t> dense_;    // [group][max_pages]
};

}  // namespace kvrm
