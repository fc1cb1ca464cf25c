// The pages of one KV group: which superblocks are taken, which of their pages are free, how many
// page table entries name each page, and which pages rest in limbo. Knows no sequence.
//
// A page is in one of four states, and these are all the ways between them:
//
//     absent --TakeSuperblock--> free --TakeRun--> in use --DropReference--> limbo --DrainLimbo-->
//     free
//
// and back again while the step that did it is open: Untake, AddReference (from limbo), Unlimbo,
// UntakeSuperblock. There is one place where a reference count falls (Drop) and one where a page
// becomes free (Free).
//
// Thread class: engine-thread-only. Ownership: the virtual range. Never allocates after
// construction; every choice is O(1), every edit proportional to the pages that it names.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/kv_view.h"
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
  };
  // Takes superblock 0 and, in it, the null page. Requires: `range` holds whole superblocks.
  PagePool(const KvGroupGeometry& geometry, VirtualRange range, const Options& options);

  void BeginStep() { ++step_; }

  // What a caller of TakeRun asks for.
  struct Request {
    std::optional<PageId> after;   // last page of the table that grows: its successor is best
    uint32_t count = 1;            // pages wanted now, at least 1
    uint32_t run_count = 1;        // pages known to come in all, at least `count`
    uint64_t spendable_bytes = 0;  // of new superblocks
  };
  struct Taken {
    PageRun run;                  // 1..count pages, each with one reference
    bool new_superblock = false;  // it came from a superblock that was taken for it
  };
  // Order of choice: extend in place; same superblock; the best-fitting run in the fullest
  // superblock; a new superblock; the longest run that is left.
  // Requires: a free page, or spendable bytes for a superblock.
  Taken TakeRun(const Request& request);
  // Undoes TakeRun: the pages lose their one reference and are free at once, because no published
  // frame ever named them.
  void Untake(PageRun run);
  // Undoes the taking of the newest superblock. Requires: IsNewestAndEmpty(id).
  void UntakeSuperblock(SuperblockId id);
  bool IsNewestAndEmpty(SuperblockId id) const;

  // One more table entry names each page. Pages in limbo leave it: the drop is being undone.
  void AddReference(PageRun run);
  // One table entry less; pages that none names rest in limbo until `epoch` has completed.
  void DropReference(PageRun run, uint64_t epoch);
  // The same, where AddReference is undone.
  void UndoReference(PageRun run, uint64_t epoch);
  // Fresh pages of the open step that went to limbo become free at once: their taking is undone.
  void Unlimbo(PageRun run);
  // Limbo pages of epochs <= `completed_epoch` become free.
  void DrainLimbo(uint64_t completed_epoch);

  // Populates one superblock that TakeRun will need next, off the step path.
  void PopulateSpare();
  void DiscardSpares();
  // True when few pages are left, spares included, and the range has room for another. Few: half a
  // superblock, or less than the `pages` that one step may take.
  bool NeedsSpare(uint64_t pages) const;

  const KvGroupGeometry& geometry() const { return geometry_; }
  std::byte* base() const { return range_.base(); }
  uint64_t range_bytes() const { return range_.bytes(); }
  uint32_t references(PageId page) const { return references_[page.value]; }
  // True when the one sequence that names `page` may write to it. A reference that was dropped in
  // the open step still counts: its owner may roll back to a savepoint and see the page again.
  bool HasOneOwner(PageId page) const {
    return references_[page.value] == 1 && dropped_in_step_[page.value] != step_;
  }
  uint64_t free_pages() const { return free_pages_; }
  uint64_t limbo_pages() const { return limbo_end_ - limbo_begin_; }
  uint64_t taken_bytes() const { return num_taken_ * geometry_.superblock_bytes; }
  uint64_t spare_bytes() const { return spares_.size() * geometry_.superblock_bytes; }
  SuperblockId newest_superblock() const { return SuperblockId{num_taken_ - 1}; }
  uint64_t pages_taken() const { return pages_taken_; }
  uint64_t pages_returned() const { return pages_returned_; }
  uint64_t populated_in_verbs() const { return populated_in_verbs_; }
  PagerBooks books() const;
  // Everything but the sequences. Linear.
  void Describe(PagerSnapshot::Group& group) const;

 private:
  struct LimboPage {
    PageId page;
    uint64_t epoch;
  };

  SuperblockId SuperblockOf(PageId page) const;
  uint32_t IndexInSuperblock(PageId page) const;
  PageId PageAt(SuperblockId id, uint32_t index) const;
  std::optional<PageRun> FindRun(const Request& request) const;
  std::optional<PageRun> FindScattered(const Request& request);
  void TakeSuperblock();
  BinKey KeyOf(uint64_t map) const;
  void SetFreeMap(SuperblockId id, uint64_t map);
  bool Drop(PageId page);
  void Free(PageId page);
  void LeaveLimbo(PageId page);
  void Poison(PageId page);
  uint64_t NextRandom();

  const KvGroupGeometry geometry_;
  const Options options_;
  VirtualRange range_;

  // Superblocks [0, num_taken_) are taken. `spares_` are populated but not taken, `absent_`
  // neither; the one to be used next stands last in each.
  uint32_t num_taken_ = 0;
  std::vector<SuperblockId> spares_;
  std::vector<SuperblockId> absent_;
  std::vector<uint64_t> free_maps_;  // [superblocks]; 0 while not taken
  std::vector<BinKey> bin_keys_;     // [superblocks] where bins_ holds it
  SuperblockBins bins_;
  std::vector<uint32_t> references_;       // [pages]
  std::vector<uint32_t> dropped_in_step_;  // [pages] the last step in which a reference fell
  uint32_t step_ = 1;                      // counts BeginStep; a wrap costs one needless copy

  // A ring in order of epochs; each page stands in it at most once, so it never overflows.
  std::vector<LimboPage> limbo_;             // [pages]
  std::vector<uint64_t> position_in_limbo_;  // [pages] absolute ring position
  uint64_t limbo_begin_ = 0, limbo_end_ = 0;

  uint64_t free_pages_ = 0;
  uint64_t pages_taken_ = 0, pages_returned_ = 0;
  uint64_t populated_in_verbs_ = 0;
  uint64_t random_state_ = 0;
};

}  // namespace kvrm
