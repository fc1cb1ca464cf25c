// The contiguous block of a frame as bytes: what a device is sent and a trace keeps.
//
// Packing is total. Unpacking takes bytes from anywhere: it checks what the block says of its own
// size, and nothing else; whether the content is sound is ValidateFrame's business.
//
// Thread-compatible; a FrameBlock owns its memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "frame/frame.h"

namespace kvrm {

class ResidentTables;

// Writes frame.bytes() little-endian bytes: head, rows, slots, deltas.
void PackBlock(const FrameView& frame, std::byte* bytes);

class FrameBlock {
 public:
  // Errors: bytes that are no whole frame of this version; the message names field, value, limit.
  static Result<FrameBlock> Unpack(std::span<const std::byte> bytes);

  const FrameHead& head() const { return *reinterpret_cast<const FrameHead*>(words_.data()); }
  std::span<const Row> rows() const {
    return {reinterpret_cast<const Row*>(&head() + 1), head().num_rows};
  }
  std::span<const SlotHead> slots() const {
    return {reinterpret_cast<const SlotHead*>(rows().data() + head().num_rows), head().num_slots};
  }
  std::span<const Delta> deltas() const {
    return {reinterpret_cast<const Delta*>(slots().data() + head().num_slots), head().num_deltas};
  }

 private:
  FrameBlock() = default;
  std::vector<uint64_t> words_;  // the block; its parts have an alignment of 8 or less
};

// The block with the tables that it speaks of, as executors see them. `by_slot` is filled in.
// Requires: block, by_slot and tables outlive the view; by_slot has capacity.max_slots entries.
FrameView ViewOf(const FrameBlock& block, const ResidentTables& tables,
                 const FrameCapacity& capacity, std::vector<const SlotHead*>& by_slot);

}  // namespace kvrm
