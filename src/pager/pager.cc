// The verbs. Each first looks (is there room?), then edits, and every edit leaves a journal entry;
// so a verb that fails has changed nothing, and one that succeeds can be undone.
#include "pager/pager.h"

#include <algorithm>
#include <bit>
#include <new>
#include <string>
#include <utility>

#include "pager/pager_state.h"

namespace kvrm {
namespace {

std::string GroupField(uint32_t group, const char* field) {
  return "geometry.groups[" + std::to_string(group) + "]." + field + ": ";
}

Status CheckGroup(uint32_t index, const KvGroupGeometry& group) {
  const auto invalid = [&](const char* field, uint64_t value, const std::string& limit) {
    return InvalidInput(GroupField(index, field) + std::to_string(value) + ", must be " + limit);
  };
  if (group.kind != KvGroupKind::kFull && group.kind != KvGroupKind::kSliding) {
    return Unsupported(GroupField(index, "kind") +
                       std::to_string(static_cast<unsigned>(group.kind)) +
                       " is not built, only 0 (full) and 1 (sliding)");
  }
  const bool sliding = group.kind == KvGroupKind::kSliding;
  if (sliding ? group.window_tokens < 2 : group.window_tokens != 0) {
    return invalid("window_tokens", group.window_tokens,
                   "at least 2 in a sliding group, 0 in a full one");
  }
  if (!std::has_single_bit(group.page_tokens) || group.page_tokens < 8 || group.page_tokens > 128) {
    return invalid("page_tokens", group.page_tokens, "a power of two from 8 to 128");
  }
  if (group.num_parts == 0) return invalid("num_parts", 0, "at least 1");
  if (group.part_page_bytes == 0) return invalid("part_page_bytes", 0, "at least 1");
  if (group.superblock_bytes > kMaxSuperblockBytes) {
    return invalid("superblock_bytes", group.superblock_bytes,
                   "at most " + std::to_string(kMaxSuperblockBytes));
  }
  if (group.pages_per_superblock == 0 || group.pages_per_superblock > kFreeMapBits) {
    return invalid("pages_per_superblock", group.pages_per_superblock, "1 to 64");
  }
  // By division, because a product of hostile values would wrap.
  if (group.superblock_bytes / group.pages_per_superblock / group.num_parts <
      group.part_page_bytes) {
    return invalid("superblock_bytes", group.superblock_bytes,
                   "at least pages_per_superblock x num_parts x part_page_bytes");
  }
  return Ok();
}

Status CheckConfig(const PagerConfig& config) {
  const auto& groups = config.geometry.groups;
  if (groups.empty() || groups.size() > kMaxKvGroups) {
    return InvalidInput("geometry.groups: " + std::to_string(groups.size()) +
                        " groups, must be 1 to " + std::to_string(kMaxKvGroups));
  }
  uint64_t least_bytes = 0;
  for (uint32_t g = 0; g < groups.size(); ++g) {
    KVRM_RETURN_IF_ERROR(CheckGroup(g, groups[g]));
    least_bytes += groups[g].superblock_bytes;
  }
  if (config.max_slots == 0 || config.max_slots > 0xFFFF) {
    return InvalidInput("max_slots: " + std::to_string(config.max_slots) + ", must be 1 to 65535");
  }
  if (config.max_seq_tokens == 0) return InvalidInput("max_seq_tokens: 0, must be at least 1");
  if (config.kv_bytes < least_bytes) {
    return NoRoom("kv_bytes: " + std::to_string(config.kv_bytes) + ", must be at least " +
                  std::to_string(least_bytes) + " (one superblock for each KV group)");
  }
  for (uint32_t g = 0; g < groups.size(); ++g) {
    const uint64_t pages =
        config.kv_bytes / groups[g].superblock_bytes * groups[g].pages_per_superblock;
    if (pages > kNone32) {
      return InvalidInput("kv_bytes: " + std::to_string(config.kv_bytes) + " are " +
                          std::to_string(pages) + " pages, must be below 2^32");
    }
  }
  return Ok();
}

}  // namespace

Result<std::unique_ptr<Pager>> Pager::Create(const PagerConfig& config) {
  KVRM_RETURN_IF_ERROR(CheckConfig(config));
  try {
    std::vector<State::Group> groups;
    groups.reserve(config.geometry.groups.size());
    for (const KvGroupGeometry& group : config.geometry.groups) {
      const uint64_t superblocks = config.kv_bytes / group.superblock_bytes;
      KVRM_ASSIGN_OR_RETURN(
          VirtualRange range,
          VirtualRange::Reserve(superblocks * group.superblock_bytes, group.superblock_bytes));
      // Different streams, so that no two groups are scattered alike.
      const uint64_t seed = config.scatter_seed == 0 ? 0 : config.scatter_seed + groups.size();
      // In a full group no sequence can hold more pages than there are.
      uint64_t max_pages = PagesFor(config.max_seq_tokens, group.page_tokens);
      if (group.kind == KvGroupKind::kFull) {
        max_pages = std::min(max_pages, superblocks * group.pages_per_superblock);
      }
      groups.push_back({PagePool(group, std::move(range),
                                 {.poison_freed = config.poison_freed,
                                  .scatter_seed = seed,
                                  .lazy_memory = config.lazy_memory}),
                        PageTables(config.max_slots, static_cast<uint32_t>(max_pages),
                                   group.pages_per_superblock,
                                   /*slides=*/group.kind == KvGroupKind::kSliding)});
    }
    auto state = std::make_unique<State>(config, std::move(groups));
    state->Check(/*tier=*/2);
    return std::unique_ptr<Pager>(new Pager(std::move(state)));
  } catch (const std::bad_alloc&) {
    return NoRoom("max_slots x max_seq_tokens: no memory for the page tables of " +
                  std::to_string(config.max_slots) + " x " + std::to_string(config.max_seq_tokens) +
                  " token places");
  }
}

Pager::Pager(std::unique_ptr<State> state) : state_(std::move(state)) {}
Pager::~Pager() = default;

Pager::State::State(const PagerConfig& configuration, std::vector<Group> kv_groups)
    : config(configuration),
      slot_stride(std::bit_ceil(configuration.max_slots)),
      groups(std::move(kv_groups)),
      slots(configuration.max_slots) {
  uint64_t free_pages[kMaxKvGroups] = {};
  uint64_t entries = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    free_pages[g] = groups[g].pool.free_pages();
    soft_runs.emplace_back(config.max_slots);
    entries += groups[g].tables.max_pages();
  }
  max_tokens = MostTokens(free_pages, spendable_bytes());
  MakePrefixIndex();
  for (uint32_t slot = config.max_slots; slot-- > 0;) {
    slots[slot].seq_id = slot;
    free_slots.push_back(static_cast<uint16_t>(slot));
  }
  // Steady steps need a length and at most one new page for each slot and group. A step that fills
  // or drops whole tables in small pieces may grow these once; they never shrink.
  const size_t edits = std::min<size_t>(2 * entries * config.max_slots, size_t{1} << 16) +
                       size_t{8} * config.max_slots * groups.size();
  journal.reserve(edits);
  for (auto& buffer : deltas) buffer.reserve(edits);
  for (auto& buffer : copies) buffer.reserve(config.max_slots * groups.size());
}

// ---- Open, Close

std::optional<SeqId> Pager::Open() {
  State& s = *state_;
  KVRM_CHECK(s.in_step, "an edit outside BeginStep .. Commit");
  if (s.free_slots.empty()) return std::nullopt;
  const uint16_t index = s.free_slots.back();
  s.free_slots.pop_back();
  State::Slot& slot = s.slots[index];
  slot = {State::SlotUse::kOpen, slot.seq_id + s.slot_stride};
  s.journal.push_back({.kind = EditKind::kOpen, .slot = index});
  s.Check(/*tier=*/3);
  return SeqId{slot.seq_id};
}

void Pager::Close(SeqId seq) {
  State& s = *state_;
  Trim(seq, 0);
  State::Slot& slot = s.FindForEdit(seq);
  slot.use = State::SlotUse::kClosing;
  s.journal.push_back({.kind = EditKind::kClose, .slot = static_cast<uint16_t>(s.SlotOf(seq))});
  s.Check(/*tier=*/3);
}

// ---- Reserve

Reservation Pager::Reserve(SeqId seq, uint32_t num_tokens, uint32_t hint_tokens) {
  State& s = *state_;
  const State::Slot& sequence = s.FindForEdit(seq);
  ++s.counters.reserves;
  if (num_tokens <= sequence.num_tokens) return {};
  if (num_tokens > s.config.max_seq_tokens || num_tokens > s.max_tokens) {
    ++s.counters.unserviceable;
    return {ReserveStatus::kUnserviceable, 0};
  }
  const uint32_t slot = s.SlotOf(seq);
  State::Growth growth[kMaxKvGroups] = {};
  for (uint32_t g = 0; g < s.groups.size(); ++g) {
    growth[g] = s.GrowthOf(g, slot, num_tokens, hint_tokens);
  }
  if (const uint32_t missing = s.MissingPages(growth); missing > 0) {
    ++s.counters.deferred;
    s.NoteDeferred(growth);
    return {ReserveStatus::kDeferred, missing};
  }
  // A group may spend on placement (a new superblock where pieces would do) what the groups after
  // it do not need.
  uint64_t needed[kMaxKvGroups] = {};
  for (uint32_t g = 0; g < s.groups.size(); ++g) {
    needed[g] = s.BytesNeeded(g, growth[g].to_take());
  }
  for (uint32_t g = 0; g < s.groups.size(); ++g) {
    s.Grow(g, slot, growth[g], s.ClaimedBytes(needed, g));
    needed[g] = 0;
  }
  s.Slide(slot, sequence.written_tokens);
  s.SetLength(slot, num_tokens, sequence.written_tokens);
  s.Check(/*tier=*/3);
  return {};
}

void Pager::State::SetLength(uint32_t slot, uint32_t num_tokens, uint32_t written_tokens) {
  Slot& sequence = slots[slot];
  if (sequence.num_tokens == num_tokens && sequence.written_tokens == written_tokens) return;
  journal.push_back({.kind = EditKind::kLength,
                     .slot = static_cast<uint16_t>(slot),
                     .index = num_tokens,
                     .old_num_tokens = sequence.num_tokens,
                     .old_written_tokens = sequence.written_tokens});
  sequence.num_tokens = num_tokens;
  sequence.written_tokens = written_tokens;
}

// ---- Alias

Reservation Pager::Alias(SeqId dst, SeqId src, uint32_t num_tokens) {
  State& s = *state_;
  const State::Slot& source = s.FindForEdit(src);
  KVRM_CHECK(s.FindForEdit(dst).num_tokens == 0, "Alias to a sequence that is not empty");
  KVRM_CHECK(num_tokens <= source.num_tokens, "Alias past the end of its source");
  // A copy of its last page is made before this step's rows are written, so it would miss them.
  KVRM_CHECK(num_tokens <= source.written_tokens, "Alias of token places that this step writes");
  if (num_tokens == 0) return {};
  const uint32_t from = s.SlotOf(src), to = s.SlotOf(dst);
  uint32_t first[kMaxKvGroups] = {};
  for (uint32_t g = 0; g < s.groups.size(); ++g) {
    first[g] = s.FirstNeeded(g, num_tokens - 1);  // its last row may be computed once more
    if (source.lossy || first[g] < s.groups[g].tables.first(from)) {
      ++s.counters.unserviceable;
      return {ReserveStatus::kUnserviceable, 0};
    }
  }
  for (uint32_t g = 0; g < s.groups.size(); ++g) {
    const uint32_t page_tokens = s.groups[g].pool.geometry().page_tokens;
    s.Share(g, from, to, first[g], static_cast<uint32_t>(PagesFor(num_tokens, page_tokens)));
  }
  ++s.counters.aliases;
  s.SetLength(to, num_tokens, num_tokens);
  s.slots[to].given_tokens = std::min(num_tokens, s.CompletedTokens(source));
  s.Check(/*tier=*/3);
  return {};
}

void Pager::State::Share(uint32_t group, uint32_t source, uint32_t target, uint32_t first,
                         uint32_t end) {
  const PageTables& tables = groups[group].tables;
  if (first > 0) PushShared(group, target, {kNullPage, first});
  for (uint32_t begin = first; begin < end;) {
    const PageRun run = tables.RunAt(source, begin, end);
    PushShared(group, target, run);
    begin += run.count;
  }
}

void Pager::State::PushShared(uint32_t group, uint32_t target, PageRun run) {
  auto& [pool, tables] = groups[group];
  const uint32_t index = tables.num_pages(target);
  if (!run.holes()) pool.AddReference(run);
  journal.push_back({.kind = EditKind::kShare,
                     .group = static_cast<uint8_t>(group),
                     .slot = static_cast<uint16_t>(target),
                     .extends = tables.Push(target, run),
                     .index = index,
                     .page = run.page.value,
                     .count = run.count});
}

// ---- Trim

void Pager::Trim(SeqId seq, uint32_t from_token) {
  State& s = *state_;
  const State::Slot& sequence = s.FindForEdit(seq);
  ++s.counters.trims;
  if (from_token >= sequence.num_tokens) return;
  KVRM_CHECK(CanTrim(seq, from_token), "PAGER-6: Trim to a place whose window or page is gone");
  const uint32_t slot = s.SlotOf(seq);
  for (uint32_t g = 0; g < s.groups.size(); ++g) {
    const uint32_t page_tokens = s.groups[g].pool.geometry().page_tokens;
    s.DropPages(g, slot, static_cast<uint32_t>(PagesFor(from_token, page_tokens)));
  }
  s.SetLength(slot, from_token, std::min(from_token, sequence.written_tokens));
  s.Check(/*tier=*/3);
}

bool Pager::CanTrim(SeqId seq, uint32_t from_token) const {
  const State& s = *state_;
  if (from_token == 0 || from_token >= s.Find(seq).num_tokens) return true;
  for (uint32_t g = 0; g < s.groups.size(); ++g) {
    const auto& [pool, tables] = s.groups[g];
    const uint32_t slot = s.SlotOf(seq), page_tokens = pool.geometry().page_tokens;
    if (s.FirstNeeded(g, from_token) < tables.first(slot)) return false;
    // No table ends with a hole: its last page may be written again.
    if (tables.Pages(slot)[(from_token - 1) / page_tokens] == kNullPage) return false;
  }
  return true;
}

// From the end, run by run, so that the journal can put them back in reverse.
void Pager::State::DropPages(uint32_t group, uint32_t slot, uint32_t keep_pages) {
  auto& [pool, tables] = groups[group];
  while (tables.num_pages(slot) > keep_pages) {
    const PageRun run = tables.LastRun(slot, keep_pages);
    tables.Pop(slot, run.count);
    if (!run.holes()) pool.DropReference(run, step_epoch());
    journal.push_back({.kind = EditKind::kDrop,
                       .group = static_cast<uint8_t>(group),
                       .slot = static_cast<uint16_t>(slot),
                       .index = tables.num_pages(slot),
                       .page = run.page.value,
                       .count = run.count});
  }
}

// ---- what leaves from the front or the middle

uint32_t Pager::State::FirstNeeded(uint32_t group, uint32_t next_token) const {
  const KvGroupGeometry& geometry = groups[group].pool.geometry();
  if (geometry.kind == KvGroupKind::kFull || next_token < geometry.window_tokens) return 0;
  return (next_token + 1 - geometry.window_tokens) / geometry.page_tokens;
}

void Pager::State::Slide(uint32_t slot, uint32_t next_token) {
  for (uint32_t g = 0; g < groups.size(); ++g) {
    PageTables& tables = groups[g].tables;
    const uint32_t first = tables.first(slot), needed = FirstNeeded(g, next_token);
    if (needed <= first) continue;
    Punch(g, slot, EditKind::kSlide, first, needed);
    counters.slid_pages += needed - first;
  }
}

void Pager::TrimPages(SeqId seq, uint32_t group, uint32_t begin_token, uint32_t end_token) {
  State& s = *state_;
  (void)s.FindForEdit(seq);
  KVRM_CHECK(group < s.groups.size(), "TrimPages in a KV group that does not exist");
  const auto& [pool, tables] = s.groups[group];
  KVRM_CHECK(pool.geometry().kind == KvGroupKind::kFull, "TrimPages in a group that slides");
  const uint32_t slot = s.SlotOf(seq);
  const uint32_t page_tokens = pool.geometry().page_tokens;
  const auto begin = static_cast<uint32_t>(PagesFor(begin_token, page_tokens));
  const uint32_t past_last = tables.num_pages(slot) == 0 ? 0 : tables.num_pages(slot) - 1;
  const uint32_t end = std::min(end_token / page_tokens, past_last);
  ++s.counters.trims;
  if (begin < end) s.Punch(group, slot, EditKind::kCold, begin, end);
  s.Check(/*tier=*/3);
}

// Entries [begin, end) become holes; those that are holes already stay.
void Pager::State::Punch(uint32_t group, uint32_t slot, EditKind kind, uint32_t begin,
                         uint32_t end) {
  auto& [pool, tables] = groups[group];
  while (begin < end) {
    const PageRun run = tables.RunAt(slot, begin, end);
    if (!run.holes()) {
      tables.Punch(slot, begin, run);
      pool.DropReference(run, step_epoch());
      journal.push_back({.kind = kind,
                         .group = static_cast<uint8_t>(group),
                         .slot = static_cast<uint16_t>(slot),
                         .was_lossy = slots[slot].lossy,
                         .index = begin,
                         .page = run.page.value,
                         .count = run.count});
      if (kind == EditKind::kCold) {
        slots[slot].lossy = true;
        counters.cold_pages += run.count;
      }
    }
    begin += run.count;
    if (kind == EditKind::kSlide) tables.set_first(slot, begin);
  }
}

}  // namespace kvrm
