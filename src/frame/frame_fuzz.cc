// Arbitrary bytes as a frame and its tables: unpacking and validating end in a value or in
// violations, never in a signal, and what the validator lets through can be shown.
//
// Input: 4 bytes, little endian, the size of the block; the block; segments and dense tables, as
// far as there are bytes, zeros after them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "frame/field_codec.h"
#include "frame/frame_block.h"
#include "frame/frame_history_testing.h"
#include "frame/frame_json.h"
#include "frame/resident_tables.h"

namespace {

using kvrm::testing::FrameHistory;
using kvrm::testing::HistoryGeometry;

// Takes from `bytes` what fills `out`.
template <class T>
void Fill(std::span<const std::byte>& bytes, std::vector<T>& out) {
  const size_t taken = std::min(bytes.size(), out.size() * sizeof(T));
  if (taken > 0) std::memcpy(out.data(), bytes.data(), taken);
  bytes = bytes.subspan(taken);
}

void Check(const kvrm::FrameBlock& block, std::span<const std::byte> rest) {
  static const kvrm::KvGeometry geometry = HistoryGeometry();
  const kvrm::FrameCapacity capacity = FrameHistory::kCapacity;
  const size_t entries = geometry.groups.size() * capacity.max_slots * capacity.max_pages;
  std::vector<kvrm::Segment> segments(entries);
  std::vector<uint32_t> dense(entries);
  Fill(rest, segments);
  Fill(rest, dense);
  std::vector<const kvrm::SlotHead*> by_slot(capacity.max_slots);
  static const kvrm::ResidentTables no_tables(geometry, capacity);
  kvrm::FrameView view = kvrm::ViewOf(block, no_tables, capacity, by_slot);
  view.segments = segments.data();
  view.dense = dense.data();

  const kvrm::FrameHead previous{.epoch = block.head().epoch - 1};
  const auto violations = kvrm::ValidateFrame(geometry, view, &previous);
  const bool well_formed = std::none_of(violations.begin(), violations.end(), [](const auto& text) {
    return text.starts_with("FRAME-0");
  });
  if (!well_formed) return;
  (void)kvrm::DumpFrame(geometry, view);
  (void)kvrm::FrameJson(geometry, view);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < sizeof(uint32_t)) return 0;
  std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  uint32_t block_bytes = 0;
  std::memcpy(&block_bytes, data, sizeof block_bytes);
  bytes = bytes.subspan(sizeof block_bytes);
  const auto block_span = bytes.first(std::min<size_t>(bytes.size(), block_bytes));
  const auto block = kvrm::FrameBlock::Unpack(block_span);
  if (!block.ok()) return 0;
  // What was unpacked packs to the same bytes.
  kvrm::FrameView view{.head = &block->head(),
                       .rows = block->rows().data(),
                       .slots = block->slots().data(),
                       .deltas = block->deltas().data()};
  std::vector<std::byte> packed(view.bytes());
  kvrm::PackBlock(view, packed.data());
  KVRM_CHECK(std::equal(packed.begin(), packed.end(), block_span.begin(), block_span.end()),
             "a block packs to the bytes that it was unpacked from");
  Check(*block, bytes.subspan(block_span.size()));
  return 0;
}
