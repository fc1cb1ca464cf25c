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
// Invariants PAGER-1..9: books.h.
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
#include "pager/books.h"

namespace kvrm {

// Pages of a soft run, its first one included: a decoding sequence that takes a page keeps the
// three that follow it for its own growth, until somebody needs them more.
inline constexpr uint32_t kSoftRunPages = 4;

struct PagerConfig {
  KvGeometry geometry;
  uint64_t kv_bytes = 0;        // hard bound over all groups, superblocks included
  uint32_t max_slots = 32;      // running sequences at once
  uint32_t max_seq_tokens = 0;  // longest sequence
  // Most token places that one sequence gains in one step; 0 = max_seq_tokens. What a sliding group
  // needs for one sequence is window_tokens plus this, however long the sequence is.
  uint32_t max_step_tokens = 0;
  bool prefix_index = true;            // false: IndexPrefix and MatchPrefix find nothing
  uint64_t kv_keep_bytes = 32u << 20;  // cached pages that stay when idle (Maintain)
  bool poison_freed = false;  // fill freed pages with NaN bytes (0xFF); tests, check tier >= 2
  // False: pages are taken one at a time, wherever one is free: no runs, no soft pages
  // (comparisons).
  bool placement = true;
  // True: superblocks get their memory from the first writes to them, not ahead of need, and
  // ReturnMemory gives it back (comparisons).
  bool lazy_memory = false;
  // Test hook: permutes the order in which free pages are chosen so that no sequence gets two
  // adjacent pages. 0 = off (placement on), else a seed.
  uint64_t scatter_seed = 0;
  // Test hook: bits of the prefix hash that count, so that collisions happen. 128 = all.
  uint32_t prefix_hash_bits = 128;
};

// What keeps prefixes apart that may not be shared: compared whole, never hashed away.
struct PrefixSalt {
  uint64_t tenant = 0;
  uint64_t model = 0;  // of (model file, weight encoding, KV format, numeric contract); a host of
                       // one of them, as the engine is, may leave it 0
  bool operator==(const PrefixSalt&) const = default;
};

enum class ReserveStatus : uint8_t {
  kOk,
  kDeferred,       // no room now; other sequences hold pages that will come back
  kUnserviceable,  // can never fit: more than kv_bytes or max_seq_tokens allows; or, of Alias and
                   // AdoptPrefix, the places asked for have slid out or are not in the index
};
struct Reservation {
  ReserveStatus status = ReserveStatus::kOk;
  uint32_t missing_pages = 0;  // when deferred
};

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
  // In sliding groups it also slides: rows of this step stand at the old length and after it, so
  // pages that hold only places before (old length - window + 1) leave. A page that is shared or
  // indexed and about to be written is copied first (page_copies).
  // On kDeferred and kUnserviceable nothing changes.
  Reservation Reserve(SeqId seq, uint32_t num_tokens, uint32_t hint_tokens = 0);

  // The most places, at most `at_most` and at least its length, that Reserve could give `seq` now.
  uint32_t ReachableTokens(SeqId seq, uint32_t at_most) const;

  // Makes the first `num_tokens` places of `dst` (empty) refer to the pages of `src`. Full pages
  // are shared; a partial last page is shared too and copied by the first write to it (Reserve past
  // num_tokens), a copy that stands in page_copies(). Requires: num_tokens <= length of src, now
  // and at the last commit: what this step writes cannot be shared in it.
  Reservation Alias(SeqId dst, SeqId src, uint32_t num_tokens);

  // Drops token places from `from_token` on; pages that hold none any more go to limbo. Requires:
  // CanTrim, which is: in each sliding group the window of the place `from_token` is still held,
  // true for every from_token >= the length before the last Reserve (tokens that were proposed and
  // rejected); and the page that becomes the last was not trimmed cold. 0 is always allowed.
  void Trim(SeqId seq, uint32_t from_token);
  bool CanTrim(SeqId seq, uint32_t from_token) const;

  // Cold pages that a policy names: the whole pages of token places [begin_token, end_token) of
  // `group` become holes. Only in full groups (sliding ones slide by themselves); the last page
  // never goes. Lossy: the sequence says so in its frame (kSlotLossyView), is never indexed again,
  // and Alias of it is kUnserviceable.
  void TrimPages(SeqId seq, uint32_t group, uint32_t begin_token, uint32_t end_token);

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

  // ---- prefix index: full pages whose contents are written, by the tokens that they hold
  // Enters the full pages of the first `tokens` of `seq` that completed epochs have written and
  // that are not entered yet. `tokens` are those of its places from 0 on. Work: the new pages.
  // Between steps (after StepDone), not part of a transaction. Returns pages entered.
  uint32_t IndexPrefix(SeqId seq, PrefixSalt salt, std::span<const TokenId> tokens);
  // The most token places of a prompt `tokens` that AdoptPrefix could give a sequence now: whole
  // pages, then the longest common prefix with one more page. Changes nothing but counters.
  uint32_t MatchPrefix(PrefixSalt salt, std::span<const TokenId> tokens);
  // Part of the step. Makes the first `num_tokens` places of `dst` (empty) refer to indexed pages
  // that hold tokens[0, num_tokens). Requires: num_tokens <= MatchPrefix now; else kUnserviceable.
  // Places of the last page past num_tokens are another's: the first Reserve past it copies that
  // page. A prompt that is adopted whole computes its last row with kRowNoWrite, and reserves
  // nothing.
  Reservation AdoptPrefix(SeqId dst, PrefixSalt salt, std::span<const TokenId> tokens,
                          uint32_t num_tokens);
  // Forgets every page of the index (cached pages become free). Between steps.
  void ClearPrefixIndex();

  // ---- chores: all system calls that the pager makes after Create. Between steps, which is from
  // Commit (the executor may not have run yet) to BeginStep; one bounded piece a call, true when
  // something was done.
  // kTaken: populates a superblock that the last step had to take cold, without memory; for a host
  // whose executor shall not meet page faults, after Commit until it says false.
  // kBusy: that, too; populates up to 2 MiB of a superblock ahead of need; where a Reserve was
  // deferred because another group holds the bytes, gives back one of that group's empty
  // superblocks, or evicts up to kEvictPages of its cached pages. kIdle (the host decides when it
  // is idle): evicts cached pages over kv_keep_bytes, releases soft runs, then gives empty
  // superblocks back one by one, never the null page's.
  enum class Load : uint8_t { kTaken, kBusy, kIdle };
  static constexpr uint32_t kEvictPages = 64;
  bool Maintain(Load load = Load::kBusy);
  // The contents of `seq`'s pages are not wanted any more, though it keeps the pages: their memory
  // goes back to the system, and they read as zeros until they are written. No edit, so no rollback
  // brings them back. Requires: no other sequence and no index entry names them.
  void ReturnMemory(SeqId seq);

  // ---- queries (of the edited, not yet committed state)
  uint32_t num_tokens(SeqId seq) const;
  SlotId slot(SeqId seq) const;
  // Table entries from first_page() on, holes as the null page; valid until the next edit.
  std::span<const PageId> pages(SeqId seq, uint32_t group) const;
  uint32_t first_page(SeqId seq, uint32_t group) const;  // index of the first entry that is held
  bool lossy(SeqId seq) const;                           // TrimPages made holes
  // Places whose contents completed epochs have written.
  uint32_t completed_tokens(SeqId seq) const;
  std::byte* base(uint32_t group) const;
  uint64_t range_bytes(uint32_t group) const;
  uint64_t spare_bytes(uint32_t group) const;  // of superblocks ahead of need, not taken
  uint64_t cold_bytes() const;  // of superblocks, taken or spare, what has no memory yet
  // A Reserve was deferred in the last step, or the next step, were it to take as many pages as the
  // last, would take a superblock cold: Maintain should be called for as long as it does something.
  bool RunsShort() const;
  // Pages that Reserve could still hand out now in the tightest group (free, soft of others and
  // cached ones, superblocks not taken yet), limbo counted as free next step when `with_limbo`.
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
