// How a sequence grows: whether there is room, where its pages come from, and what is given up for
// them.
#include <algorithm>

#include "pager/pager_state.h"

namespace kvrm {
namespace {

// Without placement: the next page, wherever it lies.
PagePool::Request OnePage(PagePool::Request request) {
  request.after.reset();
  request.count = request.run_count = 1;
  return request;
}

}  // namespace

Pager::State::Growth Pager::State::GrowthOf(uint32_t group, uint32_t slot, uint32_t num_tokens,
                                            uint32_t hint_tokens) const {
  const auto& [pool, tables] = groups[group];
  const uint32_t page_tokens = pool.geometry().page_tokens;
  const uint32_t held = tables.num_pages(slot);
  Growth growth;
  growth.copies_last =
      slots[slot].num_tokens % page_tokens != 0 && !pool.HasOneOwner(tables.Last(slot));
  // Within the last page, as fifteen of sixteen decode steps are.
  if (num_tokens <= uint64_t{held} * page_tokens) return growth;
  const uint64_t needed = PagesFor(num_tokens, page_tokens);
  // Of a prompt that is longer than a window only so much is ever there at once.
  const uint64_t known = std::min(PagesFor(hint_tokens, page_tokens),
                                  tables.first(slot) + MostPages(group, hint_tokens));
  const uint64_t hinted = std::clamp<uint64_t>(known, needed, tables.max_pages());
  growth.pages = static_cast<uint32_t>(needed - held);
  growth.pages_in_all = static_cast<uint32_t>(hinted - held);
  return growth;
}

uint64_t Pager::State::BytesNeeded(uint32_t group, uint64_t pages) const {
  const KvGroupGeometry& geometry = groups[group].pool.geometry();
  const uint64_t reachable = ReachablePages(group);
  if (pages <= reachable) return 0;
  return PagesFor(pages - reachable, geometry.pages_per_superblock) * geometry.superblock_bytes;
}

// A spare holds memory as a taken superblock does, and only Maintain may return it: what one group
// keeps ready, another cannot have in this step.
uint64_t Pager::State::ClaimedBytes(const uint64_t* needed_bytes, uint32_t except) const {
  uint64_t claimed = 0;
  for (uint32_t g = 0; g < groups.size(); ++g) {
    if (g != except) claimed += std::max(groups[g].pool.spare_bytes(), needed_bytes[g]);
  }
  return claimed;
}

uint32_t Pager::State::MissingPages(const Growth* growth) const {
  uint64_t needed[kMaxKvGroups] = {};
  for (uint32_t g = 0; g < groups.size(); ++g) needed[g] = BytesNeeded(g, growth[g].to_take());
  if (ClaimedBytes(needed, kNoGroup) <= spendable_bytes()) return 0;
  // Several groups may each fit alone but not together: then one page is missing, somewhere.
  uint64_t missing = 1;
  for (uint32_t g = 0; g < groups.size(); ++g) {
    const KvGroupGeometry& geometry = groups[g].pool.geometry();
    const uint64_t none[kMaxKvGroups] = {};
    const uint64_t spendable =
        spendable_bytes() - std::min(spendable_bytes(), ClaimedBytes(none, g));
    const uint64_t reachable =
        ReachablePages(g) + spendable / geometry.superblock_bytes * geometry.pages_per_superblock;
    if (growth[g].to_take() > reachable) {
      missing = std::max(missing, growth[g].to_take() - reachable);
    }
  }
  return static_cast<uint32_t>(missing);
}

uint32_t Pager::ReachableTokens(SeqId seq, uint32_t at_most) const {
  const State& s = *state_;
  const uint32_t slot = s.SlotOf(seq), length = s.Find(seq).num_tokens;
  const auto fits = [&](uint32_t num_tokens) {
    State::Growth growth[kMaxKvGroups] = {};
    for (uint32_t g = 0; g < s.groups.size(); ++g) growth[g] = s.GrowthOf(g, slot, num_tokens, 0);
    return s.MissingPages(growth) == 0;
  };
  const uint64_t most = std::min<uint64_t>({at_most, s.config.max_seq_tokens, s.max_tokens});
  uint64_t within = length, beyond = std::max<uint64_t>(most, length) + 1;
  while (within + 1 < beyond) {
    const uint64_t middle = within + (beyond - within) / 2;
    (fits(static_cast<uint32_t>(middle)) ? within : beyond) = middle;
  }
  return static_cast<uint32_t>(within);
}

// The first of a step is the one that waits longest; Maintain looks whether other groups hold what
// it lacks.
void Pager::State::NoteDeferred(const Growth* growth) {
  for (uint32_t g = 0; g < groups.size(); ++g) {
    if (deferred_pages[g] > 0) return;
  }
  for (uint32_t g = 0; g < groups.size(); ++g) deferred_pages[g] = growth[g].to_take();
}

// Requires: MissingPages() was 0. `kept` bytes of superblocks are claimed by other groups.
void Pager::State::Grow(uint32_t group, uint32_t slot, const Growth& growth, uint64_t kept) {
  PageTables& tables = groups[group].tables;
  // Its next page, and nobody knows how many follow. The first page of a short prompt does not
  // count: many of them would lie far apart, and hold superblocks that other groups need.
  const bool decodes = config.placement && growth.pages == 1 && growth.pages_in_all == 1 &&
                       tables.num_pages(slot) > 0;
  if (growth.copies_last) CopyLastPage(group, slot, kept);
  for (uint32_t done = 0; done < growth.pages;) {
    PagePool::Request request;
    if (tables.num_pages(slot) > 0 && tables.Last(slot) != kNullPage) {
      request.after = tables.Last(slot);
    }
    request.count = growth.pages - done;
    request.run_count = growth.pages_in_all - done;
    request.likely_count = decodes ? kSoftRunPages : 0;
    request.spendable_bytes = spendable_bytes() - kept;
    if (!config.placement) request = OnePage(request);
    const PageRun soft = UseSoftRun(group, slot, request.count);
    const PageRun run = soft.count > 0 ? soft : TakeRun(group, slot, request);
    const uint32_t index = tables.num_pages(slot);
    journal.push_back({.kind = EditKind::kAppend,
                       .group = static_cast<uint8_t>(group),
                       .slot = static_cast<uint16_t>(slot),
                       .extends = tables.Push(slot, run),
                       .decodes = decodes,
                       .soft = soft.count > 0,
                       .index = index,
                       .page = run.page.value,
                       .count = run.count,
                       .old_page = soft_runs[group].times_stolen(slot)});
    // Sequences that decode in step ask for their next pages one after the other: each keeps what
    // follows before the next one asks.
    if (decodes && soft.count == 0) {
      const PageRun kept_run = KeepSoftRun(group, slot);
      if (kept_run.count > 0) {
        journal.push_back({.kind = EditKind::kTakeSoft,
                           .group = static_cast<uint8_t>(group),
                           .slot = static_cast<uint16_t>(slot),
                           .page = kept_run.page.value,
                           .count = kept_run.count});
      }
    }
    done += run.count;
  }
}

// Copy-on-write: the last page is shared and about to be written.
void Pager::State::CopyLastPage(uint32_t group, uint32_t slot, uint64_t kept) {
  auto& [pool, tables] = groups[group];
  const uint32_t index = tables.num_pages(slot) - 1;
  const PageId shared = tables.Last(slot);
  PagePool::Request request;
  if (index > 0 && tables.Pages(slot)[index - 1] != kNullPage) {
    request.after = tables.Pages(slot)[index - 1];
  }
  request.spendable_bytes = spendable_bytes() - kept;
  if (!config.placement) request = OnePage(request);
  const PageRun copy = TakeRun(group, slot, request);
  tables.Replace(slot, index, copy.page);
  pool.DropReference({shared, 1}, step_epoch());
  journal.push_back({.kind = EditKind::kReplace,
                     .group = static_cast<uint8_t>(group),
                     .slot = static_cast<uint16_t>(slot),
                     .index = index,
                     .page = copy.page.value,
                     .count = 1,
                     .old_page = shared.value});
}

// ---- where the pages come from

PageRun Pager::State::TakeRun(uint32_t group, uint32_t slot, const PagePool::Request& request) {
  PagePool& pool = groups[group].pool;
  PagePool::Request whole = request;
  whole.allows_pieces = false;
  PagePool::Taken taken = pool.TakeRun(whole);
  if (taken.run.count == 0) {
    MakeRoom(group, request);
    taken = pool.TakeRun(request);
  }
  if (taken.new_superblock) {
    journal.push_back({.kind = EditKind::kTakeSuperblock,
                       .group = static_cast<uint8_t>(group),
                       .slot = static_cast<uint16_t>(slot),
                       .page = taken.new_superblock->value});
  }
  return taken.run;
}

// The oldest cached page goes, and with it the cached pages right below it, as many as the request
// can use in one piece: the oldest is the end of a prompt, those mostly belong to it, and pages
// that went one by one would leave a pool of single pages, in which no run ever forms again. Where
// the pool has pages enough but no run, it costs no more cached pages than the run is long. What
// decoding sequences keep goes last.
void Pager::State::MakeRoom(uint32_t group, const PagePool::Request& request) {
  PagePool& pool = groups[group].pool;
  const uint32_t wanted = std::min(std::max(request.run_count, request.likely_count),
                                   pool.geometry().pages_per_superblock);
  uint32_t for_the_run = 0;
  while (pool.cached_pages() > 0 && !pool.Fits(request)) {
    if (pool.free_pages() >= request.count && for_the_run >= wanted) break;
    for_the_run += EvictUpTo(group, pool.OldestCached(), wanted);
  }
  while (soft_runs[group].num_slots() > 0 && !pool.Fits(request)) StealSoftRun(group);
}

uint32_t Pager::State::EvictUpTo(uint32_t group, PageId oldest, uint32_t most) {
  const PagePool& pool = groups[group].pool;
  const PageRun run = pool.ReclaimableRun(oldest, most);
  uint32_t evicted = 0;
  for (uint32_t i = 0; i < run.count; ++i) {
    const PageId page{run.page.value + i};
    if (!pool.IsCached(page)) continue;
    Evict(group, page);
    ++evicted;
  }
  return evicted;
}

// Under no slot: a savepoint's rollback leaves it, because others may have the page by then.
void Pager::State::Evict(uint32_t group, PageId page) {
  groups[group].pool.EvictCached(page);
  ++counters.prefix_pages_evicted;
  journal.push_back({.kind = EditKind::kEvict,
                     .group = static_cast<uint8_t>(group),
                     .slot = kNoSlot,
                     .index = ForgetPage(group, page),
                     .page = page.value,
                     .count = 1});
}

// ---- soft runs

PageRun Pager::State::UseSoftRun(uint32_t group, uint32_t slot, uint32_t pages) {
  auto& [pool, tables] = groups[group];
  const PageRun kept = soft_runs[group].Of(slot);
  const PageRun run{kept.page, std::min(kept.count, pages)};
  if (run.count == 0 || tables.num_pages(slot) == 0) return {kNullPage, 0};
  if (tables.Last(slot).value + 1 != run.page.value) return {kNullPage, 0};
  pool.UseSoft(run);
  soft_runs[group].RemoveFirst(slot, run.count);
  counters.soft_used += run.count;
  return run;
}

PageRun Pager::State::KeepSoftRun(uint32_t group, uint32_t slot) {
  auto& [pool, tables] = groups[group];
  SoftRuns& runs = soft_runs[group];
  if (config.scatter_seed != 0 || runs.Of(slot).count > 0) return {kNullPage, 0};
  const uint32_t room = tables.max_pages() - tables.num_pages(slot);
  const PageRun run = pool.TakeSoft(tables.Last(slot), std::min(kSoftRunPages - 1, room));
  if (run.count == 0) return run;
  runs.Add(slot, run, SoftRuns::Age::kYoungest);
  counters.soft_taken += run.count;
  return run;
}

void Pager::State::StealSoftRun(uint32_t group) {
  SoftRuns& runs = soft_runs[group];
  const uint32_t slot = runs.oldest();
  const PageRun run = runs.Of(slot);
  runs.RemoveFirst(slot, run.count);
  runs.NoteStolen(slot);
  groups[group].pool.ReleaseSoft(run);
  counters.soft_stolen += run.count;
  journal.push_back({.kind = EditKind::kReleaseSoft,
                     .group = static_cast<uint8_t>(group),
                     .slot = kNoSlot,
                     .page = run.page.value,
                     .count = run.count,
                     .old_page = slot});
}

void Pager::State::SettleSoftRun(uint32_t group, uint32_t slot) {
  auto& [pool, tables] = groups[group];
  const PageRun run = soft_runs[group].Of(slot);
  if (run.count == 0) return;
  const bool follows = tables.num_pages(slot) > 0 && tables.Last(slot).value + 1 == run.page.value;
  if (follows && slots[slot].use == SlotUse::kOpen) return;
  soft_runs[group].RemoveFirst(slot, run.count);
  pool.ReleaseSoft(run);
}

}  // namespace kvrm
