#include "frame/frame_block.h"

#include <algorithm>
#include <string>

#include "frame/field_codec.h"
#include "frame/resident_tables.h"

namespace kvrm {
namespace {

static_assert(alignof(FrameHead) <= alignof(uint64_t) && alignof(Row) <= alignof(uint64_t) &&
              alignof(SlotHead) <= alignof(uint64_t) && alignof(Delta) <= alignof(uint64_t));

uint64_t BlockBytes(const FrameHead& head) {
  return sizeof(FrameHead) + uint64_t{head.num_rows} * sizeof(Row) +
         uint64_t{head.num_slots} * sizeof(SlotHead) + uint64_t{head.num_deltas} * sizeof(Delta);
}

}  // namespace

void PackBlock(const FrameView& frame, std::byte* bytes) {
  const FrameHead& head = *frame.head;
  Pack(&head, 1, bytes);
  bytes += sizeof head;
  Pack(frame.rows, head.num_rows, bytes);
  bytes += head.num_rows * sizeof(Row);
  Pack(frame.slots, head.num_slots, bytes);
  bytes += head.num_slots * sizeof(SlotHead);
  Pack(frame.deltas, head.num_deltas, bytes);
}

Result<FrameBlock> FrameBlock::Unpack(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(FrameHead)) {
    return InvalidInput("a frame of " + std::to_string(bytes.size()) +
                        " bytes, its head alone has " + std::to_string(sizeof(FrameHead)));
  }
  FrameHead head;
  kvrm::Unpack(bytes.data(), 1, &head);
  if (head.magic != kFrameMagic) {
    return InvalidInput("frame head magic is " + std::to_string(head.magic) + ", not " +
                        std::to_string(kFrameMagic));
  }
  if (head.version != kFrameVersion) {
    return Unsupported("frame head version is " + std::to_string(head.version) + ", not " +
                       std::to_string(kFrameVersion));
  }
  if (BlockBytes(head) != bytes.size()) {
    return InvalidInput("frame head says " + std::to_string(head.num_rows) + " rows, " +
                        std::to_string(head.num_slots) + " slots and " +
                        std::to_string(head.num_deltas) + " deltas, " +
                        std::to_string(BlockBytes(head)) + " bytes, but there are " +
                        std::to_string(bytes.size()));
  }
  FrameBlock block;
  block.words_.resize(bytes.size() / sizeof(uint64_t));
  auto* to = reinterpret_cast<FrameHead*>(block.words_.data());
  auto* rows = reinterpret_cast<Row*>(to + 1);
  auto* slots = reinterpret_cast<SlotHead*>(rows + head.num_rows);
  auto* deltas = reinterpret_cast<Delta*>(slots + head.num_slots);
  const std::byte* from = bytes.data();
  *to = head;
  from += sizeof head;
  kvrm::Unpack(from, head.num_rows, rows);
  from += head.num_rows * sizeof(Row);
  kvrm::Unpack(from, head.num_slots, slots);
  from += head.num_slots * sizeof(SlotHead);
  kvrm::Unpack(from, head.num_deltas, deltas);
  return block;
}

FrameView ViewOf(const FrameBlock& block, const ResidentTables& tables,
                 const FrameCapacity& capacity, std::vector<const SlotHead*>& by_slot) {
  std::fill(by_slot.begin(), by_slot.end(), nullptr);
  for (const SlotHead& slot : block.slots()) {
    if (slot.slot < by_slot.size()) by_slot[slot.slot] = &slot;  // FRAME-0 tells of others
  }
  return {.head = &block.head(),
          .rows = block.rows().data(),
          .slots = block.slots().data(),
          .deltas = block.deltas().data(),
          .by_slot = by_slot.data(),
          .segments = tables.segments(),
          .dense = tables.dense(),
          .max_slots = capacity.max_slots,
          .max_pages = capacity.max_pages};
}

}  // namespace kvrm
