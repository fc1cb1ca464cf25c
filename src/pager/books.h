// What the pager says of itself: counts, counters, and a full snapshot with the validator that
// knows the laws. Plain data; pure; thread-safe.
//
// Invariants, checked by Validate(Snapshot()) (ids recur in code and tests):
//   PAGER-1  free + cached + in use + soft + limbo + in flight = total pages, per group (law I6).
//   PAGER-2  a page's reference count = number of page table entries that name it (+ pins).
//   PAGER-3  the null page is never handed out, written, or given back.
//   PAGER-4  a page of a taken superblock is in exactly one state: free (its map bit), soft (in one
//            slot's soft run), referenced, in limbo, or cached; a page of any other superblock in
//            none.
//   PAGER-5  superblock bytes populated, taken and spare, of all groups <= kv_bytes.
//   PAGER-6  a sequence's table ends at page ceil(num_tokens / page_tokens), never with a hole.
//            In a full group it begins at 0; in a sliding group at or before the page of the first
//            place that the next row sees. Other holes stand only where TrimPages made them.
//   PAGER-7  each taken superblock sits in the bin of (longest free run, pages in use) of its map.
//   PAGER-8  a soft run lies within one superblock and is at most kSoftRunPages - 1 long; outside a
//            step it follows its sequence's last page, and none belongs to a slot that is free.
//   PAGER-9  a cached page is indexed. Each indexed page has contents, stands in one node of the
//            prefix index, and the node names it. (That an indexed page is complete, because the
//            epochs that wrote it are done, no snapshot shows: WrittenMarks tells it before a page
//            enters, and the shadow store of tests/heart reads every page that is adopted.)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvrm {

// Counts of one KV group, in pages. Their sum is `total` (law I6).
struct PagerBooks {
  uint64_t total = 0;  // pages of all superblocks taken, null page included in in_use
  uint64_t free = 0;
  uint64_t cached = 0;  // unreferenced, kept by the prefix index
  uint64_t in_use = 0;
  uint64_t soft = 0;  // set aside for the growth of a decoding sequence; others may steal them
  uint64_t limbo = 0;
  uint64_t in_flight = 0;         // being copied (0 until tiers are built)
  uint64_t superblocks = 0;       // taken
  uint64_t reserved_bytes = 0;    // (in_use + soft + cached + limbo) * page bytes
  uint64_t superblock_bytes = 0;  // bytes taken from the system
  bool operator==(const PagerBooks&) const = default;
};

struct PagerCounters {
  uint64_t reserves = 0, deferred = 0, unserviceable = 0, trims = 0, aliases = 0;
  uint64_t commits = 0, rollbacks = 0, savepoint_rollbacks = 0;
  uint64_t pages_taken = 0, pages_returned = 0;  // from and to the free maps
  uint64_t copy_on_write = 0;
  uint64_t soft_taken = 0, soft_used = 0, soft_stolen = 0;  // pages of soft runs, and what became
  uint64_t slid_pages = 0, cold_pages = 0;                  // left by window, left by TrimPages
  uint64_t superblocks_populated = 0, superblocks_given_back = 0;
  uint64_t prefix_lookups = 0, prefix_hit_tokens = 0, prefix_miss_tokens = 0;
  uint64_t prefix_pages_indexed = 0, prefix_pages_evicted = 0, prefix_collisions = 0;
  uint64_t superblocks_taken_cold = 0;  // Reserve found no spare: the memory came after the verb
  uint64_t read_runs = 0;               // segments of all open sequences now
};

// A full copy of the pager's state for tests and dumps; plain data, compared by ==.
struct PagerSnapshot {
  struct Superblock {
    bool taken = false;             // false: absent or spare; all else is 0 then
    uint64_t free_map = 0;          // bit i set = page i of the superblock is free
    uint32_t longest_free_run = 0;  // the bin that it sits in
    uint32_t pages_in_use = 0;      // neither free; soft pages count as in use
    bool operator==(const Superblock&) const = default;
  };
  struct Sequence {
    uint32_t seq_id;
    uint16_t slot;
    uint32_t num_tokens;
    bool lossy = false;                      // TrimPages made holes
    uint32_t first_page = 0;                 // index of the first table entry that is held
    std::vector<uint32_t> pages;             // PageId values from first_page on; 0 = a hole
    uint32_t soft_page = 0, soft_pages = 0;  // its soft run
    bool operator==(const Sequence&) const = default;
  };
  struct LimboPage {
    uint32_t page;
    uint64_t epoch;
    bool operator==(const LimboPage&) const = default;
  };
  // A page that the prefix index names, and the tokens that it says the page holds.
  struct IndexedPage {
    uint32_t page;
    uint32_t node;       // the index's node
    uint32_t node_page;  // the page that this node names in this group
    bool operator==(const IndexedPage&) const = default;
  };
  struct Group {
    uint32_t pages_per_superblock = 0;
    uint32_t page_tokens = 0;
    uint32_t window_tokens = 0;  // 0 = full group
    std::vector<Superblock> superblocks;
    std::vector<uint32_t> reference_counts;  // [pages]
    std::vector<LimboPage> limbo;            // ascending page
    std::vector<uint32_t> cached;            // ascending page
    std::vector<IndexedPage> indexed;        // ascending page
    std::vector<Sequence> sequences;
    PagerBooks books;
    bool operator==(const Group&) const;
  };
  std::vector<Group> groups;
  uint64_t kv_bytes = 0;
  uint64_t epoch = 0;
  uint64_t completed_epoch = 0;
  uint64_t populated_bytes = 0;  // not compared: a superblock that was taken and untaken is a spare
  bool in_step = false;          // not compared: a step whose edits were all undone equals none
  bool operator==(const PagerSnapshot& other) const {
    return groups == other.groups && kv_bytes == other.kv_bytes && epoch == other.epoch &&
           completed_epoch == other.completed_epoch;
  }
};
// Returns every violation of PAGER-1..9, one line each, law id first. Empty = sound. Pure.
std::vector<std::string> Validate(const PagerSnapshot& snapshot);

}  // namespace kvrm
