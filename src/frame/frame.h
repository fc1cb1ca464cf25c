// The frame: the descriptor of one step. A *head* (live rows and live slots) and *deltas* (edits of
// page tables) against *resident tables* at fixed addresses. Published once per step.
//
// Mapping only: how bytes move is the transport's business, what the bytes mean the executor's.
// docs/frame.md gives the layout as grammar and a worked example.
//
// Thread class: one writer (the engine thread); executors read published frames during replay.
// Ownership: FrameBuilder owns heads and resident tables; every address is fixed after Create.
// Heads are double-buffered by epoch; tables are patched in step order.
//
// Invariants (all checked by ValidateFrame, which returns every violation):
//   FRAME-0  head, live slots, rows and deltas are well formed: magic, version, counts within
//            capacity, slots ascending, delta.first_token_place = index * page_tokens, known kinds
//            and flags.
//   FRAME-1  row slots are live; rows of one slot are adjacent and ascending in kv_index.
//   FRAME-2  every kv_index of a row is < its slot's num_tokens, and covered by its segments.
//   FRAME-3  segments of a slot are maximal and ascending and hold num_pages - num_holes pages. In
//            a full group without kSlotLossyView there are no holes; in a sliding group holes stand
//            before first_token only, and the window of the slot's first row is held.
//   FRAME-4  the dense table equals the segments; holes and entries past the end are null.
//   FRAME-5  no two live slots write one page, nor one a token place that another reads; no row
//            writes the null page.
//   FRAME-6  logits_idx values are 0..num_logits-1, each once, ascending with rows.
//   FRAME-7  epoch = previous epoch + 1; hash = chain(previous hash, head bytes, delta bytes).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/kv_view.h"
#include "base/result.h"

namespace kvrm {

inline constexpr uint32_t kFrameVersion = 2;
inline constexpr uint32_t kFrameMagic = 0x4652'564Bu;  // "KVRF"

enum SlotFlags : uint16_t {
  kSlotLossyView = 1,  // a policy dropped places that the model could see
};

// Per live slot: what an executor must know of a sequence. 128 bytes.
struct SlotHead {
  uint16_t slot;
  uint16_t flags;  // SlotFlags
  uint32_t seq_id;
  uint32_t row_begin;  // rows [row_begin, row_begin + num_rows) of this step are this slot's
  uint32_t num_rows;
  uint32_t num_tokens[kMaxKvGroups];   // token places in use after this step
  uint32_t first_token[kMaxKvGroups];  // first place on a page that is held; 0 in a full group
  uint32_t num_pages[kMaxKvGroups];    // table entries, holes included: the dense table ends there
  uint32_t num_segments[kMaxKvGroups];
  uint32_t num_holes[kMaxKvGroups];  // null entries among num_pages
  uint32_t reserved1[8];
};
static_assert(sizeof(SlotHead) == 128);

struct FrameHead {
  uint32_t magic;
  uint32_t version;
  uint64_t epoch;
  uint64_t chain_hash;
  uint32_t num_rows;
  uint32_t num_slots;  // live
  uint32_t num_deltas;
  uint32_t num_logits;
  uint32_t num_groups;
  uint32_t reserved[5];
  // followed by Row[num_rows], SlotHead[num_slots], Delta[num_deltas], contiguous
};
static_assert(sizeof(FrameHead) == 64);

struct FrameCapacity {
  uint32_t max_slots = 0;
  uint32_t max_rows = 0;   // of the widest program
  uint32_t max_pages = 0;  // per slot and group
};

// What an executor reads. The block (head, rows), by_slot and the tables are at addresses fixed per
// epoch parity; slots and deltas follow the live rows, so that the block is one piece. Contents
// last until the next but one publish (head, rows, slots, deltas, by_slot) or the next (tables).
struct FrameView {
  const FrameHead* head = nullptr;
  const Row* rows = nullptr;                 // [num_rows]
  const SlotHead* slots = nullptr;           // [num_slots], ascending slot
  const Delta* deltas = nullptr;             // [num_deltas]
  const SlotHead* const* by_slot = nullptr;  // [max_slots] -> live SlotHead or nullptr
  // Resident tables, group-major: segments[group][slot][max_pages], dense[group][slot][max_pages].
  const Segment* segments = nullptr;
  const uint32_t* dense = nullptr;
  uint32_t max_slots = 0;
  uint32_t max_pages = 0;

  const Segment* SlotSegments(uint32_t group, uint32_t slot) const {
    return segments + (size_t{group} * max_slots + slot) * max_pages;
  }
  const uint32_t* SlotPages(uint32_t group, uint32_t slot) const {
    return dense + (size_t{group} * max_slots + slot) * max_pages;
  }
  uint64_t bytes() const;  // of the contiguous block that a device would be sent
};

class FrameBuilder {
 public:
  static Result<std::unique_ptr<FrameBuilder>> Create(const KvGeometry& geometry,
                                                      const FrameCapacity& capacity);
  ~FrameBuilder();

  // Applies `deltas` to the resident tables and publishes rows and slots as epoch `epoch`. Slots'
  // first_token, num_pages, num_segments and num_holes are filled in here; the caller gives slot,
  // seq_id, flags, num_tokens, row_begin and num_rows. Publishing the last epoch again with equal
  // input changes nothing and returns the same view. O(rows + slots + deltas).
  FrameView Publish(uint64_t epoch, std::span<const Row> rows, std::span<const SlotHead> slots,
                    std::span<const Delta> deltas);

  const FrameCapacity& capacity() const;
  // Deltas of the largest step that can be published: each table cut, filled in single pages, and
  // both once more.
  uint64_t max_deltas() const;
  uint64_t chain_hash() const;
  uint64_t publishes() const;
  // Segments of the live slots of the last frame, and their bytes, for one layer (read_runs).
  // O(live slots): the tables count while they are patched.
  struct Reads {
    uint64_t runs = 0;
    uint64_t bytes = 0;
    double mean_run_bytes = 0;  // byte-weighted
  };
  Reads LastReads() const;

 private:
  struct State;
  explicit FrameBuilder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Every violation of FRAME-0..6 (and 7 when `previous` is given), law id first. Pure.
std::vector<std::string> ValidateFrame(const KvGeometry& geometry, const FrameView& frame,
                                       const FrameHead* previous);
// The materialised view as text, one row, slot and segment a line (docs/request.md shows one).
std::string DumpFrame(const KvGeometry& geometry, const FrameView& frame);

}  // namespace kvrm
