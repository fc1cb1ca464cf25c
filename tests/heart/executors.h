// The executors of the heart's tests. Both compute what every row should, and read every place that
// a row could see; they differ in when, and in which tables they look.
//
// FrameReader runs a frame at once and finds pages through what the frame exports: its segments and
// its dense table.
//
// DelayedExecutor (delayed_executor.h) runs a frame only after the next one has been committed, and
// has no other tables than its own, patched by deltas, as a device has.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "frame/frame.h"
#include "shadow_store.h"

namespace kvrm::heart {

class FrameReader {
 public:
  FrameReader(const Pager& pager, const ShadowStore& store)
      : geometry_(&pager.geometry()), store_(&store) {}

  // Page copies, then rows, then every visible place; what is wrong, or nothing.
  std::optional<std::string> Run(const FrameView& frame, std::span<const Pager::PageCopy> copies,
                                 std::span<const ExpectedSlot> slots) const;

 private:
  std::optional<std::string> ReadSlot(const FrameView& frame, uint32_t group,
                                      const ExpectedSlot& slot) const;
  std::optional<std::string> ReadSegments(const FrameView& frame, uint32_t group,
                                          const ExpectedSlot& slot) const;

  const KvGeometry* geometry_;
  const ShadowStore* store_;
};

}  // namespace kvrm::heart
