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

void ResidentTables::Apply(const Delta& delta) {
  KVRM_CHECK(delta.kv_group < groups_.size() && delta.slot < max_slots_,
             "FRAME-0: a delta names a table that is not there");
  const KvGroupGeometry& geometry = groups_[delta.kv_group];
  KVRM_CHECK(delta.first_token_place == delta.index * geometry.page_tokens,
             "FRAME-0: a delta's token place is not that of its index");
  const size_t row = Row(delta.kv_group, delta.slot);
  Table table{geometry, delta.kv_group, counts_[row], segments_.get() + row * max_pages_,
              dense_.get() + row * max_pages_};
  switch (delta.kind) {
    case DeltaKind::kAppend:
    case DeltaKind::kExtend:
      KVRM_CHECK(delta.index == table.counts.pages && delta.count > 0 &&
                     delta.count <= max_pages_ - delta.index,
                 "FRAME-0: a delta appends past the end of its table");
      table.AppendRun(delta);
      return;
    case DeltaKind::kReplace:
      KVRM_CHECK(delta.index < table.counts.pages && delta.count == 1,
                 "FRAME-0: a delta replaces a page that is not there");
      table.Replace(delta.index, delta.page);
      return;
    case DeltaKind::kTruncate:
      KVRM_CHECK(delta.index <= table.counts.pages,
                 "FRAME-0: a delta truncates past the end of its table");
      table.Truncate(delta.index);
      return;
    case DeltaKind::kHole:
      break;  // no pager sends one yet
  }
  KVRM_CHECK(false, "FRAME-0: a delta of unknown kind");
}

// True when entry `index` continues the segment of the entry before it: the next page, in the same
// superblock.
bool ResidentTables::Table::Continues(uint32_t index) const {
  return index > 0 && dense[index] == dense[index - 1] + 1 &&
         dense[index] % geometry.pages_per_superblock != 0;
}

void ResidentTables::Table::AppendRun(const Delta& delta) {
  KVRM_CHECK(delta.page != kNullPage.value, "FRAME-5: a table names the null page");
  KVRM_CHECK(
      delta.page % geometry.pages_per_superblock + delta.count <= geometry.pages_per_superblock,
      "FRAME-3: a run leaves its superblock");
  for (uint32_t i = 0; i < delta.count; ++i) dense[delta.index + i] = delta.page + i;
  KVRM_CHECK(Continues(delta.index) == (delta.kind == DeltaKind::kExtend),
             "FRAME-3: a delta's kind does not tell whether its run continues the last");
  counts.pages += delta.count;
  ExtendSegments(delta.index, delta.count);
}

// Entries [index, index + count), adjacent pages, join the segments that end before `index`.
void ResidentTables::Table::ExtendSegments(uint32_t index, uint32_t count) {
  if (Continues(index)) {
    Segment& last = segments[counts.segments - 1];
    SetNumPages(last, last.num_pages + count);
    return;
  }
  Segment& segment = segments[counts.segments++];
  segment = {};
  segment.offset_bytes = geometry.PageOffset(PageId{dense[index]});
  segment.first_token = index * geometry.page_tokens;
  SetNumPages(segment, count);
  segment.first_page = dense[index];
  segment.kv_group = group;
  segment.head_end = 0xFFFF;
  segment.layer_end = 0xFFFF;
  segment.row_mask = ~uint64_t{0};
}

void ResidentTables::Table::SetNumPages(Segment& segment, uint32_t num_pages) {
  counts.squared_pages -= uint64_t{segment.num_pages} * segment.num_pages;
  counts.squared_pages += uint64_t{num_pages} * num_pages;
  segment.num_pages = num_pages;
}

void ResidentTables::Table::Truncate(uint32_t pages) {
  CutSegments(pages);
  std::fill(dense + pages, dense + counts.pages, kNullPage.value);
  counts.pages = pages;
}

// The segments cover the first `pages` entries only.
void ResidentTables::Table::CutSegments(uint32_t pages) {
  const uint32_t end = pages * geometry.page_tokens;
  while (counts.segments > 0) {
    Segment& last = segments[counts.segments - 1];
    if (last.first_token < end) {
      SetNumPages(last, std::min(last.num_pages, pages - last.first_token / geometry.page_tokens));
      return;
    }
    SetNumPages(last, 0);
    --counts.segments;
  }
}

void ResidentTables::Table::Replace(uint32_t index, uint32_t page) {
  KVRM_CHECK(page != kNullPage.value, "FRAME-5: a table names the null page");
  CutSegments(index);
  dense[index] = page;
  for (uint32_t i = index; i < counts.pages; ++i) ExtendSegments(i, 1);
}

}  // namespace kvrm
