// Which places each window holds, and the copies that make it hold what a frame needs.
//
// The state follows the deltas, not the frames' tables: `pages` is the page table of each slot as
// of the planned frame, so that rows that wait can still be published to the page that they were
// written for when the next frame has replaced or dropped it.
#include "transport/window_residency.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "frame/resident_tables.h"
#include "transport/page_copies.h"
#include "transport/train_merger.h"
#include "transport/unpublished_rows.h"
#include "transport/window_map.h"

namespace kvrm {

namespace {

bool Writes(const Row& row) { return (row.flags & kRowNoWrite) == 0; }

// Places of the rows that write, kNone32 without any.
uint32_t FirstWritten(std::span<const Row> rows) {
  const auto row = std::find_if(rows.begin(), rows.end(), Writes);
  return row == rows.end() ? kNone32 : row->kv_index;
}

}  // namespace

struct WindowResidency::State {
  State(const KvGeometry& geometry, const WindowGeometry& windows, uint32_t slots, uint32_t pages_);

  // ---- constant after construction
  const WindowMap map;
  const uint32_t max_slots;
  const uint32_t max_pages;

  // ---- what windows and tables hold
  struct Slot {
    uint32_t seq_id = kNone32;
    Resident resident[kMaxKvGroups];
    uint32_t num_pages[kMaxKvGroups] = {};  // entries of its tables, holes included
  };
  std::vector<Slot> slots;      // [max_slots]
  ZeroedArray<uint32_t> pages;  // [group][slot][max_pages] PageId values; null past the end
  UnpublishedRows unpublished;
  TrainMerger merger;

  // ---- the planned frame
  FrameView frame;  // head == nullptr: nothing was planned yet
  uint64_t epoch = 0;
  bool acknowledged = false;
  std::vector<Train> plan;
  uint64_t step = 0;  // acknowledged so far
  bool sound = true;  // false while slots, tables, rows that wait and copies are changed

  uint32_t* Pages(uint32_t group, uint32_t slot) {
    return pages.get() + (size_t{group} * max_slots + slot) * max_pages;
  }
  std::span<const Row> Rows(const SlotHead& head) const {
    return {frame.rows + head.row_begin, head.num_rows};
  }

  void CheckFrame(const FrameView& next) const;
  void PublishWhatIsShared(std::span<const Pager::PageCopy> copies);
  bool IsGrowth(const Delta& delta) const;
  void PublishOwnersOf(uint32_t group, uint32_t first_page, uint32_t count, uint32_t but_slot);
  bool WaitsFor(uint32_t slot, uint32_t group, uint32_t first_page, uint32_t count);
  void PublishSlot(uint32_t slot);

  void Apply(const Delta& delta);
  bool TablesAgree(const SlotHead& head);
  void PlanSlot(const SlotHead& head);
  void ForgetWhatMayBeOverwritten(const SlotHead& head, uint32_t group, WindowMap::Places visible);
  void StageSlot(const SlotHead& head, uint32_t group, WindowMap::Places visible);
  void StagePlaces(uint32_t group, uint32_t slot, WindowMap::Places places);

  void AcknowledgeSlot(const SlotHead& head);
  void NoteWritten(uint32_t slot, uint32_t first, uint32_t end);
};

WindowResidency::State::State(const KvGeometry& geometry, const WindowGeometry& windows,
                              uint32_t num_slots, uint32_t num_pages)
    : map(geometry, windows, num_slots),
      max_slots(num_slots),
      max_pages(num_pages),
      slots(num_slots),
      pages(MakeZeroed<uint32_t>(geometry.groups.size() * num_slots * num_pages)),
      unpublished(num_slots, windows.publish_age_steps) {
  plan.reserve(size_t{2} * kMaxPending);
}

// ---- publish

// Before the tables change: rows that wait for a page that this frame copies, or gives to another
// slot, reach it first (WINDOW-3).
void WindowResidency::State::PublishWhatIsShared(std::span<const Pager::PageCopy> copies) {
  if (unpublished.oldest() == kNone32) return;
  for (const Pager::PageCopy& copy : copies) {
    PublishOwnersOf(copy.kv_group, copy.source.value, 1, kNone32);
  }
  for (uint32_t d = 0; d < frame.head->num_deltas; ++d) {
    const Delta& delta = frame.deltas[d];
    if (delta.kind != DeltaKind::kAppend && delta.kind != DeltaKind::kExtend) continue;
    if (IsGrowth(delta)) continue;
    PublishOwnersOf(delta.kv_group, delta.page, delta.count, delta.slot);
  }
}

// Pages that rows of this frame begin and reach: nobody else's. Almost every append is one, so that
// decoding looks nothing up.
bool WindowResidency::State::IsGrowth(const Delta& delta) const {
  const SlotHead* head = frame.by_slot[delta.slot];
  if (head == nullptr || head->num_rows == 0) return false;
  const uint32_t written = FirstWritten(Rows(*head));
  const uint32_t tokens = map.page_tokens(delta.kv_group);
  return written != kNone32 && delta.first_token_place >= written &&
         delta.index + delta.count <= Rows(*head).back().kv_index / tokens + 1;
}

void WindowResidency::State::PublishOwnersOf(uint32_t group, uint32_t first_page, uint32_t count,
                                             uint32_t but_slot) {
  for (uint32_t slot = unpublished.oldest(); slot != kNone32;) {
    const uint32_t next = unpublished.after(slot);
    if (slot != but_slot && WaitsFor(slot, group, first_page, count)) PublishSlot(slot);
    slot = next;
  }
}

bool WindowResidency::State::WaitsFor(uint32_t slot, uint32_t group, uint32_t first_page,
                                      uint32_t count) {
  const UnpublishedRows::Range range = unpublished.range(slot);
  const uint32_t tokens = map.page_tokens(group);
  const uint32_t* table = Pages(group, slot);
  for (uint32_t index = range.first / tokens; index <= (range.end - 1) / tokens; ++index) {
    if (table[index] != kNullPage.value && table[index] - first_page < count) return true;
  }
  return false;
}

void WindowResidency::State::PublishSlot(uint32_t slot) {
  const UnpublishedRows::Range range = unpublished.range(slot);
  if (range.empty()) return;
  for (uint32_t g = 0; g < map.num_groups(); ++g) {
    map.AddCopies(g, slot, {.first = range.first, .end = range.end}, Pages(g, slot),
                  CopyCause::kPublish, merger);
  }
  unpublished.Clear(slot);
}

// ---- plan

// Before anything changes: a plan that fails has planned nothing, and fails again when it is asked
// again.
void WindowResidency::State::CheckFrame(const FrameView& next) const {
  KVRM_CHECK(next.max_slots <= max_slots && next.max_pages <= max_pages &&
                 next.head->num_groups == map.num_groups(),
             "a frame has the slots, pages and groups that windows were made for");
  for (uint32_t i = 0; i < next.head->num_slots; ++i) {
    const SlotHead& head = next.slots[i];
    if (head.num_rows == 0) continue;
    const Row* rows = next.rows + head.row_begin;
    for (uint32_t g = 0; g < map.num_groups(); ++g) {
      const WindowMap::Places visible =
          map.Visible(g, rows[0].kv_index, rows[head.num_rows - 1].kv_index);
      KVRM_CHECK(visible.end - visible.first <= map.window_tokens(g),
                 "WINDOW-1: a window holds what the rows of a step see");
      KVRM_CHECK(visible.end <= uint64_t{head.num_pages[g]} * map.page_tokens(g),
                 "FRAME-2: the table covers what its rows see");
    }
  }
}

// The table after the delta. What it drops is no longer resident, nor to be published.
void WindowResidency::State::Apply(const Delta& delta) {
  KVRM_CHECK(delta.kv_group < map.num_groups() && delta.slot < max_slots,
             "FRAME-0: a delta names a table that is not there");
  Slot& slot = slots[delta.slot];
  uint32_t& length = slot.num_pages[delta.kv_group];
  uint32_t* table = Pages(delta.kv_group, delta.slot);
  KVRM_CHECK(delta.index <= length && delta.count <= max_pages - delta.index,
             "FRAME-0: a delta reaches past its table");
  switch (delta.kind) {
    case DeltaKind::kAppend:
    case DeltaKind::kExtend:
    case DeltaKind::kReplace:
      for (uint32_t i = 0; i < delta.count; ++i) table[delta.index + i] = delta.page + i;
      length = std::max(length, delta.index + delta.count);
      return;
    case DeltaKind::kHole:
      std::fill_n(table + delta.index, delta.count, kNullPage.value);
      length = std::max(length, delta.index + delta.count);
      return;
    case DeltaKind::kTruncate: {
      std::fill(table + delta.index, table + length, kNullPage.value);
      length = delta.index;
      const uint32_t place = delta.index * map.page_tokens(delta.kv_group);
      unpublished.Cut(delta.slot, place);
      Resident& resident = slot.resident[delta.kv_group];
      resident.end_token = std::min(resident.end_token, place);
      resident.first_token = std::min(resident.first_token, resident.end_token);
      return;
    }
  }
  KVRM_CHECK(false, "FRAME-0: a delta of unknown kind");
}

bool WindowResidency::State::TablesAgree(const SlotHead& head) {
  for (uint32_t g = 0; g < map.num_groups(); ++g) {
    const uint32_t* table = Pages(g, head.slot);
    if (!std::equal(table, table + frame.max_pages, frame.SlotPages(g, head.slot))) return false;
  }
  return true;
}

void WindowResidency::State::PlanSlot(const SlotHead& head) {
  Slot& slot = slots[head.slot];
  if (slot.seq_id != head.seq_id) {
    slot.seq_id = head.seq_id;
    for (Resident& resident : slot.resident) resident = {};
    unpublished.Clear(head.slot);
  }
  const std::span<const Row> rows = Rows(head);
  KVRM_DCHECK(3, TablesAgree(head), "FRAME-4: a frame's tables are what its deltas make of them");
  if (rows.empty()) return;
  const uint32_t written = FirstWritten(rows);
  if (written != kNone32) unpublished.Cut(head.slot, written);
  for (uint32_t g = 0; g < map.num_groups(); ++g) {
    const WindowMap::Places visible = map.Visible(g, rows.front().kv_index, rows.back().kv_index);
    ForgetWhatMayBeOverwritten(head, g, visible);
    StageSlot(head, g, visible);
  }
}

// A step that fails may have written some of its rows: what they replace is given up when it is
// planned, and what replaces it is held when it is acknowledged (WINDOW-4).
void WindowResidency::State::ForgetWhatMayBeOverwritten(const SlotHead& head, uint32_t group,
                                                        WindowMap::Places visible) {
  Resident& resident = slots[head.slot].resident[group];
  const uint32_t window = map.window_tokens(group);
  const uint32_t kept = visible.end > window ? visible.end - window : 0;  // by a ring
  resident.end_token =
      std::min({resident.end_token, FirstWritten(Rows(head)), head.num_tokens[group]});
  resident.first_token = std::min(std::max(resident.first_token, kept), resident.end_token);
  const UnpublishedRows::Range waits = unpublished.range(head.slot);
  if (!waits.empty() && waits.first < kept) PublishSlot(head.slot);
}

// Every place that a row sees and none writes.
void WindowResidency::State::StageSlot(const SlotHead& head, uint32_t group,
                                       WindowMap::Places visible) {
  uint32_t next = visible.first;
  for (const Row& row : Rows(head)) {
    if (!Writes(row)) continue;
    StagePlaces(group, head.slot, {.first = next, .end = row.kv_index});
    next = row.kv_index + 1;
  }
  StagePlaces(group, head.slot, {.first = next, .end = visible.end});
}

void WindowResidency::State::StagePlaces(uint32_t group, uint32_t slot, WindowMap::Places places) {
  if (places.first >= places.end) return;
  const Resident& resident = slots[slot].resident[group];
  const auto stage = [&](uint32_t first, uint32_t end) {
    if (first >= end) return;
    map.AddCopies(group, slot, {.first = first, .end = end}, Pages(group, slot), CopyCause::kStage,
                  merger);
  };
  if (resident.first_token == resident.end_token) {
    stage(places.first, places.end);
    return;
  }
  stage(places.first, std::min(places.end, resident.first_token));
  stage(std::max(places.first, resident.end_token), places.end);
}

// ---- acknowledge

void WindowResidency::State::AcknowledgeSlot(const SlotHead& head) {
  const std::span<const Row> rows = Rows(head);
  if (rows.empty()) return;
  for (uint32_t g = 0; g < map.num_groups(); ++g) {
    const WindowMap::Places visible = map.Visible(g, rows.front().kv_index, rows.back().kv_index);
    Resident& resident = slots[head.slot].resident[g];
    const bool joins = resident.first_token < resident.end_token &&
                       resident.end_token >= visible.first && resident.first_token <= visible.end;
    resident.first_token = joins ? std::min(resident.first_token, visible.first) : visible.first;
    resident.end_token = joins ? std::max(resident.end_token, visible.end) : visible.end;
  }
  for (size_t begin = 0; begin < rows.size();) {
    size_t end = begin + 1;
    if (Writes(rows[begin])) {
      while (end < rows.size() && Writes(rows[end]) &&
             rows[end].kv_index == rows[end - 1].kv_index + 1) {
        ++end;
      }
      NoteWritten(head.slot, rows[begin].kv_index, rows[end - 1].kv_index + 1);
    }
    begin = end;
  }
}

void WindowResidency::State::NoteWritten(uint32_t slot, uint32_t first, uint32_t end) {
  const UnpublishedRows::Range waits = unpublished.range(slot);
  if (!waits.empty() && waits.end != first) PublishSlot(slot);
  unpublished.Extend(slot, first, end, step);
  const uint64_t tokens = end - unpublished.range(slot).first;
  for (uint32_t g = 0; g < map.num_groups(); ++g) {
    if (tokens * map.token_bytes(g) < merger.tau_bytes()) continue;
    PublishSlot(slot);
    return;
  }
}

// ---- the face

Result<std::unique_ptr<WindowResidency>> WindowResidency::Create(const KvGeometry& geometry,
                                                                 const WindowGeometry& windows,
                                                                 uint32_t max_slots,
                                                                 uint32_t max_pages) {
  KVRM_RETURN_IF_ERROR(CheckWindows(geometry, windows, max_slots));
  if (max_pages == 0) return InvalidInput("max_pages is 0, but must be at least 1");
  auto state = std::make_unique<State>(geometry, windows, max_slots, max_pages);
  if (!state->pages) {
    return NoRoom("max_slots x max_pages: no memory for " + std::to_string(max_slots) + " x " +
                  std::to_string(max_pages) + " table entries of windows");
  }
  return std::unique_ptr<WindowResidency>(new WindowResidency(std::move(state)));
}

WindowResidency::WindowResidency(std::unique_ptr<State> state) : state_(std::move(state)) {}
WindowResidency::~WindowResidency() = default;

std::span<const Train> WindowResidency::Plan(const FrameView& frame,
                                             std::span<const Pager::PageCopy> page_copies) {
  State& s = *state_;
  KVRM_CHECK(frame.head != nullptr, "a frame that was published is planned");
  const uint64_t epoch = frame.head->epoch;
  const bool first = s.frame.head == nullptr;
  if (!first && epoch == s.epoch) {
    std::erase_if(s.plan, [](const Train& train) { return train.cause != CopyCause::kStage; });
    return s.plan;
  }
  KVRM_CHECK(first || epoch == s.epoch + 1, "frames are planned in order, without gaps");
  s.CheckFrame(frame);
  s.sound = false;
  s.frame = frame;
  s.epoch = epoch;
  s.acknowledged = false;
  s.PublishWhatIsShared(page_copies);
  for (uint32_t d = 0; d < frame.head->num_deltas; ++d) s.Apply(frame.deltas[d]);
  AddPageCopies(s.map.geometry(), page_copies, s.merger);
  for (uint32_t i = 0; i < frame.head->num_slots; ++i) s.PlanSlot(frame.slots[i]);
  const std::span<const Train> trains = s.merger.Collect();
  s.plan.assign(trains.begin(), trains.end());
  s.sound = true;
  return s.plan;
}

std::span<const Train> WindowResidency::Acknowledge(uint64_t epoch) {
  State& s = *state_;
  KVRM_CHECK(s.frame.head != nullptr && epoch == s.epoch,
             "WINDOW-4: the planned epoch is acknowledged");
  if (s.acknowledged) return {};
  s.sound = false;
  s.acknowledged = true;
  ++s.step;
  for (uint32_t i = 0; i < s.frame.head->num_slots; ++i) s.AcknowledgeSlot(s.frame.slots[i]);
  while (s.unpublished.oldest() != kNone32 && s.unpublished.due(s.unpublished.oldest(), s.step)) {
    s.PublishSlot(s.unpublished.oldest());
  }
  const std::span<const Train> trains = s.merger.Collect();
  s.sound = true;
  return trains;
}

std::span<const Train> WindowResidency::Publish(SlotId slot) {
  State& s = *state_;
  KVRM_CHECK(slot.value < s.max_slots, "a slot that exists is published");
  s.sound = false;
  s.PublishSlot(slot.value);
  const std::span<const Train> trains = s.merger.Collect();
  s.sound = true;
  return trains;
}

bool WindowResidency::sound() const { return state_->sound; }

uint64_t WindowResidency::window_bytes(uint32_t group) const {
  return state_->map.window_bytes(group);
}

WindowResidency::Resident WindowResidency::resident(uint32_t group, SlotId slot) const {
  return state_->slots[slot.value].resident[group];
}

void WindowResidency::set_tau_bytes(uint64_t tau_bytes) { state_->merger.set_tau_bytes(tau_bytes); }
const CopyCounters& WindowResidency::counters() const { return state_->merger.counters(); }

}  // namespace kvrm
