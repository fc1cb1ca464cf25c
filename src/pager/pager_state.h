// What the pager consists of, shared by its sources: verbs (pager.cc), where their pages come from
// (growth.cc), the transaction around them (transaction.cc), queries (queries.cc) and chores
// (maintain.cc).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "pager/journal.h"
#include "pager/page_pool.h"
#include "pager/page_tables.h"
#include "pager/pager.h"
#include "pager/prefix_index.h"
#include "pager/soft_runs.h"
#include "pager/written_marks.h"

namespace kvrm {

constexpr uint64_t PagesFor(uint64_t tokens, uint64_t page_tokens) {
  return (tokens + page_tokens - 1) / page_tokens;
}

// Superblocks of one group that stand ready for a single chunk of a prompt, at most: a host that
// bounds its chunks by nothing but the longest sequence would else have a whole one's ready.
inline constexpr uint64_t kMostSuperblocksAhead = 4;

struct Pager::State {
  enum class SlotUse : uint8_t { kFree, kOpen, kClosing };
  // A sequence's first pages that the prefix index knows, by whichever page: what IndexPrefix need
  // not look at again. `node` is the last one's, if it still has its generation.
  struct Entered {
    uint32_t pages = 0;
    PrefixNode node;
    uint32_t generation = 0;
    PrefixSalt salt;
  };
  struct Slot {
    SlotUse use = SlotUse::kFree;
    uint32_t seq_id = 0;
    uint32_t num_tokens = 0;      // token places that exist
    uint32_t written_tokens = 0;  // of these, existed at the last commit: their contents are
                                  // written by the time that this step's page copies run
    bool lossy = false;           // TrimPages made holes
    WrittenMarks marks;           // as of the last commit
    // What Alias or AdoptPrefix gave it in this step, as far as completed epochs have written it.
    // kNone32: nothing was given.
    uint32_t given_tokens = kNone32;
    Entered entered;
  };
  struct Group {
    PagePool pool;
    PageTables tables;
  };

  State(const PagerConfig& configuration, std::vector<Group> kv_groups);

  // ---- sequences. A SeqId is slot + slot_stride * (how often the slot was opened): finding one is
  // a shift, and an id comes back only after 2^32 / slot_stride further uses of its slot.
  uint32_t SlotOf(SeqId seq) const { return seq.value & (slot_stride - 1); }
  const Slot& Find(SeqId seq) const {
    const uint32_t slot = SlotOf(seq);
    KVRM_CHECK(
        slot < slots.size() && slots[slot].seq_id == seq.value && slots[slot].use != SlotUse::kFree,
        "a sequence is named that is not open");
    return slots[slot];
  }
  // Requires: an open step, an open sequence.
  Slot& FindForEdit(SeqId seq) {
    KVRM_CHECK(in_step, "an edit outside BeginStep .. Commit");
    KVRM_CHECK(Find(seq).use == SlotUse::kOpen, "an edit of a sequence that was closed");
    return slots[SlotOf(seq)];
  }

  // ---- room
  // The most token places that one sequence gains in a step.
  uint32_t step_tokens() const {
    return config.max_step_tokens == 0 ? config.max_seq_tokens : config.max_step_tokens;
  }
  // The most pages that a sequence of `num_tokens` holds in `group` while it grows step by step: a
  // window's, with the rows of two steps, because what slid out rests in limbo.
  uint64_t MostPages(uint32_t group, uint64_t num_tokens) const;
  // Pages that a Reserve may have without a new superblock: free ones, and those that are only
  // kept.
  uint64_t ReachablePages(uint32_t group) const {
    const PagePool& pool = groups[group].pool;
    return pool.free_pages() + pool.soft_pages() + pool.cached_pages();
  }
  uint64_t taken_bytes() const;
  uint64_t spendable_bytes() const { return config.kv_bytes - taken_bytes(); }
  // The most token places of one more sequence for which each group has pages, when group g has
  // free_pages[g] and all of them together may take `spendable` bytes of superblocks.
  uint64_t MostTokens(const uint64_t* free_pages, uint64_t spendable) const;

  // ---- edits; each writes its journal entries
  struct Growth {
    uint32_t pages = 0;         // new table entries
    bool copies_last = false;   // and the last one is shared, partial and about to be written
    uint32_t pages_in_all = 0;  // entries known to come, at least `pages`
    uint64_t to_take() const { return uint64_t{pages} + (copies_last ? 1 : 0); }
  };
  Growth GrowthOf(uint32_t group, uint32_t slot, uint32_t num_tokens, uint32_t hint_tokens) const;
  // Bytes of superblocks that `group` has to take for `pages` more.
  uint64_t BytesNeeded(uint32_t group, uint64_t pages) const;
  // Bytes that groups but `except` hold in spares or need for superblocks.
  static constexpr uint32_t kNoGroup = kMaxKvGroups;
  uint64_t ClaimedBytes(const uint64_t* needed_bytes, uint32_t except) const;
  // Pages that are missing for growth[g] of each group g, 0 when there is room.
  uint32_t MissingPages(const Growth* growth) const;
  void NoteDeferred(const Growth* growth);
  void Grow(uint32_t group, uint32_t slot, const Growth& growth, uint64_t kept);
  void CopyLastPage(uint32_t group, uint32_t slot, uint64_t kept);
  PageRun TakeRun(uint32_t group, uint32_t slot, const PagePool::Request& request);
  // Nothing that is free, or may be taken, fits: gives up what is only kept.
  void MakeRoom(uint32_t group, const PagePool::Request& request);
  void Evict(uint32_t group, PageId page);
  // Evicts `oldest` and the cached pages right below it, of at most `most` adjacent pages. Returns
  // how many.
  uint32_t EvictUpTo(uint32_t group, PageId oldest, uint32_t most);
  // The slot's soft pages, at most `pages`, if they follow its last page. count 0: it has none.
  PageRun UseSoftRun(uint32_t group, uint32_t slot, uint32_t pages);
  // Keeps the free pages that follow the slot's last one, if it has no soft run. count 0: none is.
  PageRun KeepSoftRun(uint32_t group, uint32_t slot);
  void StealSoftRun(uint32_t group);
  // At Commit: a soft run that its sequence has left behind becomes free.
  void SettleSoftRun(uint32_t group, uint32_t slot);
  void DropPages(uint32_t group, uint32_t slot, uint32_t keep_pages);
  // The first table entry that a row at token place `next_token` sees: 0 in a full group.
  uint32_t FirstNeeded(uint32_t group, uint32_t next_token) const;
  // Pages that leave the windows of `slot`, whose rows stand at `next_token` and after it.
  void Slide(uint32_t slot, uint32_t next_token);
  void Punch(uint32_t group, uint32_t slot, EditKind kind, uint32_t begin, uint32_t end);
  // Entries [first, end) of `source`'s table become those of the empty `target`, after holes.
  void Share(uint32_t group, uint32_t source, uint32_t target, uint32_t first, uint32_t end);
  void PushShared(uint32_t group, uint32_t target, PageRun run);
  void SetLength(uint32_t slot, uint32_t num_tokens, uint32_t written_tokens);

  // ---- transaction
  uint64_t step_epoch() const { return epoch + 1; }  // of the open step
  void Undo(const Edit& edit);
  bool IsNamedLater(const Edit& taking) const;
  bool UndoForSavepoint(Edit& edit, bool others_share);
  void Publish(const Edit& edit);
  void PublishKept(const Edit& edit);
  void PlanCopy(const Edit& edit);

  // ---- the prefix index, and what may enter it (prefix.cc)
  void MakePrefixIndex();
  uint32_t CompletedTokens(const Slot& slot) const;
  void PublishLength(const Edit& edit);
  void ForgetGiven(Slot& slot);  // Alias or AdoptPrefix is undone
  Entered ResumeEntering(const Slot& slot, const PrefixSalt& salt) const;
  PrefixNode Enter(uint32_t slot, const Entered& at, std::span<const TokenId> tokens,
                   uint32_t& num_named);
  // The pages that `found` needs become those of the empty `target`.
  void ShareNodes(uint32_t group, uint32_t target, const PrefixIndex::Found& found);
  void DescribePrefixes(uint32_t group, PagerSnapshot::Group& out) const;
  // A page leaves the cache. Returns what it takes to name the page again, should the step be
  // rolled back.
  uint32_t ForgetPage(uint32_t group, PageId page);
  void RecallPage(uint32_t group, PageId page, uint32_t memo);

  // ---- chores (maintain.cc); each returns whether it did something
  uint64_t populated_bytes() const;
  bool PopulateTaken();
  bool PopulateSpare();
  uint64_t PagesOfAStep(uint32_t group) const;
  bool MakeRoomForDeferred();
  bool Tidy();
  bool EvictOverKeep();
  bool ReleaseSoftRuns(uint32_t group);
  void EvictBetweenSteps(uint32_t group, uint64_t pages);

  PagerSnapshot Snapshot() const;
  // Validates everything at check tiers >= `tier`.
  void Check(int tier) const;

  const PagerConfig config;
  const uint32_t slot_stride;  // power of two >= max_slots
  uint64_t max_tokens = 0;

  std::vector<Group> groups;
  std::vector<SoftRuns> soft_runs;        // [groups]
  std::unique_ptr<PrefixIndex> prefixes;  // nullptr: off
  std::vector<Slot> slots;                // [max_slots]
  std::vector<uint16_t> free_slots;       // the next to be opened stands last

  bool in_step = false;
  uint64_t epoch = 0;  // of the last commit
  uint64_t completed_epoch = 0;
  // Pages that the first Reserve that was deferred since BeginStep wanted of each group; 0: none
  // was.
  std::array<uint64_t, kMaxKvGroups> deferred_pages = {};
  std::vector<Edit> journal;  // since BeginStep
  // What the last two commits published, by epoch parity.
  std::vector<Delta> deltas[2];
  std::vector<PageCopy> copies[2];
  PagerCounters counters;
};

}  // namespace kvrm
