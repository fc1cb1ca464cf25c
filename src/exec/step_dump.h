// A step as bytes: the frame, the tables and the pool bytes that its slots see, before it ran. With
// the model file that is all a replay depends on (law I1, purity), so that a dumped step re-run in
// a fresh process gives equal logits and page bytes. For tests and bug reports on one machine; the
// layout is that of the structs, tagged with kFrameVersion, and not a stable format.
//
// Engine thread; the dump owns its bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/kv_view.h"
#include "base/result.h"
#include "frame/frame.h"

namespace kvrm {

// `kv_base`: base address of each group, before the step's replay.
std::vector<std::byte> DumpStep(const KvGeometry& geometry, const FrameView& frame,
                                std::byte* const* kv_base);

// A dump made into a frame again. The page bytes are written into ranges that the caller owns.
class LoadedStep {
 public:
  // Errors: truncated or foreign bytes; pages past `range_bytes[g]`.
  static Result<LoadedStep> Parse(std::span<const std::byte> bytes, const KvGeometry& geometry);
  // Copies the dumped pages to their places. Requires: base[g] has range_bytes(g) writable bytes.
  void RestorePages(std::byte* const* kv_base) const;
  uint64_t range_bytes(uint32_t group) const { return range_bytes_[group]; }
  // Valid while this object lives and does not move.
  FrameView View() const;
  // Bytes of every dumped page, in dump order, as they now lie in the ranges.
  std::vector<std::byte> ReadPages(std::byte* const* kv_base) const;

 private:
  struct Page {
    uint32_t group;
    uint32_t page;
    std::vector<std::byte> bytes;
  };
  KvGeometry geometry_;
  FrameHead head_{};
  std::vector<Row> rows_;
  std::vector<SlotHead> slots_;
  std::vector<Segment> segments_;
  std::vector<uint32_t> dense_;
  std::vector<Page> pages_;
  uint64_t range_bytes_[kMaxKvGroups] = {};
  uint32_t max_slots_ = 0, max_pages_ = 0;
};

}  // namespace kvrm
