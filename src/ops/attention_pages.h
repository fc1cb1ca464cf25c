// What the rows of an attention task see, and where it lies: chunks, pages, segments. Included once
// per machine after lanes.h.
#pragma once

#include "ops/lanes.h"
#include "ops/op_args.h"

namespace kvrm::ops::KVRM_LANES_NS {

inline constexpr uint32_t kChunkPages = kChunkTokens / kPageTokens;

// The pages [begin, end) of one chunk, found by walking a slot's segments. Pages that no row of the
// task sees are not looked up: a window's may be gone.
struct ChunkPages {
  const std::byte* page[kChunkPages];
  uint32_t begin;
  uint32_t end;
};

inline uint32_t SegmentOf(const Segment* segments, uint32_t num, uint32_t token) {
  uint32_t low = 0;
  uint32_t high = num;
  while (high - low > 1) {
    const uint32_t mid = (low + high) / 2;
    if (segments[mid].first_token <= token)
      low = mid;
    else
      high = mid;
  }
  return low;
}

// Pages that hold tokens [first, end) of the chunk.
inline ChunkPages FindPages(const AttentionArgs& args, uint32_t slot, uint32_t chunk,
                            uint32_t first, uint32_t end) {
  const Segment* segments = args.segments + size_t{slot} * args.max_pages;
  ChunkPages pages;
  pages.begin = first / kPageTokens;
  pages.end = (end + kPageTokens - 1) / kPageTokens;
  uint32_t token = chunk * kChunkTokens + pages.begin * kPageTokens;
  uint32_t segment = SegmentOf(segments, args.num_segments[slot], token);
  for (uint32_t page = pages.begin; page < pages.end; ++page, token += kPageTokens) {
    while ((token - segments[segment].first_token) / kPageTokens >= segments[segment].num_pages) {
      ++segment;
    }
    const Segment& s = segments[segment];
    const size_t at = (token - s.first_token) / kPageTokens;
    pages.page[page] = args.kv_base + s.offset_bytes + args.part_offset + at * args.page_bytes;
  }
  return pages;
}

// Visible range [first, end) of a row within a chunk; end == first when it sees nothing.
struct Visible {
  uint32_t first;
  uint32_t end;
};
inline Visible VisibleIn(const AttentionArgs& args, const Row& row, uint32_t chunk) {
  const uint32_t begin = chunk * kChunkTokens;
  const uint32_t end = row.kv_index + 1;
  const uint32_t oldest = args.window != 0 && end > args.window ? end - args.window : 0;
  if (end <= begin || oldest >= begin + kChunkTokens) return {0, 0};
  const uint32_t live = end - begin < kChunkTokens ? end - begin : kChunkTokens;
  return {oldest > begin ? oldest - begin : 0, live};
}

// The places behind those that a row sees, up to args.width: read, and counted nowhere.
inline Visible BehindIn(const AttentionArgs& args, const Row& row, uint32_t chunk) {
  const uint32_t begin = chunk * kChunkTokens;
  const uint32_t live = row.kv_index + 1;
  const uint32_t first = live > begin ? live - begin : 0;
  if (args.width <= begin || first >= kChunkTokens) return {0, 0};
  const uint32_t end = args.width - begin < kChunkTokens ? args.width - begin : kChunkTokens;
  return first < end ? Visible{first, end} : Visible{0, 0};
}

// What the rows of a task see of one chunk, or what lies behind that.
struct ChunkView {
  uint32_t chunk;
  bool behind;
  Visible seen[kMaxTaskRows];
  uint32_t num_queries;  // that see any of it
  ChunkPages pages;      // of what they see together; none when num_queries is 0
};

// View `at`: chunk at / 2; the odd ones are of what lies behind.
inline ChunkView ViewChunk(const AttentionArgs& args, const AttentionTask& task, uint32_t at) {
  ChunkView view;
  view.chunk = at / 2;
  view.behind = at % 2 != 0;
  view.num_queries = 0;
  view.pages.begin = view.pages.end = 0;
  uint32_t least = kChunkTokens;
  uint32_t most = 0;
  for (uint32_t r = 0; r < task.num_rows; ++r) {
    const Row& row = args.rows[task.row_begin + r];
    view.seen[r] = view.behind ? BehindIn(args, row, view.chunk) : VisibleIn(args, row, view.chunk);
    if (view.seen[r].end == 0) continue;
    view.num_queries += args.num_heads / args.num_kv_heads;
    least = view.seen[r].first < least ? view.seen[r].first : least;
    most = view.seen[r].end > most ? view.seen[r].end : most;
  }
  if (most != 0) view.pages = FindPages(args, task.slot, view.chunk, least, most);
  return view;
}

}  // namespace kvrm::ops::KVRM_LANES_NS
