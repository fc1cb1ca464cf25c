#include "executors.h"

#include <algorithm>

namespace kvrm::heart {
namespace {

std::string Where(const ExpectedSlot& slot, uint32_t group, const std::string& what) {
  return "slot " + std::to_string(slot.slot) + " group " + std::to_string(group) + ": " + what;
}

}  // namespace

std::optional<std::string> FrameReader::Run(const FrameView& frame,
                                            std::span<const Pager::PageCopy> copies,
                                            std::span<const ExpectedSlot> slots) const {
  for (const Pager::PageCopy& copy : copies) store_->Copy(copy);
  const auto num_groups = static_cast<uint32_t>(geometry_->groups.size());
  for (const ExpectedSlot& slot : slots) {
    for (uint32_t g = 0; g < num_groups; ++g) {
      const uint32_t* pages = frame.SlotPages(g, slot.slot);
      for (uint32_t place = slot.first_row; place < slot.length(); ++place) {
        const uint32_t page = pages[place / geometry_->groups[g].page_tokens];
        if (page == 0) return Where(slot, g, "FRAME-5: a row writes the null page");
        store_->Write(g, page, place, slot.chain[place]);
      }
    }
  }
  for (const ExpectedSlot& slot : slots) {
    for (uint32_t g = 0; g < num_groups; ++g) {
      if (auto wrong = ReadSlot(frame, g, slot)) return wrong;
      if (auto wrong = ReadSegments(frame, g, slot)) return wrong;
    }
  }
  return std::nullopt;
}

// Through the dense table: each page that is held, and none missing that a row sees.
std::optional<std::string> FrameReader::ReadSlot(const FrameView& frame, uint32_t group,
                                                 const ExpectedSlot& slot) const {
  const KvGroupGeometry& geometry = geometry_->groups[group];
  const uint32_t* pages = frame.SlotPages(group, slot.slot);
  const uint32_t end = (slot.length() + geometry.page_tokens - 1) / geometry.page_tokens;
  const uint32_t reader = slot.first_reader(), window = geometry.window_tokens;
  const uint32_t first_seen = window == 0 || reader < window ? 0 : reader + 1 - window;
  for (uint32_t index = 0; index < end; ++index) {
    const uint32_t first_place = index * geometry.page_tokens;
    if (pages[index] == 0) {
      const bool is_seen = first_place + geometry.page_tokens > first_seen;
      if (!is_seen || (slot.lossy && window == 0)) continue;
      return Where(slot, group, "page " + std::to_string(index) + " is seen and not held");
    }
    if (auto wrong = store_->FindWrong(group, geometry.PageOffset(PageId{pages[index]}),
                                       first_place, 1, slot.chain)) {
      return Where(slot, group, "by the dense table, " + *wrong);
    }
  }
  for (uint32_t index = end; index < frame.max_pages; ++index) {
    if (pages[index] != 0) return Where(slot, group, "FRAME-4: a page past the end");
  }
  return std::nullopt;
}

// Through the segments: the same pages in the same places.
std::optional<std::string> FrameReader::ReadSegments(const FrameView& frame, uint32_t group,
                                                     const ExpectedSlot& slot) const {
  const KvGroupGeometry& geometry = geometry_->groups[group];
  const SlotHead& head = *frame.by_slot[slot.slot];
  const Segment* segments = frame.SlotSegments(group, slot.slot);
  const uint32_t* pages = frame.SlotPages(group, slot.slot);
  uint32_t in_segments = 0;
  for (uint32_t i = 0; i < head.num_segments[group]; ++i) {
    const Segment& segment = segments[i];
    in_segments += segment.num_pages;
    for (uint32_t page = 0; page < segment.num_pages; ++page) {
      if (pages[segment.first_token / geometry.page_tokens + page] != segment.first_page + page) {
        return Where(slot, group, "FRAME-4: segments and dense table differ");
      }
    }
    if (auto wrong = store_->FindWrong(group, segment.offset_bytes, segment.first_token,
                                       segment.num_pages, slot.chain)) {
      return Where(slot, group, "by segment " + std::to_string(i) + ", " + *wrong);
    }
  }
  const auto held = static_cast<uint32_t>(
      frame.max_pages - static_cast<uint32_t>(std::count(pages, pages + frame.max_pages, 0u)));
  if (in_segments != held) return Where(slot, group, "FRAME-3: segments miss pages");
  return std::nullopt;
}

}  // namespace kvrm::heart
