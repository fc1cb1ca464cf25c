// The pager: which page of the KV pool holds which token of which sequence, and nothing else.
//
// Four verbs: Reserve, Alias, Trim and (with Commit) Frame. It knows bytes, pages and tokens; no
// heads, no layers, no kernels, no threads. It is the base of libkvrm and links with `base` alone.
//
// Thread class: engine-thread-only. Ownership: it owns the virtual ranges that pages live in (one
// per KV group; addresses never change) and all page tables. Errors: bugs are KVRM_CHECK; room is a
// value (Reservation); configuration is a Result.
//
// One step is one transaction:
//     BeginStep -> Open/Close/Reserve/Alias/Trim ... -> Commit(epoch) or RollbackStep
//               -> (the executor runs) -> StepDone(epoch)
// Edits of a step become visible together, in the deltas that Commit returns, or not at all. A
// failed Reserve changes nothing and defers that sequence only. Committing an epoch twice returns
// the same deltas and changes nothing.
//
// Invariants, checked by Validate(Snapshot()) (ids recur in code and tests):
//   PAGER-1  free + cached + in use + soft + limbo + in flight = total pages, per group (law I6).
//   PAGER-2  a page's reference count = number of page table entries that name it (+ index, pins).
//   PAGER-3  the null page is never handed out, written, or given back.
//   PAGER-4  a page is free in exactly one superblock's map bit, or referenced, or in limbo.
//   PAGER-5  sum of superblock bytes taken <= kv_bytes.
//   PAGER-6  a sequence's table covers exactly ceil(num_tokens / page_tokens) pages (plus soft).
//   PAGER-7  each superblock sits in the bin of (longest free run, pages in use) of its map.
//
// Cost: Reserve, Trim and Alias do work proportional to the pages that change, with O(1) choice of
// superblock (one 64-bit map each, bins by longest free run); Commit is proportional to the deltas.
// No scan grows with pool, sequences or context.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/kv_view.h"
#include "base/result.h"
#include "base/superblock.h"

namespace kvrm {

struct PagerConfig {
  KvGeometry geometry;
  uint64_t kv_bytes = 0;        // hard bound over all groups, superblocks included
  uint32_t max_slots = 32;      // running sequences at once
  uint32_t max_seq_tokens = 0;  // longest sequence
  bool poison_freed = false;    // fill freed pages with NaN bytes (0xFF); tests, check tier >= 2
  // Test hook: permutes the order in which free pages are chosen so that no sequence gets two
  // adjacent pages. 0 = off (placement on), else a seed.
  uint64_t scatter_seed = 0;
};

enum class ReserveStatus : uint8_t {
  kOk,
  kDeferred,       // no room now; other sequences hold pages that will come back
  kUnserviceable,  // can never fit: more than kv_bytes or max_seq_tokens allows
};
struct Reservation {
  ReserveStatus status = ReserveStatus::kOk;
  uint32_t missing_pages = 0;  // when deferred
};

// Counts of one KV group, in pages. Their sum is `total` (law I6).
struct PagerBooks {
  uint64_t total = 0;  // pages of all superblocks taken, null page included in in_use
  uint64_t free = 0;
  uint64_t cached = 0;  // unreferenced, kept by the prefix index (0 until it is built)
  uint64_t in_use = 0;
  uint64_t soft = 0;  // soft runs (0 until they are built)
  uint64_t limbo = 0;
  uint64_t in_flight = 0;  // being copied (0 until tiers are built)
  uint64_t superblocks = 0;
  uint64_t reserved_bytes = 0;    // (in_use + soft + cached + limbo) * page bytes
  uint64_t superblock_bytes = 0;  // bytes taken from the system
  bool operator==(const PagerBooks&) const = default;
};

struct PagerCounters {
  uint64_t reserves = 0, deferred = 0, unserviceable = 0, trims = 0, aliases = 0;
  uint64_t commits = 0, rollbacks = 0, savepoint_rollbacks = 0;
  uint64_t pages_taken = 0, pages_returned = 0;  // from and to the free maps
  uint64_t copy_on_write = 0;
  uint64_t superblocks_populated_in_verbs = 0;  // Reserve found no spare and had to make its own
  uint64_t read_runs = 0;                       // segments of all open sequences now
};

// A full copy of the pager's state for tests and dumps; plain data, compared by ==.
struct PagerSnapshot {
  struct Superblock {
    uint64_t free_map;  // bit i set = page i of the superblock is free
    uint32_t longest_free_run;
    uint32_t pages_in_use;
    bool operator==(const Superblock&) const = default;
  };
  struct Sequence {
    uint32_t seq_id;
    uint16_t slot;
    uint32_t num_tokens;
    std::vector<uint32_t> pages;  // PageId values in token order
    bool operator==(const Sequence&) const = default;
  };
  struct LimboPage {
    uint32_t page;
    uint64_t epoch;
    bool operator==(const LimboPage&) const = default;
  };
  struct Group {
    uint32_t pages_per_superblock;
    uint32_t page_tokens;
    std::vector<Superblock> superblocks;
    std::vector<uint32_t> reference_counts;  // [pages]
    std::vector<LimboPage> limbo;
    std::vector<Sequence> sequences;
    PagerBooks books;
    bool operator==(const Group&) const;
  };
  std::vector<Group> groups;
  uint64_t kv_bytes = 0;
  uint64_t epoch = 0;
  uint64_t completed_epoch = 0;
  bool operator==(const PagerSnapshot&) const = default;
};
// Returns every violation of PAGER-1..7, one line each, law id first. Empty = sound. Pure.
std::vector<std::string> Validate(const PagerSnapshot& snapshot);

class Pager {
 public:
  // Reserves virtual ranges; takes no superblock but the null page's. Errors: geometry out of
  // range, kv_bytes below one superblock per group, the system refusing the range.
  static Result<std::unique_ptr<Pager>> Create(const PagerConfig& config);
  ~Pager();
  Pager(const Pager&) = delete;
  Pager& operator=(const Pager&) = delete;

  // ---- one step
  void BeginStep();
  // Opens an empty sequence in a free slot; nullopt when all slots run. Part of the step.
  std::optional<SeqId> Open();
  // Ends a sequence: Trim to 0 and free the slot (at Commit). The one place a sequence ends.
  void Close(SeqId seq);

  // Makes token places [0, num_tokens) of `seq` exist in every group, adding pages as needed, and
  // sets its length to max(length, num_tokens). `hint_tokens` >= num_tokens: the length that is
  // known to come (a prompt); placement tries one run for all of it, takes only what is reserved.
  // On kDeferred and kUnserviceable nothing changes.
  Reservation Reserve(SeqId seq, uint32_t num_tokens, uint32_t hint_tokens = 0);

  // Makes the first `num_tokens` places of `dst` (empty) refer to the pages of `src`. Full pages
  // are shared; a partial last page is shared too and copied by the first write to it (Reserve past
  // num_tokens), a copy that stands in page_copies(). Requires: num_tokens <= length of src, now
  // and at the last commit: what this step writes cannot be shared in it.
  Reservation Alias(SeqId dst, SeqId src, uint32_t num_tokens);

  // Drops token places from `from_token` on; pages that hold none any more go to limbo.
  void Trim(SeqId seq, uint32_t from_token);

  // Undoes every edit of `seq` since Mark in this step. Savepoints do not nest across sequences.
  struct Savepoint {
    SeqId seq;
    uint32_t journal_size;
  };
  Savepoint Mark(SeqId seq) const;
  void Rollback(const Savepoint& savepoint);

  // Publishes the step: the edits since BeginStep as deltas in order, valid until the next but one
  // Commit. `epoch` is the last epoch + 1, or the last one again (a no-op that returns the same).
  std::span<const Delta> Commit(uint64_t epoch);
  // Undoes every edit since BeginStep.
  void RollbackStep();
  // The executor has finished `epoch`: limbo pages of epochs <= it become free.
  void StepDone(uint64_t completed_epoch);

  // Byte copies that this step needs before it runs (copy-on-write): whole pages of one group.
  struct PageCopy {
    uint8_t kv_group;
    PageId source;
    PageId destination;
  };
  std::span<const PageCopy> page_copies() const;

  // ---- chores, off the step path. Populates one superblock ahead of need; bounded.
  // Returns true when something was done.
  bool Maintain();

  // ---- queries (of the edited, not yet committed state)
  uint32_t num_tokens(SeqId seq) const;
  SlotId slot(SeqId seq) const;
  std::span<const PageId> pages(SeqId seq, uint32_t group) const;  // until the next edit
  std::byte* base(uint32_t group) const;
  uint64_t range_bytes(uint32_t group) const;
  // Pages that Reserve could still hand out now in the tightest group, limbo counted as free next
  // step when `with_limbo`.
  uint64_t available_pages(bool with_limbo) const;
  uint64_t available_tokens(bool with_limbo) const;
  uint64_t max_tokens() const;  // token places that kv_bytes allows in all
  const KvGeometry& geometry() const;
  PagerBooks books(uint32_t group) const;
  const PagerCounters& counters() const;
  PagerSnapshot Snapshot() const;

 private:
  struct State;
  explicit Pager(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kvrm
