// Steps, frames and what the pager says of itself; the verbs stand in heart_verbs.cc.
#include "heart_machine.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kvrm::heart {
namespace {

std::unique_ptr<Pager> MakePager(const PagerConfig& config) {
  auto pager = Pager::Create(config);
  KVRM_CHECK(pager.ok(), "the setup's configuration is sound");
  return std::move(pager).value();
}

std::unique_ptr<FrameBuilder> MakeBuilder(const PagerConfig& config) {
  uint32_t max_pages = 0;
  for (const KvGroupGeometry& group : config.geometry.groups) {
    max_pages = std::max(max_pages, config.max_seq_tokens / group.page_tokens + 1);
  }
  auto builder =
      FrameBuilder::Create(config.geometry, {.max_slots = config.max_slots,
                                             .max_rows = config.max_slots * config.max_seq_tokens,
                                             .max_pages = max_pages});
  KVRM_CHECK(builder.ok(), "the setup's capacity is sound");
  return std::move(builder).value();
}

// The first part in which two snapshots differ.
std::string Difference(const PagerSnapshot& is, const PagerSnapshot& should) {
  for (size_t g = 0; g < is.groups.size(); ++g) {
    const PagerSnapshot::Group &a = is.groups[g], &b = should.groups[g];
    const std::string group = "of group " + std::to_string(g);
    if (a.superblocks != b.superblocks) return "superblocks " + group;
    if (a.reference_counts != b.reference_counts) return "reference counts " + group;
    if (a.limbo != b.limbo) return "limbo " + group;
    if (a.cached != b.cached) return "cached pages " + group;
    if (a.indexed != b.indexed) return "indexed pages " + group;
    if (a.sequences != b.sequences) return "sequences " + group;
    if (a.books != b.books) return "books " + group;
  }
  return is == should ? "" : "epochs or kv_bytes";
}

}  // namespace

HeartMachine::HeartMachine(const Setup& setup, const MachineOptions& options)
    : setup_(setup),
      options_(options),
      config_(setup.Config()),
      slides_(std::any_of(setup.groups.begin(), setup.groups.end(),
                          [](const SetupGroup& group) { return group.window_tokens > 0; })),
      pager_(MakePager(config_)),
      builder_(MakeBuilder(config_)),
      store_(*pager_),
      reader_(*pager_, store_),
      delayed_(*pager_, store_, config_.max_slots),
      oracle_(config_),
      before_step_(oracle_) {}

bool HeartMachine::Expect(bool holds, const char* law, uint64_t is, uint64_t should) {
  if (!holds && !wrong_) {
    wrong_ = std::string(law) + " (is " + std::to_string(is) + ", should be " +
             std::to_string(should) + ")";
  }
  return holds;
}

std::optional<std::string> HeartMachine::Run(const Command& command) {
  switch (command.verb) {
    case Verb::kCommit:
    case Verb::kRollback:
      EndStep(command.verb);
      break;
    case Verb::kAgain:
    case Verb::kDone:
    case Verb::kIndex:
    case Verb::kMatch:
    case Verb::kClear:
    case Verb::kBusy:
    case Verb::kIdle:
      BetweenSteps(command);
      break;
    default:
      if (!in_step_) {
        before_step_ = oracle_;
        snapshot_before_step_ = pager_->Snapshot();
        pager_->BeginStep();
        in_step_ = true;
      }
      edits_.push_back(command);
      Edit(command);
  }
  return wrong_;
}

// ---- the end of a step

void HeartMachine::EndStep(Verb verb) {
  if (!in_step_) Run({.verb = Verb::kBack});  // a step of no edits is a step too
  if (verb == Verb::kRollback) return RollbackStep();
  if (options_.fail_after_every_edit) FailAfterEveryEdit();
  if (!wrong_) Commit();
}

void HeartMachine::FailAfterEveryEdit() {
  const std::vector<Command> edits = edits_;
  for (size_t k = 0; k <= edits.size() && !wrong_; ++k) {
    RollbackStep();
    for (size_t i = 0; i < k && !wrong_; ++i) Run(edits[i]);
    if (k == 0) Run({.verb = Verb::kBack});  // begins the step again
  }
}

void HeartMachine::RollbackStep() {
  ++operations_;
  pager_->RollbackStep();
  oracle_ = before_step_;
  in_step_ = false;
  edits_.clear();
  adopted_.clear();
  mark_.reset();
  evicted_ = pager_->counters().prefix_pages_evicted;
  const PagerSnapshot snapshot = pager_->Snapshot();
  const std::string differs = Difference(snapshot, *snapshot_before_step_);
  Expect(differs.empty(), ("I2: RollbackStep leaves what was before the step: " + differs).c_str());
  CompareAll();
}

void HeartMachine::Commit() {
  ++operations_;
  const uint64_t epoch = ++oracle_.epoch;
  const auto deltas = pager_->Commit(epoch);
  const std::vector<ExpectedSlot> slots = ExpectedSlots();
  for (auto& sequence : oracle_.registers) {
    if (sequence) sequence->written = sequence->length();
  }
  oracle_.closing.clear();
  for (OracleGroup& group : oracle_.groups) group.left.clear();
  in_step_ = false;
  edits_.clear();
  adopted_.clear();
  mark_.reset();
  CompareAll();
  if (wrong_) return;

  const FrameView frame = Publish(slots, deltas);
  if (wrong_) return;
  if (!setup_.delayed) {
    wrong_ = reader_.Run(frame, pager_->page_copies(), slots);
    return;
  }
  if (options_.complete_too_early) Complete(epoch);
  RunPending();
  delayed_.Keep(frame, pager_->page_copies(), slots);
}

void HeartMachine::RunPending() {
  if (!delayed_.HasFrame()) return;
  const uint64_t epoch = delayed_.epoch();
  if (const auto wrong = delayed_.Run(); wrong && !wrong_) wrong_ = wrong;
  if (!wrong_) Complete(epoch);
}

void HeartMachine::Complete(uint64_t epoch) {
  ++operations_;
  pager_->StepDone(epoch);
  oracle_.Complete(epoch);
  ComparePools();
}

// ---- frames

std::vector<ExpectedSlot> HeartMachine::ExpectedSlots() const {
  std::vector<ExpectedSlot> slots;
  for (const auto& sequence : oracle_.registers) {
    if (!sequence) continue;
    const auto adopted = adopted_.find(sequence->slot);
    const bool whole = adopted != adopted_.end() && adopted->second == sequence->length() &&
                       sequence->written == sequence->length() && sequence->length() > 0;
    slots.push_back({.slot = sequence->slot,
                     .first_row = sequence->written,
                     .reads_last_row = whole,
                     .lossy = sequence->lossy,
                     .chain = sequence->chain});
  }
  std::sort(slots.begin(), slots.end(),
            [](const ExpectedSlot& a, const ExpectedSlot& b) { return a.slot < b.slot; });
  return slots;
}

FrameView HeartMachine::Publish(const std::vector<ExpectedSlot>& slots,
                                std::span<const Delta> deltas) {
  std::vector<Row> rows;
  std::vector<SlotHead> heads;
  uint32_t num_logits = 0;
  for (const ExpectedSlot& slot : slots) {
    SlotHead& head = heads.emplace_back();
    head = {};
    head.slot = static_cast<uint16_t>(slot.slot);
    head.seq_id = slot.slot;
    head.flags = slot.lossy ? kSlotLossyView : 0;
    head.row_begin = static_cast<uint32_t>(rows.size());
    for (size_t g = 0; g < oracle_.groups.size(); ++g) head.num_tokens[g] = slot.length();
    for (uint32_t place = slot.first_reader(); place < slot.length(); ++place) {
      Row& row = rows.emplace_back();
      row = {};
      row.slot = head.slot;
      row.position = row.kv_index = place;
      row.mask_id = kNone32;
      row.lse_target = -1;
      row.flags = place < slot.first_row ? kRowNoWrite : 0;
      row.logits_idx = kNone32;
      if (place + 1 == slot.length()) {
        row.flags |= kRowWantLogits;
        row.logits_idx = num_logits++;
      }
    }
    head.num_rows = static_cast<uint32_t>(rows.size()) - head.row_begin;
  }
  const FrameView frame = builder_->Publish(oracle_.epoch, rows, heads, deltas);
  if (oracle_.epoch % options_.validate_frame_every == 0) {
    const bool follows = last_head_.epoch + 1 == oracle_.epoch && oracle_.epoch > 1;
    const auto wrong = ValidateFrame(config_.geometry, frame, follows ? &last_head_ : nullptr);
    if (!wrong.empty() && !wrong_) wrong_ = wrong.front();
  }
  last_head_ = *frame.head;
  Expect(builder_->LastReads().runs == pager_->counters().read_runs,
         "pager and frame count the same read runs", builder_->LastReads().runs,
         pager_->counters().read_runs);
  for (const auto& sequence : oracle_.registers) {
    for (uint32_t g = 0; sequence && g < oracle_.groups.size(); ++g) {
      const Table& pages = sequence->pages[g];
      Expect(std::equal(pages.begin(), pages.end(), frame.SlotPages(g, sequence->slot)),
             "the frame's dense table is the pager's", g);
    }
  }
  return frame;
}

// ---- what the pager says

HeartMachine::Table HeartMachine::TableOf(SeqId seq, uint32_t group) const {
  Table table(pager_->first_page(seq, group));
  for (const PageId page : pager_->pages(seq, group)) table.push_back(page.value);
  return table;
}

void HeartMachine::CompareSequence(const OracleSequence& sequence) {
  Expect(pager_->num_tokens(sequence.id) == sequence.length(), "the length of a sequence",
         pager_->num_tokens(sequence.id), sequence.length());
  Expect(pager_->slot(sequence.id).value == sequence.slot, "a sequence stays in its slot");
  Expect(pager_->lossy(sequence.id) == sequence.lossy, "lossy is what TrimPages made so",
         pager_->lossy(sequence.id), sequence.lossy);
  for (uint32_t g = 0; g < oracle_.groups.size(); ++g) {
    Expect(TableOf(sequence.id, g) == sequence.pages[g], "the pages of a sequence", g);
  }
}

void HeartMachine::ComparePools() {
  for (uint32_t g = 0; g < oracle_.groups.size(); ++g) {
    const PagerBooks books = pager_->books(g);
    const OracleGroup& group = oracle_.groups[g];
    Expect(books.in_use == group.used() + 1, "pages in use", books.in_use, group.used() + 1);
    Expect(books.limbo == group.limbo.size(), "pages in limbo", books.limbo, group.limbo.size());
    Expect(books.cached == group.cached.size(), "cached pages", books.cached, group.cached.size());
    Expect(books.total == books.superblocks * config_.geometry.groups[g].pages_per_superblock,
           "pages of the superblocks taken", books.total);
  }
  if (oracle_.groups.size() == 1 && config_.geometry.groups[0].window_tokens == 0) {
    const OracleGroup& group = oracle_.groups[0];
    const uint64_t available = group.references.size() - 1 - group.used() - group.limbo.size();
    Expect(pager_->available_pages(/*with_limbo=*/false) == available, "pages that are available",
           pager_->available_pages(/*with_limbo=*/false), available);
    Expect(pager_->available_pages(/*with_limbo=*/true) == available + group.limbo.size(),
           "pages that will be available", pager_->available_pages(/*with_limbo=*/true),
           available + group.limbo.size());
  }
}

void HeartMachine::CompareSnapshot() {
  const PagerSnapshot snapshot = pager_->Snapshot();
  const auto violations = Validate(snapshot);
  if (!violations.empty() && !wrong_) wrong_ = violations.front();
  for (size_t g = 0; g < oracle_.groups.size(); ++g) {
    const PagerSnapshot::Group& is = snapshot.groups[g];
    const OracleGroup& should = oracle_.groups[g];
    Expect(std::equal(is.limbo.begin(), is.limbo.end(), should.limbo.begin(), should.limbo.end(),
                      [](const PagerSnapshot::LimboPage& a, const auto& b) {
                        return a.page == b.first && a.epoch == b.second;
                      }),
           "the pages in limbo and their epochs", g);
    Expect(
        std::equal(is.cached.begin(), is.cached.end(), should.cached.begin(), should.cached.end()),
        "the cached pages", g);
    Expect(
        std::equal(
            is.indexed.begin(), is.indexed.end(), should.indexed.begin(), should.indexed.end(),
            [](const PagerSnapshot::IndexedPage& a, const auto& b) { return a.page == b.first; }),
        "the indexed pages", g);
  }
}

void HeartMachine::CompareAll() {
  ComparePools();
  for (const auto& sequence : oracle_.registers) {
    if (sequence) CompareSequence(*sequence);
  }
  CompareSnapshot();
}

// Which cached pages were given up is the pager's choice; that they were cached, is not.
void HeartMachine::NoticeEvictions() {
  if (pager_->counters().prefix_pages_evicted == evicted_) return;
  evicted_ = pager_->counters().prefix_pages_evicted;
  const PagerSnapshot snapshot = pager_->Snapshot();
  for (size_t g = 0; g < oracle_.groups.size(); ++g) {
    std::set<uint32_t> is;
    for (const auto& entry : snapshot.groups[g].indexed) is.insert(entry.page);
    const auto indexed = oracle_.groups[g].indexed;
    for (const auto& [page, key] : indexed) {
      if (is.contains(page)) continue;
      Expect(oracle_.groups[g].cached.contains(page), "only cached pages are evicted", page);
      oracle_.Forget(g, page);
    }
  }
}

// Where a savepoint put the pages that nobody names is the pager's choice, within the law that a
// page which a published frame named, or a copy may read, rests.
void HeartMachine::NoticeRolledBackPages() {
  const PagerSnapshot snapshot = pager_->Snapshot();
  for (size_t g = 0; g < oracle_.groups.size(); ++g) {
    OracleGroup& group = oracle_.groups[g];
    const OracleGroup& before = before_step_.groups[g];
    group.limbo.clear();
    for (const auto& entry : snapshot.groups[g].limbo) group.limbo[entry.page] = entry.epoch;
    group.cached = {snapshot.groups[g].cached.begin(), snapshot.groups[g].cached.end()};
    for (uint32_t page = 1; page < group.references.size(); ++page) {
      const auto limbo = group.limbo.find(page);
      const bool rests = limbo != group.limbo.end();
      if (group.references[page] > 0) {
        Expect(!rests && !group.cached.contains(page), "a page in use rests nowhere", page);
      } else if (before.references[page] > 0) {
        Expect(rests && limbo->second == oracle_.epoch + 1, "a page that left rests", page);
      } else if (const auto rested = before.limbo.find(page); rested != before.limbo.end()) {
        Expect(rests && limbo->second >= rested->second, "a page in limbo stays there", page);
      } else if (before.cached.contains(page)) {
        Expect(rests || group.cached.contains(page) || !group.indexed.contains(page),
               "a cached page stays cached, or was evicted", page);
      } else {
        Expect(!group.cached.contains(page), "a page that was free is not cached", page);
      }
    }
  }
}

// ---- the whole

std::optional<std::string> HeartMachine::Finish() {
  if (in_step_) Run({.verb = Verb::kCommit});
  for (uint32_t seq = 0; seq < kRegisters && !wrong_; ++seq) {
    Run({.verb = Verb::kClose, .seq = seq});
  }
  for (const Verb verb : {Verb::kCommit, Verb::kDone, Verb::kClear, Verb::kIdle}) {
    if (!wrong_) Run({.verb = verb});
  }
  for (int chores = 0; !wrong_ && pager_->Maintain(Pager::Load::kIdle); ++chores) {
    Expect(chores < 1000, "chores come to an end");
  }
  for (uint32_t g = 0; g < oracle_.groups.size(); ++g) {
    const PagerBooks books = pager_->books(g);
    Expect(books.in_use == 1 && books.limbo + books.cached == 0, "everything comes back", g);
    Expect(books.superblocks == 1, "an idle pool keeps the null page's superblock alone",
           books.superblocks, 1);
  }
  if (!wrong_) CompareAll();
  return wrong_;
}

std::optional<std::string> RunScript(const Script& script, const MachineOptions& options) {
  HeartMachine machine(Setups()[script.setup], options);
  for (size_t i = 0; i < script.commands.size(); ++i) {
    if (const auto wrong = machine.Run(script.commands[i])) {
      return "at " + ToText(script.commands[i]) + " (command " + std::to_string(i + 1) +
             "): " + *wrong;
    }
  }
  if (const auto wrong = machine.Finish()) return "at the end: " + *wrong;
  return std::nullopt;
}

}  // namespace kvrm::heart
