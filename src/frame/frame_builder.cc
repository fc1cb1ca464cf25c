// Publishes frames: one contiguous block per epoch parity, and the resident tables that it speaks
// of.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "frame/chain_hash.h"
#include "frame/frame.h"
#include "frame/resident_tables.h"

namespace kvrm {
namespace {

// Rows, slots and deltas follow the head without a gap, whatever their counts.
static_assert(sizeof(FrameHead) % alignof(Row) == 0 && sizeof(Row) % alignof(SlotHead) == 0 &&
              sizeof(SlotHead) % alignof(Delta) == 0);

// Only what is written takes memory.
uint64_t MaxDeltas(const KvGeometry& geometry, const FrameCapacity& capacity) {
  return uint64_t{2} * geometry.groups.size() * capacity.max_slots * (capacity.max_pages + 1);
}

Status CheckCapacity(const KvGeometry& geometry, const FrameCapacity& capacity) {
  if (geometry.groups.empty() || geometry.groups.size() > kMaxKvGroups) {
    return InvalidInput("geometry.groups: " + std::to_string(geometry.groups.size()) +
                        " groups, must be 1 to " + std::to_string(kMaxKvGroups));
  }
  for (size_t g = 0; g < geometry.groups.size(); ++g) {
    if (geometry.groups[g].page_tokens > 0 && geometry.groups[g].pages_per_superblock > 0) continue;
    return InvalidInput("geometry.groups[" + std::to_string(g) +
                        "]: page_tokens and pages_per_superblock must be at least 1");
  }
  if (capacity.max_slots == 0 || capacity.max_slots > 0xFFFF) {
    return InvalidInput("max_slots: " + std::to_string(capacity.max_slots) +
                        ", must be 1 to 65535");
  }
  if (capacity.max_rows == 0) return InvalidInput("max_rows: 0, must be at least 1");
  if (capacity.max_pages == 0) return InvalidInput("max_pages: 0, must be at least 1");
  return Ok();
}

}  // namespace

struct FrameBuilder::State {
  State(const KvGeometry& kv_geometry, const FrameCapacity& frame_capacity)
      : geometry(kv_geometry), capacity(frame_capacity), tables(kv_geometry, frame_capacity) {
    max_deltas = MaxDeltas(geometry, capacity);
    const uint64_t block_bytes = sizeof(FrameHead) + capacity.max_rows * sizeof(Row) +
                                 capacity.max_slots * sizeof(SlotHead) + max_deltas * sizeof(Delta);
    for (Published& each : published) {
      each.block = MakeZeroed<std::byte>(block_bytes);
      each.by_slot.resize(capacity.max_slots);
    }
  }

  // One head and what follows it. by_slot points into the block.
  struct Published {
    ZeroedArray<std::byte> block;
    std::vector<const SlotHead*> by_slot;  // [max_slots]
    FrameView view;
  };

  FrameHead& head(Published& frame) { return *reinterpret_cast<FrameHead*>(frame.block.get()); }
  void Write(Published& frame, uint64_t frame_epoch, std::span<const Row> rows,
             std::span<const SlotHead> slots, std::span<const Delta> deltas);
  void FillCounts(SlotHead& slot) const;
  bool Repeats(const Published& frame, std::span<const Row> rows, std::span<const SlotHead> slots,
               std::span<const Delta> deltas) const;

  const KvGeometry geometry;
  const FrameCapacity capacity;
  ResidentTables tables;
  uint64_t max_deltas = 0;
  Published published[2];  // by epoch parity
  uint64_t epoch = 0;
  uint64_t chain_hash = 0;
  uint64_t publishes = 0;
};

Result<std::unique_ptr<FrameBuilder>> FrameBuilder::Create(const KvGeometry& geometry,
                                                           const FrameCapacity& capacity) {
  KVRM_RETURN_IF_ERROR(CheckCapacity(geometry, capacity));
  auto state = std::make_unique<State>(geometry, capacity);
  if (!state->tables.ok() || !state->published[0].block || !state->published[1].block) {
    return NoRoom("max_slots x max_pages: no memory for " + std::to_string(capacity.max_slots) +
                  " x " + std::to_string(capacity.max_pages) + " resident table entries");
  }
  return std::unique_ptr<FrameBuilder>(new FrameBuilder(std::move(state)));
}

FrameBuilder::FrameBuilder(std::unique_ptr<State> state) : state_(std::move(state)) {}
FrameBuilder::~FrameBuilder() = default;

FrameView FrameBuilder::Publish(uint64_t epoch, std::span<const Row> rows,
                                std::span<const SlotHead> slots, std::span<const Delta> deltas) {
  State& s = *state_;
  State::Published& frame = s.published[epoch % 2];
  if (s.publishes > 0 && epoch == s.epoch) {
    KVRM_CHECK(s.Repeats(frame, rows, slots, deltas),
               "FRAME-7: an epoch is published again with another content");
    return frame.view;
  }
  KVRM_CHECK(s.publishes == 0 || epoch == s.epoch + 1,
             "FRAME-7: an epoch is published that is not the next");
  KVRM_CHECK(rows.size() <= s.capacity.max_rows && slots.size() <= s.capacity.max_slots &&
                 deltas.size() <= s.max_deltas,
             "FRAME-0: a frame is larger than its capacity");
  for (const Delta& delta : deltas) s.tables.Apply(delta);
  s.Write(frame, epoch, rows, slots, deltas);
  s.epoch = epoch;
  ++s.publishes;
  return frame.view;
}

void FrameBuilder::State::Write(Published& frame, uint64_t frame_epoch, std::span<const Row> rows,
                                std::span<const SlotHead> slots, std::span<const Delta> deltas) {
  FrameHead& out = head(frame);
  // The slots that the last frame of this parity named.
  for (uint32_t i = 0; i < out.num_slots; ++i) frame.by_slot[frame.view.slots[i].slot] = nullptr;

  out = {};
  out.magic = kFrameMagic;
  out.version = kFrameVersion;
  out.epoch = frame_epoch;
  out.num_rows = static_cast<uint32_t>(rows.size());
  out.num_slots = static_cast<uint32_t>(slots.size());
  out.num_deltas = static_cast<uint32_t>(deltas.size());
  out.num_groups = static_cast<uint32_t>(geometry.groups.size());

  auto* row_out = reinterpret_cast<Row*>(frame.block.get() + sizeof(FrameHead));
  auto* slot_out = reinterpret_cast<SlotHead*>(row_out + rows.size());
  auto* delta_out = reinterpret_cast<Delta*>(slot_out + slots.size());
  std::copy(rows.begin(), rows.end(), row_out);
  std::copy(slots.begin(), slots.end(), slot_out);
  std::copy(deltas.begin(), deltas.end(), delta_out);
  for (const Row& row : rows) out.num_logits += row.logits_idx != kNone32 ? 1 : 0;
  for (uint32_t i = 0; i < slots.size(); ++i) {
    KVRM_CHECK(
        slot_out[i].slot < capacity.max_slots && (i == 0 || slots[i - 1].slot < slots[i].slot),
        "FRAME-1: live slots are not ascending");
    FillCounts(slot_out[i]);
    frame.by_slot[slot_out[i].slot] = &slot_out[i];
  }

  frame.view = {.head = &out,
                .rows = row_out,
                .slots = slot_out,
                .deltas = delta_out,
                .by_slot = frame.by_slot.data(),
                .segments = tables.segments(),
                .dense = tables.dense(),
                .max_slots = capacity.max_slots,
                .max_pages = capacity.max_pages};
  chain_hash = ChainHash(chain_hash, out, row_out, frame.view.bytes() - sizeof(FrameHead));
  out.chain_hash = chain_hash;
}

void FrameBuilder::State::FillCounts(SlotHead& slot) const {
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
    const bool slides = geometry.groups[g].kind == KvGroupKind::kSliding;
    slot.first_token[g] = slides ? tables.first_held_token(g, slot.slot) : 0;
    slot.num_pages[g] = tables.num_pages(g, slot.slot);
    slot.num_segments[g] = tables.num_segments(g, slot.slot);
    slot.num_holes[g] = tables.num_holes(g, slot.slot);
  }
}

// Compares what the caller gives; what is filled in here follows from it.
bool FrameBuilder::State::Repeats(const Published& frame, std::span<const Row> rows,
                                  std::span<const SlotHead> slots,
                                  std::span<const Delta> deltas) const {
  const FrameView& view = frame.view;
  if (rows.size() != view.head->num_rows || slots.size() != view.head->num_slots ||
      deltas.size() != view.head->num_deltas) {
    return false;
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    SlotHead given = slots[i];
    FillCounts(given);
    if (std::memcmp(&given, &view.slots[i], sizeof given) != 0) return false;
  }
  return (rows.empty() || std::memcmp(rows.data(), view.rows, rows.size_bytes()) == 0) &&
         (deltas.empty() || std::memcmp(deltas.data(), view.deltas, deltas.size_bytes()) == 0);
}

const FrameCapacity& FrameBuilder::capacity() const { return state_->capacity; }
uint64_t FrameBuilder::max_deltas() const { return state_->max_deltas; }
uint64_t FrameBuilder::chain_hash() const { return state_->chain_hash; }
uint64_t FrameBuilder::publishes() const { return state_->publishes; }

FrameBuilder::Reads FrameBuilder::LastReads() const {
  const State& s = *state_;
  Reads reads;
  if (s.publishes == 0) return reads;
  const FrameView& view = s.published[s.epoch % 2].view;
  double squares = 0;
  for (uint32_t i = 0; i < view.head->num_slots; ++i) {
    const SlotHead& slot = view.slots[i];
    for (uint32_t g = 0; g < s.geometry.groups.size(); ++g) {
      const uint64_t page_bytes = s.geometry.groups[g].part_page_bytes;
      reads.runs += slot.num_segments[g];
      reads.bytes += (slot.num_pages[g] - slot.num_holes[g]) * page_bytes;
      squares += static_cast<double>(s.tables.squared_pages(g, slot.slot)) *
                 static_cast<double>(page_bytes) * static_cast<double>(page_bytes);
    }
  }
  if (reads.bytes > 0) reads.mean_run_bytes = squares / static_cast<double>(reads.bytes);
  return reads;
}

uint64_t FrameView::bytes() const {
  return sizeof(FrameHead) + head->num_rows * sizeof(Row) + head->num_slots * sizeof(SlotHead) +
         head->num_deltas * sizeof(Delta);
}

}  // namespace kvrm
