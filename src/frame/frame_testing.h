// What the tests of the frame share: a small geometry, short ways to write rows, slots and deltas,
// and a copy of a published frame that a test may corrupt. Test code only.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "base/check.h"
#include "frame/frame.h"

namespace kvrm::testing {

// `groups` groups of 16-token pages, 3 parts of 64 bytes, 8 pages in a superblock of 2 KiB.
inline KvGeometry TinyFrameGeometry(uint32_t groups = 1) {
  KvGroupGeometry group;
  group.page_tokens = 16;
  group.num_parts = 3;
  group.part_page_bytes = 64;
  group.pages_per_superblock = 8;
  group.superblock_bytes = 2048;
  KvGeometry geometry;
  geometry.groups.assign(groups, group);
  return geometry;
}

inline std::unique_ptr<FrameBuilder> MakeBuilder(const KvGeometry& geometry,
                                                 const FrameCapacity& capacity) {
  auto builder = FrameBuilder::Create(geometry, capacity);
  KVRM_CHECK(builder.ok(), "the test's capacity is sound");
  return std::move(builder).value();
}

inline Row MakeRow(uint16_t slot, uint32_t kv_index, uint32_t logits_idx = kNone32) {
  Row row{};
  row.token = static_cast<int32_t>(kv_index);
  row.slot = slot;
  row.position = kv_index;
  row.kv_index = kv_index;
  row.mask_id = kNone32;
  row.lse_target = -1;
  row.logits_idx = logits_idx;
  if (logits_idx != kNone32) row.flags = kRowWantLogits;
  return row;
}

inline SlotHead MakeSlot(uint16_t slot, uint32_t num_tokens, uint32_t row_begin, uint32_t num_rows,
                         uint32_t groups = 1) {
  SlotHead head{};
  head.slot = slot;
  head.seq_id = 100u + slot;
  head.row_begin = row_begin;
  head.num_rows = num_rows;
  for (uint32_t g = 0; g < groups; ++g) head.num_tokens[g] = num_tokens;
  return head;
}

inline Delta MakeDelta(DeltaKind kind, uint16_t slot, uint32_t index, uint32_t page = 0,
                       uint32_t count = 0, uint8_t group = 0) {
  Delta delta{};
  delta.slot = slot;
  delta.kv_group = group;
  delta.kind = kind;
  delta.index = index;
  delta.page = page;
  delta.count = count;
  delta.first_token_place = index * 16;
  return delta;
}

// A published frame in memory of its own.
class FrameCopy {
 public:
  FrameCopy(const FrameView& frame, uint32_t num_groups) {
    const size_t entries = size_t{num_groups} * frame.max_slots * frame.max_pages;
    block_.assign(frame.bytes() / sizeof(uint64_t), 0);
    std::memcpy(block_.data(), frame.head, frame.bytes());
    segments.assign(frame.segments, frame.segments + entries);
    dense.assign(frame.dense, frame.dense + entries);
    head = reinterpret_cast<FrameHead*>(block_.data());
    rows = reinterpret_cast<Row*>(head + 1);
    slots = reinterpret_cast<SlotHead*>(rows + head->num_rows);
    deltas = reinterpret_cast<Delta*>(slots + head->num_slots);
    by_slot.assign(frame.max_slots, nullptr);
    for (uint32_t i = 0; i < head->num_slots; ++i) by_slot[slots[i].slot] = &slots[i];
    view_ = frame;
  }

  FrameView view() {
    view_.head = head;
    view_.rows = rows;
    view_.slots = slots;
    view_.deltas = deltas;
    view_.by_slot = by_slot.data();
    view_.segments = segments.data();
    view_.dense = dense.data();
    return view_;
  }

  FrameHead* head;
  Row* rows;
  SlotHead* slots;
  Delta* deltas;
  std::vector<Segment> segments;
  std::vector<uint32_t> dense;
  std::vector<const SlotHead*> by_slot;

 private:
  std::vector<uint64_t> block_;
  FrameView view_;
};

}  // namespace kvrm::testing
