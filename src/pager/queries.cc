// What one may ask of the pager.
#include <algorithm>
#include <string>

#include "base/retry_memory.h"
#include "pager/pager_state.h"

namespace kvrm {

// ---- room

uint64_t Pager::State::taken_bytes() const {
  uint64_t bytes = 0;
  for (const Group& group : groups) bytes += group.pool.taken_bytes();
  return bytes;
}

uint64_t Pager::State::MostPages(uint32_t group, uint64_t num_tokens) const {
  return groups[group].pool.geometry().MostPages(num_tokens, step_tokens());
}

uint64_t Pager::State::MostTokens(const uint64_t* free_pages, uint64_t spendable) const {
  const auto bytes_for = [&](uint64_t tokens) {
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < groups.size(); ++g) {
      const KvGroupGeometry& geometry = groups[g].pool.geometry();
      const uint64_t pages = MostPages(g, tokens);
      if (pages <= free_pages[g]) continue;
      const uint64_t per = geometry.pages_per_superblock;
      bytes += (pages - free_pages[g] + per - 1) / per * geometry.superblock_bytes;
    }
    return bytes;
  };
  // The answer is a whole number of pages of some group; it is found to the token. Only a full
  // group bounds it: a window that fits once fits for ever.
  uint64_t fits = 0, too_many = uint64_t{kNone32} + 1;
  for (uint32_t g = 0; g < groups.size(); ++g) {
    const KvGroupGeometry& geometry = groups[g].pool.geometry();
    if (geometry.kind != KvGroupKind::kFull) continue;
    const uint64_t pages =
        free_pages[g] + spendable / geometry.superblock_bytes * geometry.pages_per_superblock;
    too_many = std::min(too_many, pages * geometry.page_tokens + 1);
  }
  while (fits + 1 < too_many) {
    const uint64_t middle = fits + (too_many - fits) / 2;
    (bytes_for(middle) <= spendable ? fits : too_many) = middle;
  }
  return fits;
}

uint64_t Pager::available_tokens(bool with_limbo) const {
  const State& s = *state_;
  uint64_t free_pages[kMaxKvGroups] = {};
  for (uint32_t g = 0; g < s.groups.size(); ++g) {
    free_pages[g] = s.ReachablePages(g) + (with_limbo ? s.groups[g].pool.limbo_pages() : 0);
  }
  return s.MostTokens(free_pages, s.spendable_bytes());
}

uint64_t Pager::available_pages(bool with_limbo) const {
  uint32_t page_tokens = 0;
  for (const State::Group& group : state_->groups) {
    page_tokens = std::max(page_tokens, group.pool.geometry().page_tokens);
  }
  return available_tokens(with_limbo) / page_tokens;
}

uint64_t Pager::max_tokens() const { return state_->max_tokens; }

// ---- sequences

uint32_t Pager::num_tokens(SeqId seq) const { return state_->Find(seq).num_tokens; }

SlotId Pager::slot(SeqId seq) const {
  (void)state_->Find(seq);
  return SlotId{static_cast<uint16_t>(state_->SlotOf(seq))};
}

uint32_t Pager::first_page(SeqId seq, uint32_t group) const {
  (void)state_->Find(seq);
  return state_->groups[group].tables.first(state_->SlotOf(seq));
}

bool Pager::lossy(SeqId seq) const { return state_->Find(seq).lossy; }

uint32_t Pager::completed_tokens(SeqId seq) const {
  return state_->CompletedTokens(state_->Find(seq));
}

std::span<const PageId> Pager::pages(SeqId seq, uint32_t group) const {
  (void)state_->Find(seq);
  const PageTables& tables = state_->groups[group].tables;
  const uint32_t slot = state_->SlotOf(seq);
  return tables.Pages(slot).subspan(tables.first(slot));
}

// ---- groups

std::byte* Pager::base(uint32_t group) const { return state_->groups[group].pool.base(); }
uint64_t Pager::range_bytes(uint32_t group) const {
  return state_->groups[group].pool.range_bytes();
}
uint64_t Pager::spare_bytes(uint32_t group) const {
  return state_->groups[group].pool.spare_bytes();
}
uint64_t Pager::cold_bytes() const {
  uint64_t bytes = 0;
  for (const State::Group& group : state_->groups) bytes += group.pool.cold_bytes();
  return bytes;
}
bool Pager::RunsShort() const {
  const State& s = *state_;
  for (size_t g = 0; g < s.groups.size(); ++g) {
    if (s.deferred_pages[g] > 0 || s.groups[g].pool.RunsShort()) return true;
  }
  return false;
}
const KvGeometry& Pager::geometry() const { return state_->config.geometry; }
PagerBooks Pager::books(uint32_t group) const { return state_->groups[group].pool.books(); }

const PagerCounters& Pager::counters() const {
  PagerCounters& counters = state_->counters;
  counters.superblocks_populated = counters.superblocks_taken_cold = 0;
  counters.superblocks_given_back = 0;
  counters.pages_taken = counters.pages_returned = counters.read_runs = 0;
  counters.prefix_collisions = state_->prefixes == nullptr ? 0 : state_->prefixes->collisions();
  for (const State::Group& group : state_->groups) {
    counters.pages_taken += group.pool.pages_taken();
    counters.pages_returned += group.pool.pages_returned();
    counters.read_runs += group.tables.read_runs();
    counters.superblocks_populated += group.pool.populated();
    counters.superblocks_taken_cold += group.pool.taken_cold();
    counters.superblocks_given_back += group.pool.given_back();
  }
  return counters;
}

// ---- snapshot

bool PagerSnapshot::Group::operator==(const Group&) const = default;

PagerSnapshot Pager::Snapshot() const { return state_->Snapshot(); }

PagerSnapshot Pager::State::Snapshot() const {
  PagerSnapshot snapshot;
  snapshot.kv_bytes = config.kv_bytes;
  snapshot.epoch = epoch;
  snapshot.in_step = in_step;
  snapshot.populated_bytes = populated_bytes();
  snapshot.completed_epoch = completed_epoch;
  for (uint32_t g = 0; g < groups.size(); ++g) {
    const auto& [pool, tables] = groups[g];
    PagerSnapshot::Group& group = snapshot.groups.emplace_back();
    pool.Describe(group);
    DescribePrefixes(g, group);
    group.window_tokens = pool.geometry().window_tokens;
    for (uint32_t slot = 0; slot < slots.size(); ++slot) {
      const PageRun soft = soft_runs[g].Of(slot);
      // A sequence that is closed has its soft run until the commit.
      if (slots[slot].use != SlotUse::kOpen && soft.count == 0) continue;
      PagerSnapshot::Sequence& sequence = group.sequences.emplace_back();
      sequence.seq_id = slots[slot].seq_id;
      sequence.slot = static_cast<uint16_t>(slot);
      sequence.num_tokens = slots[slot].num_tokens;
      sequence.soft_page = soft.count > 0 ? soft.page.value : 0;
      sequence.soft_pages = soft.count;
      sequence.first_page = tables.first(slot);
      sequence.lossy = slots[slot].lossy;
      for (PageId page : tables.Pages(slot).subspan(sequence.first_page)) {
        sequence.pages.push_back(page.value);
      }
    }
  }
  return snapshot;
}

void Pager::State::Check(int tier) const {
  if (KVRM_CHECK_TIER < tier) return;
  std::vector<std::string> violations;
  // A check fails for a law that is broken, not for lack of memory of its own.
  RetryUntilMemory([&] { violations = Validate(Snapshot()); });
  KVRM_CHECK(violations.empty(), violations.front().c_str());
}

}  // namespace kvrm
