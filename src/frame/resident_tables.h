// The page tables as executors see them: for each (KV group, slot) its segments and its dense
// table, at addresses that never change, patched by deltas.
//
// Segments are kept maximal at edit time; a patch costs what the delta changes, except kReplace,
// which rebuilds the segments from its entry on (copy-on-write hits the last page, so that is one).
//
// Thread class: one writer; readers between publishes. Never allocates after Create.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/kv_view.h"
#include "frame/frame.h"

namespace kvrm {

struct FreeDeleter {
  void operator()(void* memory) const { std::free(memory); }
};
// Zeroed by the system where it is large: what no slot ever uses takes no memory.
template <class T>
using ZeroedArray = std::unique_ptr<T[], FreeDeleter>;
template <class T>
ZeroedArray<T> MakeZeroed(size_t count) {
  return ZeroedArray<T>(static_cast<T*>(std::calloc(count, sizeof(T))));
}

class ResidentTables {
 public:
  ResidentTables(const KvGeometry& geometry, const FrameCapacity& capacity);
  bool ok() const { return segments_ != nullptr && dense_ != nullptr; }

  void Apply(const Delta& delta);

  uint32_t num_pages(uint32_t group, uint32_t slot) const { return Counts(group, slot).pages; }
  uint32_t num_segments(uint32_t group, uint32_t slot) const {
    return Counts(group, slot).segments;
  }
  // Sum over segments of their squared page counts.
  uint64_t squared_pages(uint32_t group, uint32_t slot) const {
    return Counts(group, slot).squared_pages;
  }
  const Segment* segments() const { return segments_.get(); }  // [group][slot][max_pages]
  const uint32_t* dense() const { return dense_.get(); }       // [group][slot][max_pages]

 private:
  struct TableCounts {
    uint32_t pages = 0;
    uint32_t segments = 0;
    uint64_t squared_pages = 0;
  };
  // One table, while it is patched.
  struct Table {
    const KvGroupGeometry& geometry;
    uint8_t group;
    TableCounts& counts;
    Segment* segments;  // [max_pages]
    uint32_t* dense;    // [max_pages]

    bool Continues(uint32_t index) const;
    void AppendRun(const Delta& delta);
    void Truncate(uint32_t pages);
    void CutSegments(uint32_t pages);
    void Replace(uint32_t index, uint32_t page);
    void ExtendSegments(uint32_t index, uint32_t count);
    void SetNumPages(Segment& segment, uint32_t num_pages);
  };

  size_t Row(uint32_t group, uint32_t slot) const { return size_t{group} * max_slots_ + slot; }
  const TableCounts& Counts(uint32_t group, uint32_t slot) const {
    return counts_[Row(group, slot)];
  }

  const std::vector<KvGroupGeometry> groups_;
  const uint32_t max_slots_;
  const uint32_t max_pages_;
  std::vector<TableCounts> counts_;  // [group][slot]
  ZeroedArray<Segment> segments_;
  ZeroedArray<uint32_t> dense_;
};

}  // namespace kvrm
