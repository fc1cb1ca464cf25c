// The pages of one KV group: which superblocks are taken, which of their pages are free, how many
// page table entries name each page, which pages rest in limbo and which are cached. Knows no
// sequence and no tokens.
//
// A page is in one of six states, and these are all the ways between them:
//
//     absent --TakeSuperblock--> free --TakeRun--> in use --DropReference--> limbo
//     limbo --DrainLimbo, its epoch has completed--> cached if it is indexed, else free
//     limbo, cached --AddReference--> in use
//     cached --EvictCached, SetIndexed(false)--> free
//     free --TakeSoft--> soft --UseSoft--> in use
//     soft --ReleaseSoft--> free
//
// and back again while the step that did it is open: Untake, UndoReference, Unlimbo, UndoEvict,
// ReturnSoft, UndoReleaseSoft, UntakeSuperblock. There is one place where a reference count falls
// (Drop), one where a page comes to rest (Rest) and one where it becomes free (Free).
//
// A page is *indexed* when the prefix index names it. Its contents are then for others to read, so
// nobody writes it in place (HasOneOwner), and it outlives its last reference in the cache.
//
// Thread class: engine-thread-only. Ownership: the virtual range. Never allocates after
// construction; every choice is O(1), every edit proportional to the pages that it names.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/kv_view.h"
#include "pager/index_list.h"
#include "pager/page_tables.h"
#include "pager/pager.h"
#include "pager/superblock_bins.h"
#include "pager/virtual_range.h"

namespace kvrm {

class PagePool {
 public:
  struct Options {
    bool poison_freed = false;
    uint64_t scatter_seed = 0;  // 0 = placement on
    bool lazy_memory = false;   // the first writes bring a superblock's memory
  };
  // Takes superblock 0 and, in it, the null page. Requires: `range` holds whole superblocks.
  PagePool(const KvGroupGeometry& geometry, VirtualRange range, const Options& options);

  void BeginStep() {
    ++step_;
    taken_before_step_ = pages_taken_;
    in_rollback_ = false;
  }
  // From here to the next BeginStep every edit of the step is undone, the last one first: pages go
  // back to where they were before it.
  void BeginRollback() { in_rollback_ = true; }
  // Everything is undone. Pages that still rest for the sake of the step, `step_epoch`, because a
  // savepoint had let them go, go back to where it found them.
  void EndRollback(uint64_t step_epoch);

  // What a caller of TakeRun asks for.
  struct Request {
    std::optional<PageId> after;   // last page of the table that grows: its successor is best
    uint32_t count = 1;            // pages wanted now, at least 1
    uint32_t run_count = 1;        // pages known to come in all, at least `count`
    uint64_t spendable_bytes = 0;  // of new superblocks
    // More pages than run_count may follow (a soft run): superblocks that are taken are searched
    // for so long a run first.
    uint32_t likely_count = 0;
    bool allows_pieces = true;  // false: nothing at all rather than less than what fits
  };
  struct Taken {
    PageRun run;  // 1..count pages, each with one reference; 0: nothing fits
    std::optional<SuperblockId> new_superblock;  // it came from one that was taken for it
  };
  // Order of choice: extend in place; same superblock; the best-fitting run in the fullest
  // superblock; a new superblock; the longest run that is left.
  // Requires, if it allows pieces: a free page, or spendable bytes for a superblock.
  Taken TakeRun(const Request& request);
  // True when the free pages of taken superblocks hold what `request` wants in one run.
  bool Fits(const Request& request) const;
  // Undoes TakeRun: the pages lose their one reference and are free at once, because no published
  // frame ever named them.
  void Untake(PageRun run);
  // Undoes the taking of a superblock: it stands ready as a spare. Requires: IsEmpty(id).
  void UntakeSuperblock(SuperblockId id);
  // True when it is taken and all its pages are free.
  bool IsEmpty(SuperblockId id) const {
    return is_taken_[id.value] != 0 && bin_keys_[id.value].pages_in_use == 0;
  }

  // One more table entry names each page. Pages in limbo or in the cache leave it: their contents
  // are wanted again, or their drop is being undone.
  void AddReference(PageRun run);
  // One table entry less, the last page first; pages that none names rest in limbo until `epoch`,
  // the open step's, has completed.
  void DropReference(PageRun run, uint64_t epoch);
  // Undoes AddReference. A page that none names any more returns to where AddReference found it;
  // but when somebody else dropped it in this step, and may take it up again, it rests in limbo.
  void UndoReference(PageRun run, uint64_t epoch);
  // Fresh pages of the open step that went to limbo become free at once: their taking is undone.
  void Unlimbo(PageRun run);
  // Limbo pages of epochs <= `completed_epoch` become cached or free.
  void DrainLimbo(uint64_t completed_epoch);

  // ---- the cache: pages that nobody names, kept because they are indexed; the oldest goes first
  // The prefix index names `page`, or no more: then it becomes free if it is cached. Requires: it
  // is not free; true only of a page in use, whose contents completed epochs have written.
  void SetIndexed(PageId page, bool indexed);
  bool indexed(PageId page) const { return pages_[page.value].indexed; }
  uint64_t cached_pages() const { return cached_.size(); }
  // Requires: cached_pages() > 0.
  PageId OldestCached() const { return PageId{cached_.first()}; }
  // What would be a run if cached pages of it went: `page`, which is cached, the free and cached
  // pages right below it, and the free ones right above. At most `most` in all. Not the cached ones
  // above: the oldest page is the end of a prompt, so those belong to another one, and are its
  // beginning, without which the rest of it could not be found.
  PageRun ReclaimableRun(PageId page, uint32_t most) const;
  bool IsCached(PageId page) const { return pages_[page.value].rests == Rests::kCache; }
  // The page is no longer indexed, and free. Its bytes stay until somebody writes to it.
  void EvictCached(PageId page);
  // Undoes EvictCached: the page is indexed and cached again, and the oldest, whatever it was
  // before. Requires: it is free.
  void UndoEvict(PageId page);
  // With poison_freed, fills a page that became free and that no undo brings back. Pages that leave
  // limbo are filled as they do, those that were evicted in a step only once it is committed.
  void PoisonFreed(PageId page);

  // ---- soft pages: free, but kept for one sequence's growth. They count as in use in the free
  // map. Keeps up to `most` of the free pages that follow `last` in its superblock. Count 0: none
  // does.
  PageRun TakeSoft(PageId last, uint32_t most);
  // Soft pages become pages with one reference, and back.
  void UseSoft(PageRun run);
  void ReturnSoft(PageRun run);
  // Soft pages become free at once, because nobody ever wrote to them; and back.
  void ReleaseSoft(PageRun run);
  void UndoReleaseSoft(PageRun run);
  uint64_t soft_pages() const { return soft_pages_; }

  // ---- memory: system calls, never made by the edits above. A superblock is absent (no memory),
  // spare (populated, not taken) or taken. Any of them may be taken next, and given back when it is
  // empty: addresses of the others do not change. One that was taken when no spare stood ready is
  // cold until PopulateCold: the first write to each of its OS pages brings that page's memory.
  // A superblock that TakeRun will need next becomes a spare, with the first kPopulatedAtOnce of
  // its memory; the rest is left to PopulateMoreOfSpare, or to PopulateCold when it is taken first.
  // Requires: one is absent.
  static constexpr uint64_t kPopulatedAtOnce = uint64_t{2} << 20;  // a huge page
  void PopulateSpare();
  // The next kPopulatedAtOnce bytes of a spare. False: all spares have their memory.
  bool PopulateMoreOfSpare();
  // Populates one cold superblock, whatever is written in it by now. False: none is cold.
  bool PopulateCold();
  // The next step, were it to take as many pages as the last, would take a superblock that has not
  // all of its memory.
  bool RunsShort() const;
  // Returns the memory of pages that stay what they are: they read as zeros until written.
  void ReturnMemory(PageRun run);
  // Returns the memory of one spare, or of one empty superblock, to the system. Never superblock
  // 0's, which holds the null page. False: there is none.
  bool GiveBackSpare();
  bool GiveBackEmpty();
  // True when few pages are left, spares included, and the range has room for another. Few: half a
  // superblock, or less than the `pages` that one step may take.
  bool NeedsSpare(uint64_t pages) const;

  const KvGroupGeometry& geometry() const { return geometry_; }
  std::byte* base() const { return range_.base(); }
  uint64_t range_bytes() const { return range_.bytes(); }
  uint32_t references(PageId page) const { return pages_[page.value].references; }
  // True when the one sequence that names `page` may write to it. A reference that was dropped in
  // the open step still counts: its owner may roll back to a savepoint and see the page again. An
  // indexed page has readers to come.
  bool HasOneOwner(PageId page) const {
    const Page& entry = pages_[page.value];
    return entry.references == 1 && entry.dropped_in_step != step_ && !entry.indexed;
  }
  uint64_t free_pages() const { return free_pages_; }
  uint64_t limbo_pages() const { return limbo_.size(); }
  uint64_t taken_bytes() const { return num_taken_ * geometry_.superblock_bytes; }
  uint64_t spare_bytes() const { return spares_.size() * geometry_.superblock_bytes; }
  uint64_t cold_bytes() const;
  uint64_t pages_taken() const { return pages_taken_; }
  uint64_t pages_returned() const { return pages_returned_; }
  // Superblocks that were absent and are no more, Create's included; of these, taken cold.
  uint64_t populated() const { return populated_; }
  uint64_t taken_cold() const { return taken_cold_; }
  uint64_t given_back() const { return given_back_; }
  PagerBooks books() const;
  // Everything but the sequences and the nodes of indexed pages. Linear.
  void Describe(PagerSnapshot::Group& group) const;

 private:
  // Where a page is that nobody names. A page that is free or in use, or of a superblock that is
  // not taken, is in none of these.
  enum class Rests : uint8_t { kNowhere, kLimbo, kCache, kSoft };
  struct Page {
    uint32_t references = 0;
    Rests rests = Rests::kNowhere;
    bool indexed = false;
    uint64_t dropped_in_step = 0;  // the last step in which a reference fell
    uint64_t revived_in_step = 0;  // the last step in which AddReference found none
    uint64_t limbo_epoch = 0;      // kLimbo: the page may be written again once it has completed
    uint64_t origin_epoch = 0;     // limbo_epoch when it was first revived in that step; 0 = cached
  };

  SuperblockId SuperblockOf(PageId page) const;
  uint32_t IndexInSuperblock(PageId page) const;
  PageId PageAt(SuperblockId id, uint32_t index) const;
  std::optional<PageRun> FindRun(const Request& request) const;
  std::optional<PageRun> FindRunOf(const Request& request, uint32_t wanted) const;
  std::optional<PageRun> FindScattered(const Request& request);
  SuperblockId TakeSuperblock();
  SuperblockId MakeSpare();
  // A superblock that lacks memory, from ready_bytes on.
  struct Cold {
    SuperblockId id;
    uint64_t ready_bytes = 0;
    bool ahead = false;  // made as a spare, and never taken
  };
  std::vector<Cold>::iterator FindCold(SuperblockId id);
  void Populate(std::vector<Cold>::iterator cold, uint64_t most_bytes);
  void Discard(SuperblockId id);
  BinKey KeyOf(uint64_t map) const;
  void SetFreeMap(SuperblockId id, uint64_t map);
  void ClearFree(PageRun run);
  void Cache(PageId page);
  bool Drop(PageId page);
  void Rest(PageId page, uint64_t epoch);
  void Leave(PageId page);
  void Free(PageId page);
  uint64_t NextRandom();

  const KvGroupGeometry geometry_;
  const Options options_;
  VirtualRange range_;

  // The one to be used next stands last in each.
  std::vector<SuperblockId> spares_;
  std::vector<SuperblockId> absent_;
  std::vector<Cold> cold_;  // taken or spare
  uint32_t num_taken_ = 0;
  std::vector<uint8_t> is_taken_;      // [superblocks]
  std::vector<uint64_t> free_maps_;    // [superblocks]; 0 while not taken
  std::vector<uint64_t> cached_maps_;  // [superblocks]; bit i set = page i is cached
  std::vector<BinKey> bin_keys_;       // [superblocks] where bins_ holds it
  SuperblockBins bins_;
  std::vector<Page> pages_;
  uint64_t step_ = 1;         // counts BeginStep
  bool in_rollback_ = false;  // the whole step is being undone

  // Pages that nobody names; one array of links, because a page is in at most one of them.
  std::vector<ListLinks> links_;  // [pages]
  IndexList limbo_;               // ascending limbo_epoch
  IndexList cached_;              // the least recently used first
  uint64_t completed_epoch_ = 0;

  uint64_t free_pages_ = 0, soft_pages_ = 0;
  uint64_t pages_taken_ = 0, pages_returned_ = 0, taken_before_step_ = 0;
  uint64_t populated_ = 0, taken_cold_ = 0, given_back_ = 0;
  uint64_t random_state_ = 0;
};

}  // namespace kvrm
