// The chores between steps: what would be a system call or a long walk in a verb. Each call does
// one bounded piece.
#include <algorithm>

#include "pager/pager_state.h"

namespace kvrm {

bool Pager::Maintain(Load load) {
  State& s = *state_;
  KVRM_CHECK(!s.in_step, "Maintain inside a step");
  const bool done = [&] {
    switch (load) {
      case Load::kTaken:
        return s.PopulateTaken();
      case Load::kBusy:
        return s.PopulateTaken() || s.MakeRoomForDeferred() || s.PopulateSpare();
      case Load::kIdle:
        return s.Tidy();
    }
    return false;
  }();
  if (done) s.Check(/*tier=*/2);
  return done;
}

void Pager::ReturnMemory(SeqId seq) {
  const uint32_t slot = state_->SlotOf(seq);
  (void)state_->Find(seq);
  for (State::Group& group : state_->groups) {
    const uint32_t end = group.tables.num_pages(slot);
    for (uint32_t begin = group.tables.first(slot); begin < end;) {
      const PageRun run = group.tables.RunAt(slot, begin, end);
      KVRM_CHECK(run.holes() || group.pool.HasOneOwner(run.page),
                 "ReturnMemory of pages that others read");
      if (!run.holes()) group.pool.ReturnMemory(run);
      begin += run.count;
    }
  }
}

// ---- under load

uint64_t Pager::State::populated_bytes() const {
  uint64_t bytes = taken_bytes();
  for (const Group& group : groups) bytes += group.pool.spare_bytes();
  return bytes;
}

bool Pager::State::PopulateTaken() {
  return std::any_of(groups.begin(), groups.end(),
                     [](Group& group) { return group.pool.PopulateCold(); });
}

// What one step may take of `group`: the pages of a prompt's longest chunk, of a long one's at most
// kMostSuperblocksAhead superblocks; and a page, and some more to keep, for each sequence without a
// soft run.
uint64_t Pager::State::PagesOfAStep(uint32_t group) const {
  const KvGroupGeometry& geometry = groups[group].pool.geometry();
  const uint64_t open = slots.size() - free_slots.size();
  const uint64_t growing = open - std::min(open, soft_runs[group].num_slots());
  const uint64_t each = config.scatter_seed == 0 ? kSoftRunPages : 1;
  const uint64_t chunk = std::min<uint64_t>(PagesFor(step_tokens(), geometry.page_tokens),
                                            kMostSuperblocksAhead * geometry.pages_per_superblock);
  return std::max(chunk, growing * each);
}

// One that was begun is finished before the next. A new one never at the cost of what a deferred
// sequence waits for: it would wait for ever.
bool Pager::State::PopulateSpare() {
  if (std::any_of(groups.begin(), groups.end(),
                  [](Group& group) { return group.pool.PopulateMoreOfSpare(); })) {
    return true;
  }
  uint64_t needed[kMaxKvGroups] = {};
  for (uint32_t g = 0; g < groups.size(); ++g) needed[g] = BytesNeeded(g, deferred_pages[g]);
  for (uint32_t g = 0; g < groups.size(); ++g) {
    PagePool& pool = groups[g].pool;
    const uint64_t with_one_more = pool.spare_bytes() + pool.geometry().superblock_bytes;
    const uint64_t claimed = ClaimedBytes(needed, g) + std::max(with_one_more, needed[g]);
    if (!pool.NeedsSpare(PagesOfAStep(g)) || claimed > spendable_bytes()) continue;
    pool.PopulateSpare();
    return true;
  }
  return false;
}

// A sequence waits for bytes that another group holds, but does not need: for what is waiting, or
// two groups would take the same superblock from each other for ever.
bool Pager::State::MakeRoomForDeferred() {
  uint64_t needed[kMaxKvGroups] = {};
  for (uint32_t g = 0; g < groups.size(); ++g) needed[g] = BytesNeeded(g, deferred_pages[g]);
  if (ClaimedBytes(needed, kNoGroup) <= spendable_bytes()) return false;
  for (uint32_t g = 0; g < groups.size(); ++g) {
    if (groups[g].pool.spare_bytes() > needed[g] && groups[g].pool.GiveBackSpare()) return true;
  }
  const auto can_spare = [&](uint32_t g) {
    return ReachablePages(g) >= deferred_pages[g] + groups[g].pool.geometry().pages_per_superblock;
  };
  for (uint32_t g = 0; g < groups.size(); ++g) {
    if (can_spare(g) && groups[g].pool.GiveBackEmpty()) return true;
  }
  // None is empty: what is only kept may stand in the way.
  for (uint32_t g = 0; g < groups.size(); ++g) {
    if (can_spare(g) && ReleaseSoftRuns(g)) return true;
  }
  for (uint32_t g = 0; g < groups.size(); ++g) {
    if (!can_spare(g) || groups[g].pool.cached_pages() == 0) continue;
    EvictBetweenSteps(g, kEvictPages);
    return true;
  }
  return false;
}

// ---- idle

bool Pager::State::Tidy() {
  if (EvictOverKeep()) return true;
  for (uint32_t g = 0; g < groups.size(); ++g) {
    if (ReleaseSoftRuns(g)) return true;
  }
  for (Group& group : groups) {
    if (group.pool.GiveBackSpare() || group.pool.GiveBackEmpty()) return true;
  }
  return false;
}

bool Pager::State::EvictOverKeep() {
  uint64_t bytes = 0, most = 0;
  uint32_t largest = 0;
  for (uint32_t g = 0; g < groups.size(); ++g) {
    const PagePool& pool = groups[g].pool;
    const uint64_t cached = pool.cached_pages() * pool.geometry().page_bytes();
    bytes += cached;
    if (cached <= most) continue;
    most = cached;
    largest = g;
  }
  if (bytes <= config.kv_keep_bytes) return false;
  const uint64_t over =
      PagesFor(bytes - config.kv_keep_bytes, groups[largest].pool.geometry().page_bytes());
  EvictBetweenSteps(largest, std::min<uint64_t>(over, kEvictPages));
  return true;
}

// At most max_slots times three pages.
bool Pager::State::ReleaseSoftRuns(uint32_t group) {
  SoftRuns& runs = soft_runs[group];
  if (runs.num_slots() == 0) return false;
  while (runs.num_slots() > 0) {
    const uint32_t slot = runs.oldest();
    const PageRun run = runs.Of(slot);
    runs.RemoveFirst(slot, run.count);
    groups[group].pool.ReleaseSoft(run);
  }
  return true;
}

void Pager::State::EvictBetweenSteps(uint32_t group, uint64_t pages) {
  PagePool& pool = groups[group].pool;
  for (; pages > 0 && pool.cached_pages() > 0; --pages) {
    const PageId page = pool.OldestCached();
    pool.EvictCached(page);
    (void)ForgetPage(group, page);
    pool.PoisonFreed(page);
    ++counters.prefix_pages_evicted;
  }
}

}  // namespace kvrm
