// Plain data that pager, frame, transport, graph and kernels share about the KV cache: geometry,
// segments, deltas, rows. No behaviour beyond arithmetic on these fields. All of it is little
// endian and fixed width, because frames are copied to devices and written to traces.
//
// Words (docs/glossary.md): a *page* holds `page_tokens` token places of all layers of one KV
// group; a *superblock* of S bytes holds P pages, laid out part by part, so that neighbouring
// pages are neighbours within a layer; a *segment* is a maximal run of adjacent pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "base/ids.h"

namespace kvrm {

inline constexpr uint32_t kMaxKvGroups = 4;
inline constexpr uint32_t kNone32 = 0xFFFF'FFFFu;

// Frozen enumerators: they stand in frames and traces.
enum class KvGroupKind : uint8_t { kFull = 0, kSliding = 1, kSummary = 2, kState = 3 };
enum class KvFormat : uint8_t { kF32 = 0, kF16 = 1, kInt8 = 2 };

// One KV group, as data. Pager, frame and transport know no head count.
struct KvGroupGeometry {
  KvGroupKind kind = KvGroupKind::kFull;
  KvFormat format = KvFormat::kF16;
  uint32_t page_tokens = 16;          // token places of a page; a power of two, 8..128
  uint32_t num_parts = 0;             // parts of a page: layers of the group, K and V together
  uint64_t part_page_bytes = 0;       // b: bytes of one page in one part
  uint32_t pages_per_superblock = 0;  // P, 1..64
  uint64_t superblock_bytes = 0;      // S, >= num_parts * P * b
  uint32_t window_tokens = 0;         // kSliding: tokens visible, the current one included; else 0

  uint64_t page_bytes() const { return num_parts * part_page_bytes; }
  uint64_t part_stride_bytes() const { return pages_per_superblock * part_page_bytes; }
  // Most pages that a sequence of `num_tokens` holds at once when no step adds more than
  // `step_tokens`: a sliding group keeps a window, what a step writes, and what the one before
  // wrote and has not left yet.
  uint64_t MostPages(uint64_t num_tokens, uint64_t step_tokens) const {
    const uint64_t whole = (num_tokens + page_tokens - 1) / page_tokens;
    if (kind == KvGroupKind::kFull) return whole;
    const uint64_t held = (window_tokens + 2 * step_tokens) / page_tokens + 2;
    return whole < held ? whole : held;
  }
  // Byte offset of part 0 of `page` from the group's base address. Part p lies part_stride_bytes()
  // * p further on; the next page of the same superblock part_page_bytes further on.
  uint64_t PageOffset(PageId page) const {
    return uint64_t{page.value / pages_per_superblock} * superblock_bytes +
           uint64_t{page.value % pages_per_superblock} * part_page_bytes;
  }
};

struct KvGeometry {
  std::vector<KvGroupGeometry> groups;  // 1..kMaxKvGroups
  std::vector<uint8_t> layer_group;     // [num_layers] KV group of each layer
  std::vector<uint16_t> layer_part;     // [num_layers] part within that group
  uint64_t bytes_per_token() const {
    uint64_t sum = 0;
    for (const auto& g : groups) sum += g.page_bytes() / g.page_tokens;
    return sum;
  }
};

// A maximal run of adjacent pages of one sequence, read in place (a read run).
struct Segment {
  uint64_t offset_bytes;  // PageOffset() of its first page, from the group's base
  uint32_t first_token;   // KV index of its first token place; a multiple of page_tokens
  uint32_t num_pages;
  uint32_t first_page;     // PageId value
  int32_t position_shift;  // applied to the query, 0 in a dense view
  float score_bias;        // added to every score, 0 in a dense view (log n of a summary)
  uint8_t kv_group;
  uint8_t reserved0;
  uint16_t head_begin;  // KV heads [begin, end) that see it; 0, 0xFFFF = all
  uint16_t head_end;
  uint16_t layer_begin;  // layers [begin, end) that see it; 0, 0xFFFF = all
  uint16_t layer_end;
  uint16_t reserved1;
  uint64_t row_mask;  // token places of each page that are visible; all ones when dense
};
static_assert(sizeof(Segment) == 48 && std::is_trivially_copyable_v<Segment>);
static_assert(offsetof(Segment, first_token) == 8 && offsetof(Segment, first_page) == 16);
static_assert(offsetof(Segment, score_bias) == 24 && offsetof(Segment, kv_group) == 28);
static_assert(offsetof(Segment, head_begin) == 30 && offsetof(Segment, row_mask) == 40);

// One edit of a sequence's page table, as it travels in a frame. Applied in order.
enum class DeltaKind : uint8_t {
  kAppend = 0,    // `count` adjacent pages from `page` on become table entries from `index` on
  kExtend = 1,    // the same, and they continue the last segment (page == its last page + 1)
  kReplace = 2,   // table entry `index` becomes `page` (copy-on-write); count == 1
  kTruncate = 3,  // the table keeps its first `index` entries
  kHole = 4,      // `count` entries from `index` on become the null page: slid out, or trimmed cold
};
struct Delta {
  uint16_t slot;
  uint8_t kv_group;
  DeltaKind kind;
  uint32_t index;              // page index within the sequence's table
  uint32_t page;               // PageId value; 0 for kTruncate and kHole
  uint32_t count;              // adjacent pages
  uint32_t first_token_place;  // index * page_tokens; redundant on purpose, the validator checks it
  uint32_t reserved;
};
static_assert(sizeof(Delta) == 24 && std::is_trivially_copyable_v<Delta>);

// One token to be computed in this step.
enum class TokenSource : uint8_t { kImmediate = 0, kSampleSlot = 1 };
enum RowFlags : uint8_t {
  kRowWantLogits = 1,
  kRowNoWrite = 2,  // its K and V are in the cache already: reads only (fully cached prompt)
  kRowWantLse = 4,  // log-sum-exp and the logit of lse_target are wanted instead of logits
};
struct Row {
  int32_t token;  // kImmediate: the token id; kSampleSlot: slot of the previous epoch
  uint16_t slot;
  TokenSource token_src;
  uint8_t flags;        // RowFlags
  uint32_t position;    // for RoPE
  uint32_t kv_index;    // token place written, and the last one seen; apart from position
  uint32_t mask_id;     // constraint mask of the sampler, kNone32 = none
  int32_t lse_target;   // token whose logit is wanted, -1 = none
  uint32_t logits_idx;  // row of the logits buffer, kNone32 = none
  uint32_t reserved;
};
static_assert(sizeof(Row) == 32 && std::is_trivially_copyable_v<Row>);
static_assert(offsetof(Row, position) == 8 && offsetof(Row, logits_idx) == 24);

}  // namespace kvrm
