#include "transport/window_map.h"

#include <algorithm>
#include <string>

namespace kvrm {
namespace {

constexpr uint64_t kMaxStrideBytes = uint64_t{1} << 46;  // times 65,535 slots or parts: no overflow
constexpr uint32_t kMaxParts = 0xFFFF;

Error Refuse(size_t group, const char* field, uint64_t value, const std::string& range) {
  return InvalidInput("windows.groups[" + std::to_string(group) + "]." + field + " is " +
                      std::to_string(value) + ", but must be " + range);
}

// Whether `count` things of `inner` bytes, `stride` apart, each hold one of the others' whole rows.
bool Nests(uint64_t inner_stride, uint64_t inner_count, uint64_t outer_stride,
           uint64_t window_bytes) {
  return inner_stride >= window_bytes &&
         outer_stride >= (inner_count - 1) * inner_stride + window_bytes;
}

Status CheckStrides(size_t index, const KvGroupGeometry& group, const WindowGeometry::Group& window,
                    uint32_t max_slots) {
  const uint64_t bytes = window.window_tokens * (group.part_page_bytes / group.page_tokens);
  if (window.slot_stride_bytes > kMaxStrideBytes || window.slot_stride_bytes < bytes) {
    return Refuse(index, "slot_stride_bytes", window.slot_stride_bytes,
                  "at least window_tokens * token_bytes = " + std::to_string(bytes) +
                      " and at most " + std::to_string(kMaxStrideBytes));
  }
  if (window.part_stride_bytes > kMaxStrideBytes || window.part_stride_bytes < bytes) {
    return Refuse(index, "part_stride_bytes", window.part_stride_bytes,
                  "at least window_tokens * token_bytes = " + std::to_string(bytes) +
                      " and at most " + std::to_string(kMaxStrideBytes));
  }
  if (Nests(window.slot_stride_bytes, max_slots, window.part_stride_bytes, bytes) ||
      Nests(window.part_stride_bytes, group.num_parts, window.slot_stride_bytes, bytes)) {
    return Ok();
  }
  return Refuse(index, "part_stride_bytes", window.part_stride_bytes,
                "such that no two windows overlap: neither do " + std::to_string(max_slots) +
                    " slots of " + std::to_string(window.slot_stride_bytes) +
                    " bytes lie within a part, nor " + std::to_string(group.num_parts) +
                    " parts within a slot");
}

Status CheckGroup(size_t index, const KvGroupGeometry& group, const WindowGeometry& windows,
                  uint32_t max_slots) {
  const WindowGeometry::Group& window = windows.groups[index];
  if (group.kind != KvGroupKind::kFull && group.kind != KvGroupKind::kSliding) {
    return Unsupported("KV group " + std::to_string(index) + " is of kind " +
                       std::to_string(static_cast<int>(group.kind)) +
                       "; windows are offered for full and sliding groups");
  }
  if (group.page_tokens == 0 || group.pages_per_superblock == 0 || group.num_parts == 0 ||
      group.num_parts > kMaxParts || group.part_page_bytes > kMaxStrideBytes) {
    return InvalidInput("geometry.groups[" + std::to_string(index) +
                        "]: page_tokens, pages_per_superblock and num_parts must be at least 1, "
                        "num_parts at most " +
                        std::to_string(kMaxParts));
  }
  if (group.part_page_bytes == 0 || group.part_page_bytes % group.page_tokens != 0) {
    return InvalidInput(
        "geometry.groups[" + std::to_string(index) + "].part_page_bytes is " +
        std::to_string(group.part_page_bytes) + ", but must be a multiple of page_tokens = " +
        std::to_string(group.page_tokens) + ": a token's bytes lie together in a window");
  }
  const bool sliding = group.kind == KvGroupKind::kSliding;
  const uint64_t served = sliding ? uint64_t{group.window_tokens} + windows.max_step_tokens
                                  : uint64_t{windows.max_seq_tokens};
  const uint64_t least = std::max<uint64_t>(served, group.page_tokens);
  if (window.window_tokens < least || window.window_tokens % group.page_tokens != 0) {
    return Refuse(index, "window_tokens", window.window_tokens,
                  "a multiple of page_tokens = " + std::to_string(group.page_tokens) +
                      " and at least " + std::to_string(least) +
                      (sliding ? " = the model's window + max_step_tokens" : " = max_seq_tokens"));
  }
  return CheckStrides(index, group, window, max_slots);
}

}  // namespace

Status CheckWindows(const KvGeometry& geometry, const WindowGeometry& windows, uint32_t max_slots) {
  if (geometry.groups.empty() || geometry.groups.size() > kMaxKvGroups ||
      windows.groups.size() != geometry.groups.size()) {
    return InvalidInput("windows.groups: " + std::to_string(windows.groups.size()) +
                        " groups for a geometry of " + std::to_string(geometry.groups.size()) +
                        "; must be equal, 1 to " + std::to_string(kMaxKvGroups));
  }
  if (max_slots == 0 || max_slots > 0xFFFF) {
    return InvalidInput("max_slots is " + std::to_string(max_slots) + ", but must be 1 to 65535");
  }
  for (size_t g = 0; g < windows.groups.size(); ++g) {
    KVRM_RETURN_IF_ERROR(CheckGroup(g, geometry.groups[g], windows, max_slots));
  }
  return Ok();
}

uint64_t WindowMap::window_bytes(uint32_t group) const {
  const WindowGeometry::Group& window = windows_.groups[group];
  return (max_slots_ - 1) * window.slot_stride_bytes +
         (geometry_.groups[group].num_parts - 1) * window.part_stride_bytes +
         window.window_tokens * token_bytes(group);
}

WindowMap::Places WindowMap::Visible(uint32_t group, uint32_t first_row, uint32_t last_row) const {
  const uint32_t seen = geometry_.groups[group].window_tokens;
  const uint32_t first = ring(group) && first_row + 1 > seen ? first_row + 1 - seen : 0;
  return {.first = first, .end = last_row + 1};
}

// The end of the longest run from places.first on that is contiguous at both ends.
uint32_t WindowMap::RunEnd(uint32_t group, Places places, const uint32_t* pages) const {
  const uint32_t tokens = page_tokens(group);
  uint32_t index = places.first / tokens;
  uint32_t end = (index + 1) * tokens;
  while (end < places.end && pages[index + 1] == pages[index] + 1 &&
         pages[index + 1] % geometry_.groups[group].pages_per_superblock != 0 &&
         end % window_tokens(group) != 0) {
    ++index;
    end += tokens;
  }
  return std::min(end, places.end);
}

void WindowMap::AddCopies(uint32_t group, uint32_t slot, Places places, const uint32_t* pages,
                          CopyCause cause, TrainMerger& merger) const {
  const uint32_t tokens = page_tokens(group);
  while (places.first < places.end) {
    const uint32_t page = pages[places.first / tokens];
    if (page == kNullPage.value) {
      places.first = (places.first / tokens + 1) * tokens;
      continue;
    }
    const uint32_t end = RunEnd(group, places, pages);
    AddRun(group, slot, {.first = places.first, .end = end}, page, cause, merger);
    places.first = end;
  }
}

// A piece, before merging, is a page of a part where pages are staged, and a row of a part where
// rows are published.
void WindowMap::AddRun(uint32_t group, uint32_t slot, Places run, uint32_t first_page,
                       CopyCause cause, TrainMerger& merger) const {
  const KvGroupGeometry& pool = geometry_.groups[group];
  const WindowGeometry::Group& window = windows_.groups[group];
  const uint64_t bytes_a_token = token_bytes(group);
  const auto kv_group = static_cast<uint8_t>(group);
  const uint64_t in_page = run.first % pool.page_tokens;
  const uint64_t in_pool = pool.PageOffset(PageId{first_page}) + in_page * bytes_a_token;
  const uint64_t in_window =
      slot * window.slot_stride_bytes + uint64_t{run.first % window.window_tokens} * bytes_a_token;
  const bool stage = cause == CopyCause::kStage;
  const uint32_t pages = (run.end - 1) / pool.page_tokens - run.first / pool.page_tokens + 1;
  CopyDescriptor copy{.bytes = (run.end - run.first) * bytes_a_token,
                      .source = {.kind = CopySpaceKind::kPool, .kv_group = kv_group},
                      .destination = {.kind = CopySpaceKind::kWindow, .kv_group = kv_group},
                      .cause = cause};
  if (!stage) std::swap(copy.source, copy.destination);
  for (uint32_t part = 0; part < pool.num_parts; ++part) {
    const uint64_t pool_offset = in_pool + part * pool.part_stride_bytes();
    const uint64_t window_offset = in_window + part * window.part_stride_bytes;
    copy.source_offset = stage ? pool_offset : window_offset;
    copy.destination_offset = stage ? window_offset : pool_offset;
    merger.Add(copy, stage ? pages : run.end - run.first);
  }
}

}  // namespace kvrm
