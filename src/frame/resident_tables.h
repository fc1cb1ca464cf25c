// The page tables as executors see them: for each (KV group, slot) its segments and its dense
// table, at addresses that never change, patched by deltas.
//
// Segments are kept maximal at edit time. An edit at the end of a table costs the entries that it
// changes. An edit before the end (a replaced page, a hole) finds its segment by halving and moves
// the segments behind it when their number changes: copy-on-write hits the last page and a sliding
// window the first, so that is none or a shift of the few runs that the window holds.
//
// Thread class: one writer; readers between publishes. Never allocates after Create.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
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

  // The law that `delta` breaks on the tables as they are, nullptr = it can be applied. Total:
  // every delta is sound to ask about, so that readers of traces may ask first.
  const char* BrokenBy(const Delta& delta) const;
  // Requires: BrokenBy(delta) == nullptr.
  void Apply(const Delta& delta);

  uint32_t num_pages(uint32_t group, uint32_t slot) const { return Counts(group, slot).pages; }
  uint32_t num_segments(uint32_t group, uint32_t slot) const {
    return Counts(group, slot).segments;
  }
  // Null entries among num_pages.
  uint32_t num_holes(uint32_t group, uint32_t slot) const {
    const TableCounts& counts = Counts(group, slot);
    return counts.pages - counts.held;
  }
  // First token place on a page that is held, or where the table ends when none is.
  uint32_t first_held_token(uint32_t group, uint32_t slot) const;
  // Sum over segments of their squared page counts.
  uint64_t squared_pages(uint32_t group, uint32_t slot) const {
    return Counts(group, slot).squared_pages;
  }
  const Segment* segments() const { return segments_.get(); }  // [group][slot][max_pages]
  const uint32_t* dense() const { return dense_.get(); }       // [group][slot][max_pages]

 private:
  struct TableCounts {
    uint32_t pages = 0;  // entries, holes included
    uint32_t held = 0;   // entries that name a page
    uint32_t segments = 0;
    uint64_t squared_pages = 0;
  };
  // One table, while it is patched. Entries are indices into `dense`.
  struct Table {
    const KvGroupGeometry& geometry;
    uint8_t group;
    TableCounts& counts;
    Segment* segments;  // [max_pages]
    uint32_t* dense;    // [max_pages]

    void AppendRun(const Delta& delta);
    void Truncate(uint32_t pages);
    void Replace(uint32_t index, uint32_t page);
    void MakeHole(uint32_t index, uint32_t count);

    uint32_t FirstEntry(const Segment& segment) const {
      return segment.first_token / geometry.page_tokens;
    }
    uint32_t EndEntry(const Segment& segment) const {
      return FirstEntry(segment) + segment.num_pages;
    }
    Segment MakeSegment(uint32_t index, uint32_t num_pages) const;
    void Rebuild(uint32_t begin, uint32_t end);
    void Splice(Segment* first, Segment* last, std::span<const Segment> pieces);
    void Count(const Segment& segment);
    void Uncount(const Segment& segment);
  };

  static bool Continues(const KvGroupGeometry& group, uint32_t before, uint32_t page);
  const char* BrokenByRun(const Delta& delta) const;
  Table TableOf(const Delta& delta);
  // The entry that `delta` names, or the one before it.
  uint32_t PageAt(const Delta& delta, int32_t shift = 0) const {
    return dense_[Row(delta.kv_group, delta.slot) * max_pages_ + delta.index + shift];
  }
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
