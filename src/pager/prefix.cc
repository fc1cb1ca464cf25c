// The prefix index, seen from the pager: which pages may enter it, and what a sequence takes from
// it. The index knows tokens, the pool knows pages; here they meet, and agree on what is indexed.
#include <algorithm>
#include <array>

#include "pager/pager_state.h"

namespace kvrm {

// One node stands for the same tokens in all groups, so their pages must hold equally many.
void Pager::State::MakePrefixIndex() {
  const uint32_t page_tokens = groups[0].pool.geometry().page_tokens;
  const bool alike = std::all_of(groups.begin(), groups.end(), [&](const Group& group) {
    return group.pool.geometry().page_tokens == page_tokens;
  });
  if (!config.prefix_index || !alike) return;
  PrefixIndex::Config wanted;
  wanted.page_tokens = page_tokens;
  for (const Group& group : groups) {
    const KvGroupGeometry& geometry = group.pool.geometry();
    const uint64_t superblocks = group.pool.range_bytes() / geometry.superblock_bytes;
    wanted.groups.push_back({static_cast<uint32_t>(superblocks * geometry.pages_per_superblock),
                             geometry.window_tokens});
    wanted.max_chain = std::max(wanted.max_chain, group.tables.max_pages());
  }
  wanted.hash_bits = config.prefix_hash_bits;
  prefixes = std::make_unique<PrefixIndex>(wanted);
}

// ---- what is written

uint32_t Pager::State::CompletedTokens(const Slot& slot) const {
  const uint32_t completed =
      slot.given_tokens != kNone32 ? slot.given_tokens : slot.marks.Completed(completed_epoch);
  return std::min(completed, slot.written_tokens);
}

// A kLength edit becomes visible: the rows of this step write up to the new length.
void Pager::State::PublishLength(const Edit& edit) {
  Slot& slot = slots[edit.slot];
  const uint32_t num_tokens = edit.index;
  if (num_tokens < edit.old_num_tokens) {
    slot.marks.Shorten(num_tokens);
    const uint64_t page_tokens = groups[0].pool.geometry().page_tokens;
    if (slot.entered.pages * page_tokens > num_tokens) slot.entered = {};
  } else if (slot.given_tokens != kNone32) {
    slot.marks.Add(completed_epoch, slot.given_tokens, completed_epoch);
  }
  slot.given_tokens = kNone32;
  slot.marks.Add(step_epoch(), num_tokens, completed_epoch);
  slot.written_tokens = slot.num_tokens;
}

void Pager::State::ForgetGiven(Slot& slot) {
  slot.given_tokens = kNone32;
  slot.entered = {};
}

// ---- entering

uint32_t Pager::IndexPrefix(SeqId seq, PrefixSalt salt, std::span<const TokenId> tokens) {
  State& s = *state_;
  KVRM_CHECK(!s.in_step, "IndexPrefix inside a step");
  const uint32_t written = s.CompletedTokens(s.Find(seq));
  const uint32_t slot = s.SlotOf(seq);
  State::Slot& sequence = s.slots[slot];
  if (s.prefixes == nullptr || sequence.lossy) return 0;
  const uint32_t page_tokens = s.prefixes->page_tokens();
  const auto whole_pages =
      static_cast<uint32_t>(std::min<size_t>(tokens.size(), written) / page_tokens);
  uint32_t num_named = 0;
  State::Entered at = s.ResumeEntering(sequence, salt);
  while (at.pages < whole_pages) {
    const auto held = tokens.subspan(size_t{at.pages} * page_tokens, page_tokens);
    const PrefixNode node = s.Enter(slot, at, held, num_named);
    // No node is left, or this page is known by other tokens, so none after it could be found.
    if (node == kNoPrefixNode || !s.prefixes->HasFullGroups(node)) break;
    at = {at.pages + 1, node, s.prefixes->generation(node), salt};
  }
  sequence.entered = at;
  s.counters.prefix_pages_indexed += num_named;
  s.Check(/*tier=*/2);
  return num_named;
}

Pager::State::Entered Pager::State::ResumeEntering(const Slot& slot, const PrefixSalt& salt) const {
  const Entered& entered = slot.entered;
  const bool resumes = entered.pages > 0 && entered.salt == salt &&
                       prefixes->IsAlive(entered.node) &&
                       prefixes->generation(entered.node) == entered.generation &&
                       prefixes->HasFullGroups(entered.node);
  // Pages that it was found by were evicted meanwhile: the sequence's own ones take their place.
  return resumes ? entered : Entered{.salt = salt};
}

// The page after `at` enters the index: its node names pages of `slot` in the groups where it names
// none yet. A page that slid out of its sequence, or that another node names, is not to be had.
PrefixNode Pager::State::Enter(uint32_t slot, const Entered& at, std::span<const TokenId> tokens,
                               uint32_t& num_named) {
  const PrefixNode known = prefixes->Find(at.salt, at.node, tokens);
  std::array<PageId, kMaxKvGroups> pages = {};
  bool any = false;
  for (uint32_t g = 0; g < groups.size(); ++g) {
    const PageId page = groups[g].tables.Pages(slot)[at.pages];
    if (page == kNullPage || prefixes->NodeOf(page, g) != kNoPrefixNode) continue;
    if (known != kNoPrefixNode && prefixes->PageOf(known, g) != kNullPage) continue;
    pages[g] = page;
    any = true;
  }
  if (!any) return known;
  PrefixNode node = known;
  if (known == kNoPrefixNode) {
    node = prefixes->Insert(at.salt, at.node, tokens, std::span(pages).first(groups.size()));
    if (node == kNoPrefixNode) return node;
  }
  for (uint32_t g = 0; g < groups.size(); ++g) {
    if (pages[g] == kNullPage) continue;
    if (known != kNoPrefixNode) prefixes->Link(node, g, pages[g]);
    groups[g].pool.SetIndexed(pages[g], /*indexed=*/true);
    ++num_named;
  }
  return node;
}

// ---- matching and adopting

uint32_t Pager::MatchPrefix(PrefixSalt salt, std::span<const TokenId> tokens) {
  State& s = *state_;
  if (s.prefixes == nullptr) return 0;
  const uint32_t matched = s.prefixes->Match(salt, tokens).num_tokens;
  ++s.counters.prefix_lookups;
  s.counters.prefix_hit_tokens += matched;
  s.counters.prefix_miss_tokens += tokens.size() - matched;
  return matched;
}

Reservation Pager::AdoptPrefix(SeqId dst, PrefixSalt salt, std::span<const TokenId> tokens,
                               uint32_t num_tokens) {
  State& s = *state_;
  KVRM_CHECK(s.FindForEdit(dst).num_tokens == 0, "AdoptPrefix by a sequence that is not empty");
  KVRM_CHECK(num_tokens <= tokens.size(), "AdoptPrefix of more tokens than are given");
  if (num_tokens == 0) return {};
  PrefixIndex::Found found;
  if (s.prefixes != nullptr && num_tokens <= s.config.max_seq_tokens) {
    found = s.prefixes->MatchExactly(salt, tokens, num_tokens);
  }
  if (found.num_tokens != num_tokens) {
    ++s.counters.unserviceable;
    return {ReserveStatus::kUnserviceable, 0};
  }
  const uint32_t slot = s.SlotOf(dst);
  for (uint32_t g = 0; g < s.groups.size(); ++g) s.ShareNodes(g, slot, found);
  s.SetLength(slot, num_tokens, num_tokens);
  State::Slot& sequence = s.slots[slot];
  sequence.given_tokens = num_tokens;
  if (const uint32_t pages = num_tokens / s.prefixes->page_tokens(); pages > 0) {
    const PrefixNode last = found.nodes[pages - 1];
    sequence.entered = {pages, last, s.prefixes->generation(last), salt};
  }
  s.Check(/*tier=*/3);
  return {};
}

void Pager::State::ShareNodes(uint32_t group, uint32_t target, const PrefixIndex::Found& found) {
  const uint32_t first = FirstNeeded(group, found.num_tokens - 1);
  if (first > 0) PushShared(group, target, {kNullPage, first});
  const uint32_t per_superblock = groups[group].pool.geometry().pages_per_superblock;
  const auto page_at = [&](size_t i) { return prefixes->PageOf(found.nodes[i], group); };
  for (size_t i = first; i < found.nodes.size();) {
    PageRun run{page_at(i), 1};
    for (++i; i < found.nodes.size(); ++i, ++run.count) {
      const PageId next{run.page.value + run.count};
      if (page_at(i) != next || next.value % per_superblock == 0) break;
    }
    PushShared(group, target, run);
  }
}

// ---- leaving

uint32_t Pager::State::ForgetPage(uint32_t group, PageId page) {
  const PrefixNode node = prefixes->NodeOf(page, group);
  KVRM_CHECK(node != kNoPrefixNode, "PAGER-9: a cached page is not in the index");
  prefixes->Unlink(node, group);
  return node.value;
}

void Pager::State::RecallPage(uint32_t group, PageId page, uint32_t memo) {
  prefixes->Relink(PrefixNode{memo}, group, page);
}

void Pager::ClearPrefixIndex() {
  State& s = *state_;
  KVRM_CHECK(!s.in_step, "ClearPrefixIndex inside a step");
  if (s.prefixes == nullptr) return;
  for (uint32_t g = 0; g < s.groups.size(); ++g) {
    for (uint32_t page = 1; page < s.prefixes->num_pages(g); ++page) {
      if (s.prefixes->NodeOf(PageId{page}, g) == kNoPrefixNode) continue;
      s.groups[g].pool.SetIndexed(PageId{page}, /*indexed=*/false);
    }
  }
  s.prefixes->Clear();
  s.Check(/*tier=*/2);
}

// What pool and index say of each page that either of them holds for indexed. Where only one does,
// the page that the node names is told as none, which Validate reports.
void Pager::State::DescribePrefixes(uint32_t group, PagerSnapshot::Group& out) const {
  if (prefixes == nullptr) return;
  const PagePool& pool = groups[group].pool;
  out.indexed.clear();
  for (uint32_t page = 0; page < out.reference_counts.size(); ++page) {
    const PrefixNode node = prefixes->NodeOf(PageId{page}, group);
    const bool named = node != kNoPrefixNode, indexed = pool.indexed(PageId{page});
    if (!named && !indexed) continue;
    out.indexed.push_back({page, named ? node.value : kNone32,
                           named && indexed ? prefixes->PageOf(node, group).value : kNone32});
  }
}

}  // namespace kvrm
