// One verb each: what the oracle says of it, what the pager did, and whether the two agree.
#include <algorithm>
#include <utility>

#include "heart_machine.h"

namespace kvrm::heart {

void HeartMachine::Edit(const Command& command) {
  const auto& sequence = oracle_.registers[command.seq];
  if (command.verb == Verb::kOpen) return Open(command);
  if (command.verb == Verb::kBack) return Rollback();
  if (!sequence) return;
  switch (command.verb) {
    case Verb::kClose:
      return Close(command.seq);
    case Verb::kGrow: {
      const uint32_t tokens = sequence->length() + command.n;
      return Reserve(command.seq, tokens, command.m == 0 ? 0 : tokens + command.m);
    }
    case Verb::kReserve:
      return Reserve(command.seq, command.n, command.m);
    case Verb::kAlias:
      return Alias(command.seq, command.other, command.n);
    case Verb::kTrim:
      return Trim(command.seq, command.n);
    case Verb::kCut:
      return Trim(command.seq, sequence->length() - std::min(sequence->length(), command.n));
    case Verb::kCold:
      return TrimPages(command);
    case Verb::kText:
      oracle_.registers[command.seq]->text = command.n % kTexts;
      return;
    case Verb::kMark:
      mark_ = {pager_->Mark(sequence->id), command.seq, *sequence};
      return;
    case Verb::kAdopt:
      return Adopt(command);
    default:
      return;
  }
}

// ---- sequences

void HeartMachine::Open(const Command& command) {
  // A register whose sequence a savepoint may bring back is not given to another.
  if (oracle_.registers[command.seq] || (mark_ && mark_->seq == command.seq)) return;
  ++operations_;
  const bool room = oracle_.OpenSequences() + oracle_.closing.size() < config_.max_slots;
  const auto id = pager_->Open();
  if (!Expect(id.has_value() == room, "Open finds a slot when one is free") || !id) return;
  OracleSequence& sequence = oracle_.registers[command.seq].emplace();
  sequence.id = *id;
  sequence.slot = pager_->slot(*id).value;
  sequence.text = command.n % kTexts;
  sequence.salt = SaltOf(command.other);
  sequence.pages.resize(oracle_.groups.size());
  for (const auto& other : oracle_.registers) {
    Expect(!other || &*other == &sequence || other->slot != sequence.slot,
           "a slot is one sequence's", sequence.slot);
  }
  Expect(!oracle_.closing.contains(sequence.slot), "a slot is free only after the commit");
  CompareSequence(sequence);
}

void HeartMachine::Close(uint32_t seq) {
  ++operations_;
  pager_->Close(oracle_.registers[seq]->id);
  oracle_.closing.insert(oracle_.registers[seq]->slot);
  oracle_.registers[seq].reset();
  oracle_.Settle();
  ComparePools();
}

// ---- Reserve

uint64_t HeartMachine::FreePages(size_t group) const {
  const OracleGroup& pages = oracle_.groups[group];
  return pager_->books(static_cast<uint32_t>(group)).total - 1 - pages.used() - pages.limbo.size();
}

// A last page that is partly filled is written again: a copy if others name it or the index does.
// One that lost a reference in this step may be copied too, because its owner may come back.
std::vector<HeartMachine::Need> HeartMachine::NeedOf(const OracleSequence& sequence,
                                                     uint32_t tokens) const {
  std::vector<Need> needs;
  for (size_t g = 0; g < oracle_.groups.size(); ++g) {
    const OracleGroup& group = oracle_.groups[g];
    const Table& pages = sequence.pages[g];
    Need& need = needs.emplace_back();
    need.pages = oracle_.PagesFor(g, tokens) - pages.size();
    if (sequence.length() % oracle_.geometry(g).page_tokens == 0) continue;
    need.copies = group.references[pages.back()] > 1 || group.indexed.contains(pages.back());
    need.may_copy = need.copies || group.left.contains(pages.back());
  }
  return needs;
}

bool HeartMachine::Fits(const std::vector<Need>& needs, bool with_optional_copies) const {
  uint64_t spendable = config_.kv_bytes, needed = 0;
  for (uint32_t g = 0; g < needs.size(); ++g) {
    const KvGroupGeometry& geometry = oracle_.geometry(g);
    spendable -= pager_->books(g).superblock_bytes;
    const bool copies = with_optional_copies ? needs[g].may_copy : needs[g].copies;
    const uint64_t pages = needs[g].pages + (copies ? 1 : 0), free = FreePages(g);
    const uint64_t per = geometry.pages_per_superblock;
    const uint64_t superblocks = pages <= free ? 0 : (pages - free + per - 1) / per;
    // What a group holds ready, no other can have before Maintain.
    needed += std::max(pager_->spare_bytes(g), superblocks * geometry.superblock_bytes);
  }
  return needed <= spendable;
}

void HeartMachine::CheckMissing(const std::vector<Need>& needs, uint32_t missing_pages) {
  if (needs.size() > 1) {
    Expect(missing_pages > 0, "a deferred sequence misses pages");
    return;
  }
  const OracleGroup& group = oracle_.groups[0];
  const uint64_t room = group.references.size() - 1 - group.used() - group.limbo.size();
  const uint64_t least = needs[0].pages + (needs[0].copies ? 1 : 0) - room;
  const uint64_t most = needs[0].pages + (needs[0].may_copy ? 1 : 0) - room;
  Expect(missing_pages >= least && missing_pages <= most, "the pages that are missing",
         missing_pages, most);
}

void HeartMachine::Reserve(uint32_t seq, uint32_t tokens, uint32_t hint) {
  OracleSequence& sequence = *oracle_.registers[seq];
  ++operations_;
  const uint32_t length = sequence.length();
  if (tokens <= length) {
    Expect(pager_->Reserve(sequence.id, tokens, hint).status == ReserveStatus::kOk,
           "places that exist can be reserved");
    return CompareSequence(sequence);
  }
  if (tokens > config_.max_seq_tokens || tokens > pager_->max_tokens()) {
    Expect(pager_->Reserve(sequence.id, tokens, hint).status == ReserveStatus::kUnserviceable,
           "more places than a sequence may have are unserviceable", tokens);
    return CompareSequence(sequence);
  }
  const std::vector<Need> needs = NeedOf(sequence, tokens);
  const bool fits = Fits(needs, /*with_optional_copies=*/true);
  std::optional<PagerSnapshot> before;
  if (!fits) before = pager_->Snapshot();
  const bool fits_without = fits || Fits(needs, /*with_optional_copies=*/false);
  const Reservation reservation = pager_->Reserve(sequence.id, tokens, hint);
  if (reservation.status != ReserveStatus::kOk) {
    Expect(reservation.status == ReserveStatus::kDeferred && !fits,
           "Reserve succeeds where there is room", needs[0].pages, FreePages(0));
    CheckMissing(needs, reservation.missing_pages);
    Expect(!before || pager_->Snapshot() == *before, "a failed Reserve changes nothing");
    return CompareSequence(sequence);
  }
  if (!Expect(fits_without, "no Reserve succeeds without room", needs[0].pages, FreePages(0))) {
    return;
  }
  NoticeEvictions();
  for (uint32_t g = 0; g < oracle_.groups.size() && !wrong_; ++g) {
    TakeTable(sequence, g, tokens, needs[g]);
  }
  while (sequence.length() < tokens) {
    sequence.Append(TokenOf(sequence.text, sequence.length()), oracle_.epoch + 1);
  }
  oracle_.Settle();
  CompareSequence(sequence);
  ComparePools();
}

// The table that a Reserve left: what slid out, what was copied, what is fresh.
void HeartMachine::TakeTable(OracleSequence& sequence, uint32_t group, uint32_t tokens,
                             const Need& need) {
  const Table old = sequence.pages[group], table = TableOf(sequence.id, group);
  const uint32_t page_tokens = oracle_.geometry(group).page_tokens;
  const uint32_t first = oracle_.FirstPage(group, sequence.written);
  if (!Expect(table.size() == oracle_.PagesFor(group, tokens), "PAGER-6: a table's end",
              table.size(), oracle_.PagesFor(group, tokens))) {
    return;
  }
  bool copied = false;
  for (uint32_t i = 0; i < table.size(); ++i) {
    if (i < first && oracle_.geometry(group).window_tokens > 0) {
      Expect(table[i] == 0, "what no row sees any more slides out", i);
      continue;
    }
    if (i < old.size() && table[i] == old[i]) continue;
    const bool is_last = i + 1 == old.size() && sequence.length() % page_tokens != 0;
    if (i < old.size()) {
      Expect(is_last && need.may_copy, "only a shared page is replaced", i);
      copied = true;
    }
    Expect(oracle_.groups[group].IsFree(table[i]), "only a free page is handed out", table[i]);
    Expect(std::count(table.begin(), table.end(), table[i]) == 1, "a page is handed out once",
           table[i]);
  }
  Expect(copied || !need.copies, "a shared page is copied before it is written", group);
  sequence.pages[group] = table;
}

// ---- Alias

void HeartMachine::Alias(uint32_t seq, uint32_t source_register, uint32_t most_tokens) {
  OracleSequence& sequence = *oracle_.registers[seq];
  const auto& source = oracle_.registers[source_register];
  if (!source || source_register == seq || sequence.length() > 0) return;
  ++operations_;
  const uint32_t tokens = std::min({most_tokens, source->written, source->length()});
  bool may = !source->lossy, must_not = source->lossy;
  for (size_t g = 0; g < oracle_.groups.size() && tokens > 0; ++g) {
    const uint32_t end = oracle_.PagesFor(g, tokens);
    may = may && oracle_.Holds(*source, g, oracle_.FirstPage(g, tokens - 1), end);
    must_not = must_not || !oracle_.Holds(*source, g, oracle_.FirstPage(g, tokens), end);
  }
  const ReserveStatus status = pager_->Alias(sequence.id, source->id, tokens).status;
  if (tokens == 0 || status == ReserveStatus::kUnserviceable) {
    Expect(tokens == 0 || !may, "Alias shares what its source holds", tokens);
    return CompareSequence(sequence);
  }
  Expect(status == ReserveStatus::kOk && !must_not, "Alias of what slid out is unserviceable");
  sequence.salt = source->salt;
  for (uint32_t place = 0; place < tokens; ++place) {
    sequence.Append(source->tokens[place], source->epochs[place]);
  }
  sequence.written = tokens;
  for (uint32_t g = 0; g < oracle_.groups.size(); ++g) {
    sequence.pages[g] = TableOf(sequence.id, g);
    const Table& table = sequence.pages[g];
    if (!Expect(table.size() == oracle_.PagesFor(g, tokens), "PAGER-6: an alias' end")) return;
    for (uint32_t i = 0; i < table.size(); ++i) {
      const bool slid = table[i] == 0 && i < oracle_.FirstPage(g, tokens);
      Expect(slid || table[i] == source->pages[g][i], "an alias names the pages of its source", i);
    }
  }
  oracle_.Settle();
  CompareSequence(sequence);
  ComparePools();
}

// ---- Trim

void HeartMachine::Trim(uint32_t seq, uint32_t from) {
  OracleSequence& sequence = *oracle_.registers[seq];
  const bool can = oracle_.CanTrim(sequence, from);
  Expect(pager_->CanTrim(sequence.id, from) == can, "CanTrim where the window is held", from);
  if (!can || wrong_) return;
  ++operations_;
  pager_->Trim(sequence.id, from);
  if (from < sequence.length()) {
    sequence.Truncate(from);
    for (size_t g = 0; g < oracle_.groups.size(); ++g) {
      sequence.pages[g].resize(oracle_.PagesFor(g, from));
    }
  }
  oracle_.Settle();
  CompareSequence(sequence);
  ComparePools();
}

void HeartMachine::TrimPages(const Command& command) {
  OracleSequence& sequence = *oracle_.registers[command.seq];
  const auto group = static_cast<uint32_t>(command.other % oracle_.groups.size());
  // A place that a row of this step writes is not cold.
  const uint32_t end = std::min(command.n + command.m, sequence.written);
  if (oracle_.geometry(group).window_tokens > 0 || end <= command.n) return;
  ++operations_;
  pager_->TrimPages(sequence.id, group, command.n, end);
  const uint32_t page_tokens = oracle_.geometry(group).page_tokens;
  Table& pages = sequence.pages[group];
  for (uint32_t i = 0; i + 1 < pages.size(); ++i) {
    if (i * page_tokens < command.n || (i + 1) * page_tokens > end || pages[i] == 0) continue;
    pages[i] = 0;
    sequence.lossy = true;
  }
  oracle_.Settle();
  CompareSequence(sequence);
  ComparePools();
}

// ---- Rollback

void HeartMachine::Rollback() {
  if (!mark_) return;
  ++operations_;
  pager_->Rollback(mark_->savepoint);
  if (mark_->sequence.length() == 0) adopted_.erase(mark_->sequence.slot);
  oracle_.registers[mark_->seq] = mark_->sequence;
  oracle_.closing.erase(mark_->sequence.slot);
  oracle_.Settle();
  NoticeRolledBackPages();
  mark_.reset();
  for (const auto& sequence : oracle_.registers) {
    if (sequence) CompareSequence(*sequence);
  }
  ComparePools();
}

// ---- the prefix index

namespace {

std::vector<TokenId> PromptOf(uint32_t text, uint32_t tokens) {
  std::vector<TokenId> prompt;
  for (uint32_t place = 0; place < tokens; ++place) prompt.push_back(TokenOf(text, place));
  return prompt;
}

}  // namespace

void HeartMachine::Match(const Command& command) {
  ++operations_;
  const auto prompt = PromptOf(command.n % kTexts, std::min(command.m, config_.max_seq_tokens));
  const PrefixSalt salt = SaltOf(command.other);
  const uint32_t most = setup_.prefix_index ? oracle_.MostToAdopt(salt, prompt) : 0;
  const uint32_t match = pager_->MatchPrefix(salt, prompt);
  // Beside a sliding group a partial last page may be missed, a whole one not: of the pages that
  // follow only the one with most tokens in common is looked at, and its window may have gone.
  uint32_t least = most;
  if (slides_) {
    const uint32_t page_tokens = oracle_.geometry(0).page_tokens;
    least = most / page_tokens * page_tokens;
    while (!oracle_.CanAdopt(salt, std::span(prompt).first(least))) least -= page_tokens;
  }
  Expect(match >= least && match <= most,
         "MatchPrefix finds the longest prefix that the index holds", match, most);
  Expect(match == most || oracle_.CanAdopt(salt, std::span(prompt).first(match)),
         "what MatchPrefix finds can be adopted", match);
}

// Adopts what a match finds, less a few tokens for odd numbers; and one more than there is fails.
void HeartMachine::Adopt(const Command& command) {
  OracleSequence& sequence = *oracle_.registers[command.seq];
  if (sequence.length() > 0) return;
  const auto prompt = PromptOf(command.n % kTexts, std::min(command.m, config_.max_seq_tokens));
  const PrefixSalt salt = SaltOf(command.other);
  const uint32_t match = pager_->MatchPrefix(salt, prompt);
  Match(command);
  if (wrong_) return;
  if (match < prompt.size() && !oracle_.CanAdopt(salt, std::span(prompt).first(match + 1))) {
    Expect(pager_->AdoptPrefix(sequence.id, salt, prompt, match + 1).status ==
               ReserveStatus::kUnserviceable,
           "no more than MatchPrefix found can be adopted", match + 1);
    CompareSequence(sequence);
  }
  const uint32_t tokens = match - std::min(match, command.m % 4);
  if (tokens == 0 || wrong_) return;
  ++operations_;
  const auto part = std::span(prompt).first(tokens);
  const bool can = oracle_.CanAdopt(salt, part);
  const ReserveStatus status = pager_->AdoptPrefix(sequence.id, salt, prompt, tokens).status;
  const bool ok = status == ReserveStatus::kOk;
  Expect(can || !ok, "AdoptPrefix only of what the index holds", tokens, match);
  Expect(ok || !can || (slides_ && tokens < match), "what MatchPrefix found can be adopted", tokens,
         match);
  if (!ok || wrong_) return CompareSequence(sequence);
  sequence.salt = salt;
  sequence.text = command.n % kTexts;
  for (const TokenId token : part) sequence.Append(token, 0);
  sequence.written = tokens;
  sequence.entered_tokens = tokens;
  adopted_[sequence.slot] = tokens;
  for (uint32_t g = 0; g < oracle_.groups.size(); ++g) {
    const uint32_t page_tokens = oracle_.geometry(g).page_tokens;
    const Table table = TableOf(sequence.id, g);
    if (!Expect(table.size() == oracle_.PagesFor(g, tokens), "PAGER-6: an adopted end")) return;
    for (uint32_t i = 0; i < table.size(); ++i) {
      const bool unseen = i < oracle_.FirstPage(g, tokens - 1);
      const uint32_t begin = i * page_tokens;
      const auto held = part.subspan(begin, std::min(page_tokens, tokens - begin));
      Expect((unseen && table[i] == 0) ||
                 oracle_.Matches(g, table[i], sequence.chain_before(begin), held),
             "an adopted page holds the prompt's tokens", i);
    }
    sequence.pages[g] = table;
  }
  oracle_.Settle();
  CompareSequence(sequence);
  ComparePools();
}

void HeartMachine::Index(uint32_t seq) {
  auto& sequence = oracle_.registers[seq];
  if (!sequence) return;
  ++operations_;
  const uint32_t page_tokens = oracle_.geometry(0).page_tokens;
  // The pager remembers a bounded number of epochs, so it may know of less while some still run.
  const uint32_t most = oracle_.CompletedTokens(*sequence);
  const uint32_t completed = pager_->completed_tokens(sequence->id);
  Expect(completed <= most, "only what completed epochs wrote is written", completed, most);
  Expect(oracle_.completed < oracle_.epoch || completed / page_tokens == most / page_tokens,
         "the places whose contents are written", completed, most);
  struct Candidate {
    uint32_t group, index, page;
  };
  std::vector<Candidate> candidates;
  for (uint32_t i = 0; i < completed / page_tokens; ++i) {
    if (!setup_.prefix_index || sequence->lossy) break;
    const auto node = oracle_.nodes.find(sequence->chain[(i + 1) * page_tokens - 1]);
    bool stands = node != oracle_.nodes.end();
    for (uint32_t g = 0; g < oracle_.groups.size(); ++g) {
      const uint32_t page = sequence->pages[g][i];
      if (page == 0 || (node != oracle_.nodes.end() && node->second.pages[g] != 0)) continue;
      if (oracle_.groups[g].indexed.contains(page)) continue;
      candidates.push_back({g, i, page});
      stands = true;
    }
    if (!stands) break;  // what follows would have no parent
  }
  const uint32_t entered = pager_->IndexPrefix(sequence->id, sequence->salt, sequence->tokens);
  const PagerSnapshot snapshot = pager_->Snapshot();
  uint32_t found = 0;
  for (const Candidate& candidate : candidates) {
    const auto& indexed = snapshot.groups[candidate.group].indexed;
    const auto is_it = [&](const auto& entry) { return entry.page == candidate.page; };
    if (std::any_of(indexed.begin(), indexed.end(), is_it)) {
      oracle_.Enter(*sequence, candidate.group, candidate.index, candidate.page);
      ++found;
      continue;
    }
    // It goes on where it stood: what others entered before that, and was evicted, stays away.
    Expect((candidate.index + 1) * page_tokens <= sequence->entered_tokens,
           "IndexPrefix enters the full pages that are written", candidate.index,
           candidates.size());
  }
  sequence->entered_tokens = completed / page_tokens * page_tokens;
  Expect(entered == found, "IndexPrefix counts what it enters", entered, found);
  NoticeEvictions();
  CompareSnapshot();
}

void HeartMachine::Clear() {
  ++operations_;
  pager_->ClearPrefixIndex();
  for (OracleGroup& group : oracle_.groups) {
    group.indexed.clear();
    group.cached.clear();
  }
  oracle_.nodes.clear();
  evicted_ = pager_->counters().prefix_pages_evicted;
  CompareSnapshot();
  ComparePools();
}

void HeartMachine::Maintain(Pager::Load load) {
  ++operations_;
  (void)pager_->Maintain(load);
  NoticeEvictions();
  ComparePools();
}

void HeartMachine::BetweenSteps(const Command& command) {
  if (in_step_) return;
  switch (command.verb) {
    case Verb::kAgain: {
      ++operations_;
      const PagerSnapshot once = pager_->Snapshot();
      const auto deltas = pager_->Commit(oracle_.epoch);
      Expect(pager_->Commit(oracle_.epoch).data() == deltas.data() && pager_->Snapshot() == once,
             "committing an epoch twice is a no-op");
      return;
    }
    case Verb::kDone:
      if (setup_.delayed) return RunPending();
      return Complete(oracle_.epoch - std::min<uint64_t>(oracle_.epoch, command.n % 3));
    case Verb::kIndex:
      return Index(command.seq);
    case Verb::kMatch:
      return Match(command);
    case Verb::kClear:
      return Clear();
    default:
      return Maintain(command.verb == Verb::kIdle ? Pager::Load::kIdle : Pager::Load::kBusy);
  }
}

}  // namespace kvrm::heart
