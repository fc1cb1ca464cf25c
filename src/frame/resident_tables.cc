#include "frame/resident_tables.h"

#include <algorithm>

#include "base/check.h"

namespace kvrm {

ResidentTables::ResidentTables(const KvGeometry& geometry, const FrameCapacity& capacity)
    : groups_(geometry.groups),
      max_slots_(capacity.max_slots),
      max_pages_(capacity.max_pages),
      counts_(groups_.size() * capacity.max_slots),
      segments_(MakeZeroed<Segment>(counts_.size() * capacity.max_pages)),
      dense_(MakeZeroed<uint32_t>(counts_.size() * capacity.max_pages)) {}

uint32_t ResidentTables::first_held_token(uint32_t group, uint32_t slot) const {
  const TableCounts& counts = Counts(group, slot);
  return counts.segments > 0 ? segments_[Row(group, slot) * max_pages_].first_token
                             : counts.pages * groups_[group].page_tokens;
}

ResidentTables::Table ResidentTables::TableOf(const Delta& delta) {
  const size_t row = Row(delta.kv_group, delta.slot);
  return {groups_[delta.kv_group], delta.kv_group, counts_[row], segments_.get() + row * max_pages_,
          dense_.get() + row * max_pages_};
}

const char* ResidentTables::BrokenBy(const Delta& delta) const {
  if (delta.kv_group >= groups_.size() || delta.slot >= max_slots_) {
    return "FRAME-0: a delta names a table that is not there";
  }
  if (delta.first_token_place != delta.index * groups_[delta.kv_group].page_tokens) {
    return "FRAME-0: a delta's token place is not that of its index";
  }
  const uint32_t pages = num_pages(delta.kv_group, delta.slot);
  switch (delta.kind) {
    case DeltaKind::kAppend:
    case DeltaKind::kExtend:
      if (delta.index != pages || delta.count == 0 || delta.count > max_pages_ - pages) {
        return "FRAME-0: a delta appends past the end of its table";
      }
      return BrokenByRun(delta);
    case DeltaKind::kReplace:
      if (delta.index >= pages || delta.count != 1 || PageAt(delta) == kNullPage.value) {
        return "FRAME-0: a delta replaces a page that is not there";
      }
      return delta.page == kNullPage.value ? "FRAME-5: a table names the null page" : nullptr;
    case DeltaKind::kTruncate:
      return delta.index > pages ? "FRAME-0: a delta truncates past the end of its table" : nullptr;
    case DeltaKind::kHole: {
      // Holes over held entries, or entries appended as holes: never half of each.
      const uint32_t room = delta.index == pages ? max_pages_ : pages;
      if (delta.index > pages || delta.count == 0 || delta.count > room - delta.index) {
        return "FRAME-0: a delta makes a hole past the end of its table";
      }
      return delta.page == kNullPage.value ? nullptr : "FRAME-0: a hole names a page";
    }
  }
  return "FRAME-0: a delta of unknown kind";
}

// Of a run that fits at the end of its table.
const char* ResidentTables::BrokenByRun(const Delta& delta) const {
  const uint64_t in_superblock = groups_[delta.kv_group].pages_per_superblock;
  if (delta.page == kNullPage.value) return "FRAME-5: a table names the null page";
  if (delta.page % in_superblock + delta.count > in_superblock ||
      uint64_t{delta.page} + delta.count > kNone32) {
    return "FRAME-3: a run leaves its superblock";
  }
  const uint32_t last = delta.index == 0 ? kNullPage.value : PageAt(delta, -1);
  const bool continues = Continues(groups_[delta.kv_group], last, delta.page);
  return continues == (delta.kind == DeltaKind::kExtend)
             ? nullptr
             : "FRAME-3: a delta's kind does not tell whether its run continues the last";
}

void ResidentTables::Apply(const Delta& delta) {
  const char* broken = BrokenBy(delta);
  KVRM_CHECK(broken == nullptr, broken);
  Table table = TableOf(delta);
  switch (delta.kind) {
    case DeltaKind::kAppend:
    case DeltaKind::kExtend:
      return table.AppendRun(delta);
    case DeltaKind::kReplace:
      return table.Replace(delta.index, delta.page);
    case DeltaKind::kTruncate:
      return table.Truncate(delta.index);
    case DeltaKind::kHole:
      return table.MakeHole(delta.index, delta.count);
  }
}

// True when `page` continues the segment of the entry before it: the next page, in the same
// superblock. Page 1 after a hole does not, although a hole is page 0.
bool ResidentTables::Continues(const KvGroupGeometry& group, uint32_t before, uint32_t page) {
  return before != kNullPage.value && page == before + 1 && page % group.pages_per_superblock != 0;
}

void ResidentTables::Table::AppendRun(const Delta& delta) {
  for (uint32_t i = 0; i < delta.count; ++i) dense[delta.index + i] = delta.page + i;
  counts.pages += delta.count;
  if (delta.kind == DeltaKind::kAppend) {
    Count(segments[counts.segments++] = MakeSegment(delta.index, delta.count));
    return;
  }
  Segment& last = segments[counts.segments - 1];
  Uncount(last);
  last.num_pages += delta.count;
  Count(last);
}

// Costs the segments and held entries that go; holes among them are null already.
void ResidentTables::Table::Truncate(uint32_t pages) {
  while (counts.segments > 0 && EndEntry(segments[counts.segments - 1]) > pages) {
    Segment& last = segments[counts.segments - 1];
    const uint32_t first = FirstEntry(last), end = EndEntry(last);
    const uint32_t kept_end = std::max(first, pages);
    std::fill(dense + kept_end, dense + end, kNullPage.value);
    Uncount(last);
    last.num_pages = kept_end - first;
    if (last.num_pages == 0) {
      --counts.segments;
    } else {
      Count(last);
    }
  }
  counts.pages = pages;
}

void ResidentTables::Table::Replace(uint32_t index, uint32_t page) {
  dense[index] = page;
  Rebuild(index, index + 1);
}

void ResidentTables::Table::MakeHole(uint32_t index, uint32_t count) {
  if (index == counts.pages) {
    counts.pages += count;  // what follows a table's end is null already
    return;
  }
  std::fill(dense + index, dense + index + count, kNullPage.value);
  Rebuild(index, index + count);
}

// Entries [begin, end) have changed, to holes or to one page. The segments that they touch become
// at most three: what is left before them, the page, what is left behind them, joined where they
// continue each other.
void ResidentTables::Table::Rebuild(uint32_t begin, uint32_t end) {
  Segment* const all_end = segments + counts.segments;
  Segment* const first = std::partition_point(
      segments, all_end, [&](const Segment& segment) { return EndEntry(segment) < begin; });
  Segment* last = first;  // one past the last that is touched
  while (last != all_end && FirstEntry(*last) <= end) ++last;

  Segment pieces[3];
  uint32_t num_pieces = 0;
  const auto join = [&](uint32_t index, uint32_t index_end) {
    if (index >= index_end) return;
    if (num_pieces > 0 && Continues(geometry, dense[index - 1], dense[index])) {
      pieces[num_pieces - 1].num_pages += index_end - index;
    } else {
      pieces[num_pieces++] = MakeSegment(index, index_end - index);
    }
  };
  if (first != last) join(FirstEntry(*first), begin);
  if (dense[begin] != kNullPage.value) join(begin, end);
  if (first != last) join(std::max(FirstEntry(*(last - 1)), end), EndEntry(*(last - 1)));
  Splice(first, last, {pieces, num_pieces});
}

// Segments [first, last) become `pieces`; those behind them move when their number changes.
void ResidentTables::Table::Splice(Segment* first, Segment* last, std::span<const Segment> pieces) {
  std::for_each(first, last, [&](const Segment& segment) { Uncount(segment); });
  Segment* const all_end = segments + counts.segments;
  Segment* const pieces_end = first + pieces.size();
  if (pieces_end < last) {
    std::copy(last, all_end, pieces_end);
  } else if (pieces_end > last) {
    std::copy_backward(last, all_end, all_end + (pieces_end - last));
  }
  std::copy(pieces.begin(), pieces.end(), first);
  counts.segments = static_cast<uint32_t>(counts.segments + pieces.size() - (last - first));
  for (const Segment& piece : pieces) Count(piece);
}

Segment ResidentTables::Table::MakeSegment(uint32_t index, uint32_t num_pages) const {
  Segment segment{};
  segment.offset_bytes = geometry.PageOffset(PageId{dense[index]});
  segment.first_token = index * geometry.page_tokens;
  segment.num_pages = num_pages;
  segment.first_page = dense[index];
  segment.kv_group = group;
  segment.head_end = 0xFFFF;
  segment.layer_end = 0xFFFF;
  segment.row_mask = ~uint64_t{0};
  return segment;
}

void ResidentTables::Table::Count(const Segment& segment) {
  counts.held += segment.num_pages;
  counts.squared_pages += uint64_t{segment.num_pages} * segment.num_pages;
}

void ResidentTables::Table::Uncount(const Segment& segment) {
  counts.held -= segment.num_pages;
  counts.squared_pages -= uint64_t{segment.num_pages} * segment.num_pages;
}

}  // namespace kvrm
