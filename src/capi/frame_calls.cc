// What the last commit published, in its three forms, and the copies that it needs. The C structs
// are the internal ones under other names: the asserts below hold both to one layout.
#include "capi/boundary.h"
#include "capi/frame_view.h"
#include "capi/versioned.h"

using namespace kvrm;

#define KVRM_SAME_FIELD(ours, field, theirs, c_field)                 \
  static_assert(offsetof(ours, field) == offsetof(theirs, c_field) && \
                sizeof(ours::field) == sizeof(theirs::c_field))

static_assert(sizeof(kvrm_frame_head) == sizeof(FrameHead) && sizeof(kvrm_row) == sizeof(Row) &&
              sizeof(kvrm_slot_head) == sizeof(SlotHead) && sizeof(kvrm_delta) == sizeof(Delta) &&
              sizeof(kvrm_segment) == sizeof(Segment) && sizeof(kvrm_train) == sizeof(Train) &&
              sizeof(kvrm_row_input) == 32 && sizeof(PageId) == sizeof(uint32_t));
KVRM_SAME_FIELD(FrameHead, chain_hash, kvrm_frame_head, chain_hash);
KVRM_SAME_FIELD(FrameHead, num_rows, kvrm_frame_head, num_rows);
KVRM_SAME_FIELD(FrameHead, num_groups, kvrm_frame_head, num_groups);
KVRM_SAME_FIELD(Row, slot, kvrm_row, slot);
KVRM_SAME_FIELD(Row, flags, kvrm_row, flags);
KVRM_SAME_FIELD(Row, position, kvrm_row, position);
KVRM_SAME_FIELD(Row, kv_index, kvrm_row, kv_index);
KVRM_SAME_FIELD(Row, lse_target, kvrm_row, lse_target);
KVRM_SAME_FIELD(Row, logits_idx, kvrm_row, logits_idx);
KVRM_SAME_FIELD(SlotHead, seq_id, kvrm_slot_head, seq);
KVRM_SAME_FIELD(SlotHead, num_rows, kvrm_slot_head, num_rows);
KVRM_SAME_FIELD(SlotHead, num_tokens, kvrm_slot_head, num_tokens);
KVRM_SAME_FIELD(SlotHead, first_token, kvrm_slot_head, first_token);
KVRM_SAME_FIELD(SlotHead, num_pages, kvrm_slot_head, num_pages);
KVRM_SAME_FIELD(SlotHead, num_segments, kvrm_slot_head, num_segments);
KVRM_SAME_FIELD(SlotHead, num_holes, kvrm_slot_head, num_holes);
KVRM_SAME_FIELD(Delta, kv_group, kvrm_delta, kv_group);
KVRM_SAME_FIELD(Delta, kind, kvrm_delta, kind);
KVRM_SAME_FIELD(Delta, index, kvrm_delta, index);
KVRM_SAME_FIELD(Delta, page, kvrm_delta, page);
KVRM_SAME_FIELD(Delta, count, kvrm_delta, count);
KVRM_SAME_FIELD(Delta, first_token_place, kvrm_delta, first_token_place);
KVRM_SAME_FIELD(Segment, num_pages, kvrm_segment, num_pages);
KVRM_SAME_FIELD(Segment, first_page, kvrm_segment, first_page);
KVRM_SAME_FIELD(Segment, position_shift, kvrm_segment, position_shift);
KVRM_SAME_FIELD(Segment, score_bias, kvrm_segment, score_bias);
KVRM_SAME_FIELD(Segment, kv_group, kvrm_segment, kv_group);
KVRM_SAME_FIELD(Segment, layer_end, kvrm_segment, layer_end);
KVRM_SAME_FIELD(Segment, row_mask, kvrm_segment, row_mask);
KVRM_SAME_FIELD(Train, destination_offset, kvrm_train, destination_offset);
KVRM_SAME_FIELD(Train, source, kvrm_train, source);
KVRM_SAME_FIELD(Train, destination, kvrm_train, destination);
KVRM_SAME_FIELD(Train, cause, kvrm_train, cause);
KVRM_SAME_FIELD(Train, pieces, kvrm_train, pieces);
KVRM_SAME_FIELD(CopySpace, kv_group, kvrm_space, kv_group);
static_assert(KVRM_MAX_GROUPS == kMaxKvGroups && KVRM_NONE == kNone32 &&
              KVRM_FRAME_MAGIC == kFrameMagic && KVRM_FRAME_VERSION == kFrameVersion &&
              KVRM_NUM_COPY_CAUSES == kNumCopyCauses);
static_assert(KVRM_DELTA_HOLE == static_cast<int>(DeltaKind::kHole) &&
              KVRM_COPY_COMPACT == static_cast<int>(CopyCause::kCompact) &&
              KVRM_SPACE_TIER == static_cast<int>(CopySpaceKind::kTier) &&
              KVRM_GROUP_STATE == static_cast<int>(KvGroupKind::kState) &&
              KVRM_SLOT_LOSSY_VIEW == static_cast<int>(kSlotLossyView) &&
              KVRM_ROW_NO_WRITE == static_cast<int>(kRowNoWrite) &&
              KVRM_ROW_WANT_LSE == static_cast<int>(kRowWantLse));

namespace kvrm {

kvrm_status CheckFrameOutput(const kvrm_runtime& runtime, const kvrm_frame& out) {
  if (out.size >= sizeof out.size && out.size <= KVRM_MAX_STRUCT) return KVRM_OK;
  return runtime.error.Set(KVRM_INVALID, "out.size: %u, is not that of a struct", out.size);
}

kvrm_status WriteFrame(const kvrm_runtime& r, kvrm_frame* out) {
  const FrameView& view = r.view;
  kvrm_frame frame = {};
  frame.num_groups = r.num_groups();
  frame.epoch = view.head->epoch;
  frame.chain_hash = view.head->chain_hash;
  frame.block = view.head;
  frame.block_bytes = view.bytes();
  frame.rows = reinterpret_cast<const kvrm_row*>(view.rows);
  frame.slots = reinterpret_cast<const kvrm_slot_head*>(view.slots);
  frame.deltas = reinterpret_cast<const kvrm_delta*>(view.deltas);
  frame.num_rows = view.head->num_rows;
  frame.num_slots = view.head->num_slots;
  frame.num_deltas = view.head->num_deltas;
  frame.num_logits = view.head->num_logits;
  frame.segments = reinterpret_cast<const kvrm_segment*>(view.segments);
  frame.dense = view.dense;
  frame.max_slots = view.max_slots;
  frame.max_pages = view.max_pages;
  if (const char* refused = WriteVersioned(out, frame)) {
    return r.error.Set(KVRM_INVALID, "out.size: %s", refused);
  }
  return KVRM_OK;
}

namespace {

// The head of a slot that the last frame names, or nullptr with the error set.
const SlotHead* FindSlot(const kvrm_runtime& r, uint32_t group, uint32_t slot) {
  if (CheckGroupIndex(r, group) != KVRM_OK) return nullptr;
  if (r.view.head == nullptr) {
    r.error.Set(KVRM_INVALID, "no epoch was committed");
    return nullptr;
  }
  const SlotHead* head = slot < r.view.max_slots ? r.view.by_slot[slot] : nullptr;
  if (head == nullptr) r.error.Set(KVRM_INVALID, "slot: %u has no rows in the last frame", slot);
  return head;
}

}  // namespace
}  // namespace kvrm

kvrm_status kvrm_get_frame(const kvrm_runtime* runtime, kvrm_frame* out) {
  return Call(runtime, When::kAnyTime, [&](const kvrm_runtime& r) -> kvrm_status {
    if (out == nullptr) return NullOutput(r, "out");
    if (r.view.head == nullptr) return r.error.Set(KVRM_INVALID, "no epoch was committed");
    return WriteFrame(r, out);
  });
}

kvrm_status kvrm_get_segments(const kvrm_runtime* runtime, uint32_t group, uint32_t slot,
                              const kvrm_segment** segments, uint32_t* num_segments) {
  return Call(runtime, When::kAnyTime, [&](const kvrm_runtime& r) -> kvrm_status {
    if (segments == nullptr || num_segments == nullptr) return NullOutput(r, "an output");
    const SlotHead* head = FindSlot(r, group, slot);
    if (head == nullptr) return KVRM_INVALID;
    *segments = reinterpret_cast<const kvrm_segment*>(r.view.SlotSegments(group, slot));
    *num_segments = head->num_segments[group];
    return KVRM_OK;
  });
}

kvrm_status kvrm_get_pages(const kvrm_runtime* runtime, uint32_t group, uint32_t slot,
                           const uint32_t** pages, uint32_t* num_pages) {
  return Call(runtime, When::kAnyTime, [&](const kvrm_runtime& r) -> kvrm_status {
    if (pages == nullptr || num_pages == nullptr) return NullOutput(r, "an output");
    const SlotHead* head = FindSlot(r, group, slot);
    if (head == nullptr) return KVRM_INVALID;
    *pages = r.view.SlotPages(group, slot);
    *num_pages = head->num_pages[group];
    return KVRM_OK;
  });
}

kvrm_status kvrm_get_page_copies(const kvrm_runtime* runtime, const kvrm_train** trains,
                                 uint32_t* num_trains) {
  return Call(runtime, When::kAnyTime, [&](const kvrm_runtime& r) -> kvrm_status {
    if (trains == nullptr || num_trains == nullptr) return NullOutput(r, "an output");
    *trains = reinterpret_cast<const kvrm_train*>(r.page_copy_trains.data());
    *num_trains = static_cast<uint32_t>(r.page_copy_trains.size());
    r.copies_asked = true;
    return KVRM_OK;
  });
}
