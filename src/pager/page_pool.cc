#include "pager/page_pool.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace kvrm {

PagePool::PagePool(const KvGroupGeometry& geometry, VirtualRange range, const Options& options)
    : geometry_(geometry),
      options_(options),
      range_(std::move(range)),
      bins_(static_cast<uint32_t>(range_.bytes() / geometry.superblock_bytes)),
      random_state_(options.scatter_seed) {
  const auto superblocks = static_cast<uint32_t>(range_.bytes() / geometry.superblock_bytes);
  const size_t pages = size_t{superblocks} * geometry.pages_per_superblock;
  is_taken_.resize(superblocks);
  free_maps_.resize(superblocks);
  cached_maps_.resize(superblocks);
  bin_keys_.resize(superblocks);
  pages_.resize(pages);
  links_.resize(pages);
  spares_.reserve(superblocks);
  absent_.reserve(superblocks);
  cold_.reserve(superblocks);
  for (uint32_t id = superblocks; id-- > 0;) absent_.push_back(SuperblockId{id});

  PopulateSpare();
  while (PopulateMoreOfSpare()) {
  }
  (void)TakeSuperblock();
  pages_[kNullPage.value].references = 1;  // pinned for good, so that nothing can free it (PAGER-3)
  SetFreeMap(SuperblockId{0}, free_maps_[0] & ~uint64_t{1});
  --free_pages_;
}

SuperblockId PagePool::SuperblockOf(PageId page) const {
  return SuperblockId{page.value / geometry_.pages_per_superblock};
}

uint32_t PagePool::IndexInSuperblock(PageId page) const {
  return page.value % geometry_.pages_per_superblock;
}

PageId PagePool::PageAt(SuperblockId id, uint32_t index) const {
  return PageId{id.value * geometry_.pages_per_superblock + index};
}

// ---- choice

PagePool::Taken PagePool::TakeRun(const Request& request) {
  Taken taken;
  const auto find = [&] {
    return options_.scatter_seed == 0 ? FindRun(request) : FindScattered(request);
  };
  std::optional<PageRun> found = find();
  if (!found && request.spendable_bytes >= geometry_.superblock_bytes) {
    taken.new_superblock = TakeSuperblock();
    found = find();
  }
  if (!found) {
    if (!request.allows_pieces) return taken;
    // No room for a superblock: the longest piece there is, however short.
    const uint32_t longest = bins_.LongestRun();
    KVRM_CHECK(longest > 0, "PAGER-4: TakeRun without a free page");
    const SuperblockId id = *bins_.FindFitting(longest);
    found = PageRun{PageAt(id, BestFittingRun(free_maps_[id.value], longest).begin), longest};
  }
  taken.run = {found->page, std::min(found->count, request.count)};

  ClearFree(taken.run);
  for (uint32_t i = 0; i < taken.run.count; ++i) pages_[taken.run.page.value + i].references = 1;
  pages_taken_ += taken.run.count;
  return taken;
}

bool PagePool::Fits(const Request& request) const {
  // Scattered pages are taken one by one, and which ones is drawn when they are taken.
  return options_.scatter_seed == 0 ? FindRun(request).has_value() : free_pages_ > 0;
}

// nullopt: nothing that is taken holds a run as long as is wanted.
std::optional<PageRun> PagePool::FindRun(const Request& request) const {
  if (request.after) {
    const SuperblockId id = SuperblockOf(*request.after);
    const uint32_t next = IndexInSuperblock(*request.after) + 1;
    if (const uint32_t count = FreeRunAt(free_maps_[id.value], next); count > 0) {
      return PageRun{PageAt(id, next), count};
    }
  }
  if (request.likely_count > request.run_count) {
    if (const auto likely = FindRunOf(request, request.likely_count)) return likely;
  }
  return FindRunOf(request, request.run_count);
}

// In the superblock that the table ends in, else in the fullest.
std::optional<PageRun> PagePool::FindRunOf(const Request& request, uint32_t count) const {
  const uint32_t wanted = std::min(count, geometry_.pages_per_superblock);
  if (request.after) {
    const SuperblockId id = SuperblockOf(*request.after);
    if (const MapRun run = BestFittingRun(free_maps_[id.value], wanted); run.count > 0) {
      return PageRun{PageAt(id, run.begin), run.count};
    }
  }
  const SuperblockId* id = bins_.FindFitting(wanted);
  if (id == nullptr) return std::nullopt;
  const MapRun run = BestFittingRun(free_maps_[id->value], wanted);
  return PageRun{PageAt(*id, run.begin), run.count};
}

// The test hook: a random page that does not follow `after`. It walks the pool, which no other
// choice does. nullopt: only the page that follows is left, and a new superblock may be taken.
std::optional<PageRun> PagePool::FindScattered(const Request& request) {
  const auto superblocks = static_cast<uint32_t>(free_maps_.size());
  const uint32_t first = static_cast<uint32_t>(NextRandom() % superblocks);
  for (uint32_t i = 0; i < superblocks; ++i) {
    const SuperblockId id{(first + i) % superblocks};
    uint64_t map = free_maps_[id.value];
    if (request.after && SuperblockOf(*request.after) == id) {
      const uint32_t next = IndexInSuperblock(*request.after) + 1;
      if (next < geometry_.pages_per_superblock) map &= ~(uint64_t{1} << next);
    }
    if (map == 0) continue;
    for (uint64_t skip = NextRandom() % static_cast<uint64_t>(std::popcount(map)); skip > 0;
         --skip) {
      map &= map - 1;
    }
    return PageRun{PageAt(id, static_cast<uint32_t>(std::countr_zero(map))), 1};
  }
  return std::nullopt;
}

uint64_t PagePool::NextRandom() {  // splitmix64
  uint64_t z = (random_state_ += 0x9E37'79B9'7F4A'7C15u);
  z = (z ^ (z >> 30)) * 0xBF58'476D'1CE4'E5B9u;
  z = (z ^ (z >> 27)) * 0x94D0'49BB'1331'11EBu;
  return z ^ (z >> 31);
}

// ---- free maps

BinKey PagePool::KeyOf(uint64_t map) const {
  return {LongestFreeRun(map),
          geometry_.pages_per_superblock - static_cast<uint32_t>(std::popcount(map))};
}

void PagePool::SetFreeMap(SuperblockId id, uint64_t map) {
  free_maps_[id.value] = map;
  bins_.Remove(id, bin_keys_[id.value]);
  bin_keys_[id.value] = KeyOf(map);
  bins_.Insert(id, bin_keys_[id.value]);
}

// Free pages that become something else. Requires: they are free.
void PagePool::ClearFree(PageRun run) {
  const SuperblockId id = SuperblockOf(run.page);
  const uint64_t bits = MaskOf({IndexInSuperblock(run.page), run.count});
  KVRM_CHECK((free_maps_[id.value] & bits) == bits, "PAGER-4: a page is taken that is not free");
  SetFreeMap(id, free_maps_[id.value] & ~bits);
  free_pages_ -= run.count;
}

// ---- references, rest, freeing

// The one place where a reference count falls. True when no reference is left.
bool PagePool::Drop(PageId page) {
  uint32_t& count = pages_[page.value].references;
  KVRM_CHECK(page != kNullPage, "PAGER-3: the null page is given back");
  KVRM_CHECK(count > 0, "PAGER-2: a reference is dropped that nobody holds");
  return --count == 0;
}

// The one place where a page becomes free. Its bytes stay: what is undone may bring it back.
void PagePool::Free(PageId page) {
  const SuperblockId id = SuperblockOf(page);
  const uint64_t bit = uint64_t{1} << IndexInSuperblock(page);
  const Page& entry = pages_[page.value];
  KVRM_CHECK(page != kNullPage, "PAGER-3: the null page is freed");
  KVRM_CHECK((free_maps_[id.value] & bit) == 0, "PAGER-4: a page is freed twice");
  KVRM_CHECK(entry.references == 0, "PAGER-4: a page is freed while it is named");
  KVRM_CHECK(entry.rests == Rests::kNowhere && !entry.indexed, "PAGER-9: a page is freed and kept");
  SetFreeMap(id, free_maps_[id.value] | bit);
  ++free_pages_;
  ++pages_returned_;
}

void PagePool::Untake(PageRun run) {
  for (uint32_t i = run.count; i-- > 0;) {
    const PageId page{run.page.value + i};
    if (Drop(page)) Free(page);
  }
}

void PagePool::AddReference(PageRun run) {
  for (uint32_t i = 0; i < run.count; ++i) {
    const PageId page{run.page.value + i};
    Page& entry = pages_[page.value];
    if (entry.references == 0) {
      if (entry.revived_in_step != step_) {
        entry.revived_in_step = step_;
        entry.origin_epoch = entry.rests == Rests::kLimbo ? entry.limbo_epoch : 0;
      }
      Leave(page);
    }
    ++entry.references;
  }
}

void PagePool::DropReference(PageRun run, uint64_t epoch) {
  for (uint32_t i = run.count; i-- > 0;) {
    const PageId page{run.page.value + i};
    pages_[page.value].dropped_in_step = step_;
    if (Drop(page)) Rest(page, epoch);
  }
}

void PagePool::UndoReference(PageRun run, uint64_t epoch) {
  for (uint32_t i = run.count; i-- > 0;) {
    const PageId page{run.page.value + i};
    if (!Drop(page)) continue;
    const Page& entry = pages_[page.value];
    const bool came_from_rest = entry.revived_in_step == step_;
    const bool may_be_taken_up = !in_rollback_ && entry.dropped_in_step == step_;
    Rest(page, came_from_rest && !may_be_taken_up ? entry.origin_epoch : epoch);
  }
}

void PagePool::EndRollback(uint64_t step_epoch) {
  while (!limbo_.empty() && pages_[limbo_.last()].limbo_epoch == step_epoch) {
    const PageId page{limbo_.last()};
    KVRM_CHECK(pages_[page.value].revived_in_step == step_,
               "I2: a page rests for a step that was rolled back");
    Leave(page);
    Rest(page, pages_[page.value].origin_epoch);
  }
}

// Nobody names the page any more; `epoch` must complete before it may be written again.
void PagePool::Rest(PageId page, uint64_t epoch) {
  Page& entry = pages_[page.value];
  if (epoch > completed_epoch_) {
    entry.rests = Rests::kLimbo;
    entry.limbo_epoch = epoch;
    // It is the last, unless the reference to a page in limbo is undone: then it goes in front of
    // those that this step dropped.
    uint32_t previous = limbo_.last();
    while (previous != kNone32 && pages_[previous].limbo_epoch > epoch) {
      previous = links_[previous].previous;
    }
    limbo_.InsertAfter(links_, previous, page.value);
  } else if (entry.indexed) {
    Cache(page);
    cached_.PushBack(links_, page.value);
  } else {
    Free(page);
    PoisonFreed(page);
  }
}

void PagePool::Leave(PageId page) {
  Page& entry = pages_[page.value];
  KVRM_CHECK(entry.rests == Rests::kLimbo || entry.rests == Rests::kCache,
             "PAGER-4: a page is revived that rests nowhere");
  if (entry.rests == Rests::kLimbo) {
    limbo_.Remove(links_, page.value);
  } else {
    cached_.Remove(links_, page.value);
    cached_maps_[SuperblockOf(page).value] &= ~(uint64_t{1} << IndexInSuperblock(page));
  }
  entry.rests = Rests::kNowhere;
}

void PagePool::Unlimbo(PageRun run) {
  for (uint32_t i = run.count; i-- > 0;) {
    const PageId page{run.page.value + i};
    KVRM_CHECK(pages_[page.value].rests == Rests::kLimbo, "PAGER-4: the page is not in limbo");
    Leave(page);
    Free(page);
  }
}

void PagePool::DrainLimbo(uint64_t completed_epoch) {
  completed_epoch_ = std::max(completed_epoch_, completed_epoch);
  while (!limbo_.empty() && pages_[limbo_.first()].limbo_epoch <= completed_epoch_) {
    const PageId page{limbo_.first()};
    Leave(page);
    Rest(page, completed_epoch_);
  }
}

// ---- the cache

void PagePool::Cache(PageId page) {
  pages_[page.value].rests = Rests::kCache;
  cached_maps_[SuperblockOf(page).value] |= uint64_t{1} << IndexInSuperblock(page);
}

PageRun PagePool::ReclaimableRun(PageId page, uint32_t most) const {
  const SuperblockId id = SuperblockOf(page);
  const uint32_t index = IndexInSuperblock(page);
  const uint64_t map = free_maps_[id.value] | cached_maps_[id.value];
  const auto below = static_cast<uint32_t>(std::countl_one(map << (kFreeMapBits - 1 - index)));
  const uint32_t begin = index + 1 - std::min(below, most);
  const uint32_t above = FreeRunAt(free_maps_[id.value], index + 1);
  return {PageAt(id, begin), std::min(index + 1 - begin + above, most)};
}

void PagePool::SetIndexed(PageId page, bool indexed) {
  Page& entry = pages_[page.value];
  KVRM_CHECK(page != kNullPage && entry.rests != Rests::kSoft &&
                 (entry.references > 0 || entry.rests != Rests::kNowhere),
             "PAGER-9: a page without contents is indexed");
  KVRM_CHECK(!indexed || entry.references > 0, "PAGER-9: a page is indexed that nobody holds");
  entry.indexed = indexed;
  if (indexed || entry.rests != Rests::kCache) return;
  Leave(page);
  Free(page);
  PoisonFreed(page);
}

void PagePool::EvictCached(PageId page) {
  Page& entry = pages_[page.value];
  KVRM_CHECK(entry.rests == Rests::kCache, "PAGER-9: a page is evicted that is not cached");
  Leave(page);
  entry.indexed = false;
  Free(page);
}

void PagePool::UndoEvict(PageId page) {
  ClearFree({page, 1});
  Page& entry = pages_[page.value];
  entry.indexed = true;
  Cache(page);
  cached_.PushFront(links_, page.value);
}

// ---- soft pages

PageRun PagePool::TakeSoft(PageId last, uint32_t most) {
  const SuperblockId id = SuperblockOf(last);
  const uint32_t next = IndexInSuperblock(last) + 1;
  const uint32_t count = std::min(FreeRunAt(free_maps_[id.value], next), most);
  if (count == 0) return {kNullPage, 0};
  const PageRun run{PageAt(id, next), count};
  UndoReleaseSoft(run);
  pages_taken_ += count;
  return run;
}

void PagePool::UndoReleaseSoft(PageRun run) {
  ClearFree(run);
  for (uint32_t i = 0; i < run.count; ++i) pages_[run.page.value + i].rests = Rests::kSoft;
  soft_pages_ += run.count;
}

void PagePool::UseSoft(PageRun run) {
  for (uint32_t i = 0; i < run.count; ++i) {
    Page& entry = pages_[run.page.value + i];
    KVRM_CHECK(entry.rests == Rests::kSoft, "PAGER-8: a soft page is used that is none");
    entry.rests = Rests::kNowhere;
    entry.references = 1;
  }
  soft_pages_ -= run.count;
}

void PagePool::ReturnSoft(PageRun run) {
  for (uint32_t i = run.count; i-- > 0;) {
    const PageId page{run.page.value + i};
    KVRM_CHECK(Drop(page), "PAGER-8: a page becomes soft that somebody names");
    pages_[page.value].rests = Rests::kSoft;
  }
  soft_pages_ += run.count;
}

void PagePool::ReleaseSoft(PageRun run) {
  for (uint32_t i = run.count; i-- > 0;) {
    const PageId page{run.page.value + i};
    KVRM_CHECK(pages_[page.value].rests == Rests::kSoft, "PAGER-8: the page is not soft");
    pages_[page.value].rests = Rests::kNowhere;
    Free(page);
  }
  soft_pages_ -= run.count;
}

// ---- bytes

void PagePool::PoisonFreed(PageId page) {
  if (!options_.poison_freed) return;
  std::byte* part = range_.base() + geometry_.PageOffset(page);
  for (uint32_t p = 0; p < geometry_.num_parts; ++p, part += geometry_.part_stride_bytes()) {
    std::memset(part, 0xFF, geometry_.part_page_bytes);
  }
}

// ---- books

PagerBooks PagePool::books() const {
  PagerBooks books;
  books.superblocks = num_taken_;
  books.total = uint64_t{num_taken_} * geometry_.pages_per_superblock;
  books.free = free_pages_;
  books.limbo = limbo_pages();
  books.cached = cached_pages();
  books.soft = soft_pages_;
  books.in_use = books.total - books.free - books.limbo - books.cached - books.soft;
  books.reserved_bytes =
      (books.in_use + books.soft + books.cached + books.limbo) * geometry_.page_bytes();
  books.superblock_bytes = taken_bytes();
  return books;
}

void PagePool::Describe(PagerSnapshot::Group& group) const {
  group.pages_per_superblock = geometry_.pages_per_superblock;
  group.page_tokens = geometry_.page_tokens;
  // Up to the last that is taken; one that no bin holds keeps kNone32, which is a PAGER-7.
  auto superblocks = static_cast<uint32_t>(is_taken_.size());
  while (superblocks > 0 && is_taken_[superblocks - 1] == 0) --superblocks;
  for (uint32_t id = 0; id < superblocks; ++id) {
    group.superblocks.push_back({});
    if (is_taken_[id] != 0) group.superblocks.back() = {true, free_maps_[id], kNone32, kNone32};
  }
  bins_.ForEach([&](SuperblockId id, BinKey key) {
    group.superblocks[id.value].longest_free_run = key.longest_free_run;
    group.superblocks[id.value].pages_in_use = key.pages_in_use;
  });
  const uint32_t pages = superblocks * geometry_.pages_per_superblock;
  for (uint32_t page = 0; page < pages; ++page) {
    const Page& entry = pages_[page];
    group.reference_counts.push_back(entry.references);
    if (entry.indexed) group.indexed.push_back({page, kNone32, kNone32});
  }
  for (uint32_t page = limbo_.first(); page != kNone32; page = links_[page].next) {
    group.limbo.push_back({page, pages_[page].limbo_epoch});
  }
  for (uint32_t page = cached_.first(); page != kNone32; page = links_[page].next) {
    group.cached.push_back(page);
  }
  std::sort(group.limbo.begin(), group.limbo.end(),
            [](const auto& a, const auto& b) { return a.page < b.page; });
  std::sort(group.cached.begin(), group.cached.end());
  group.books = books();
}

}  // namespace kvrm
