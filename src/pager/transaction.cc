// One step as one transaction: the journal that the verbs wrote is undone from its end, or
// published from its beginning.
#include <algorithm>
#include <string>

#include "pager/pager_state.h"

namespace kvrm {

void Pager::BeginStep() {
  State& s = *state_;
  KVRM_CHECK(!s.in_step, "BeginStep inside a step");
  s.in_step = true;
  s.deferred_pages = {};
  for (State::Group& group : s.groups) group.pool.BeginStep();
}

// ---- undo

// The exact inverse of what wrote `edit`. Requires: every later edit that touches the same sequence
// or pages has been undone.
void Pager::State::Undo(const Edit& edit) {
  auto& [pool, tables] = groups[edit.group];
  const PageRun run{PageId{edit.page}, edit.count};
  switch (edit.kind) {
    case EditKind::kOpen:
      slots[edit.slot].use = SlotUse::kFree;
      free_slots.push_back(edit.slot);
      return;
    case EditKind::kClose:
      slots[edit.slot].use = SlotUse::kOpen;
      return;
    case EditKind::kLength:
      slots[edit.slot].num_tokens = edit.old_num_tokens;
      slots[edit.slot].written_tokens = edit.old_written_tokens;
      if (edit.old_num_tokens == 0) ForgetGiven(slots[edit.slot]);
      return;
    case EditKind::kTakeSuperblock:
      pool.UntakeSuperblock(SuperblockId{edit.page});
      return;
    case EditKind::kAppend:
      tables.Pop(edit.slot, edit.count);
      if (!edit.soft) return pool.Untake(run);
      pool.ReturnSoft(run);
      soft_runs[edit.group].Add(edit.slot, run, SoftRuns::Age::kYoungest);
      return;
    case EditKind::kTakeSoft:
      soft_runs[edit.group].RemoveFirst(edit.slot, edit.count);
      pool.ReleaseSoft(run);
      return;
    case EditKind::kReleaseSoft:
      pool.UndoReleaseSoft(run);
      soft_runs[edit.group].Add(edit.old_page, run, SoftRuns::Age::kOldest);
      return;
    case EditKind::kShare:
      tables.Pop(edit.slot, edit.count);
      if (!run.holes()) pool.UndoReference(run, step_epoch());
      return;
    case EditKind::kDrop:
      tables.Push(edit.slot, run);
      if (!run.holes()) pool.AddReference(run);
      return;
    case EditKind::kSlide:
      tables.Fill(edit.slot, edit.index, run);
      tables.set_first(edit.slot, edit.index);
      pool.AddReference(run);
      counters.slid_pages -= edit.count;
      return;
    case EditKind::kCold:
      tables.Fill(edit.slot, edit.index, run);
      slots[edit.slot].lossy = edit.was_lossy;
      pool.AddReference(run);
      counters.cold_pages -= edit.count;
      return;
    case EditKind::kReplace:
      tables.Replace(edit.slot, edit.index, PageId{edit.old_page});
      pool.Untake(run);
      pool.AddReference({PageId{edit.old_page}, 1});
      return;
    case EditKind::kEvict:
      pool.UndoEvict(run.page);
      RecallPage(edit.group, run.page, edit.index);
      --counters.prefix_pages_evicted;
      return;
    case EditKind::kOrphan:
      pool.Unlimbo(run);
      return;
    case EditKind::kUndone:
      return;
  }
}

// True when an edit that stands, later than the taking of superblock `id`, names a page of it:
// undoing the whole step will need the superblock. What is in use there is not asked for.
bool Pager::State::IsNamedLater(const Edit& taking) const {
  const uint32_t per = groups[taking.group].pool.geometry().pages_per_superblock;
  const Edit* const end = journal.data() + journal.size();
  return std::any_of(&taking + 1, end, [&](const Edit& edit) {
    switch (edit.kind) {
      case EditKind::kOpen:
      case EditKind::kClose:
      case EditKind::kLength:
      case EditKind::kTakeSuperblock:
      case EditKind::kUndone:
        return false;
      default:
        return edit.group == taking.group && edit.page / per == taking.page;
    }
  });
}

// Undoes one edit of a sequence while later edits of others stand; true when nothing is left of it.
// Three things of a sequence may meanwhile matter to others, and stay until the step ends: a
// superblock that they took or stole pages of, a soft run that they stole, and the copy of a page
// that they shared. The copy is still made, and rests in limbo if nobody names it, because undoing
// the others may bring it back.
bool Pager::State::UndoForSavepoint(Edit& edit, bool others_share) {
  auto& [pool, tables] = groups[edit.group];
  if (edit.kind == EditKind::kTakeSuperblock &&
      (!pool.IsEmpty(SuperblockId{edit.page}) || IsNamedLater(edit))) {
    return false;
  }
  if (edit.kind == EditKind::kTakeSoft) {
    const PageRun run = soft_runs[edit.group].Of(edit.slot);
    if (run.page.value != edit.page || run.count != edit.count) return false;
  }
  if (edit.kind == EditKind::kAppend && edit.soft &&
      soft_runs[edit.group].times_stolen(edit.slot) != edit.old_page) {
    // Others took what followed these pages. Undoing the whole step shall find these released
    // before the rest was.
    tables.Pop(edit.slot, edit.count);
    pool.Untake({PageId{edit.page}, edit.count});
    edit.kind = EditKind::kReleaseSoft;
    edit.old_page = edit.slot;
    edit.slot = kNoSlot;
    return false;
  }
  if (edit.kind != EditKind::kReplace || !others_share) {
    Undo(edit);
    return true;
  }
  tables.Replace(edit.slot, edit.index, PageId{edit.old_page});
  pool.AddReference({PageId{edit.old_page}, 1});
  pool.UndoReference({PageId{edit.page}, 1}, step_epoch());
  edit.kind = EditKind::kOrphan;
  return false;
}

Pager::Savepoint Pager::Mark(SeqId seq) const {
  (void)state_->Find(seq);  // checks that it is open
  return {seq, static_cast<uint32_t>(state_->journal.size())};
}

void Pager::Rollback(const Savepoint& savepoint) {
  State& s = *state_;
  KVRM_CHECK(s.in_step && savepoint.journal_size <= s.journal.size(),
             "Rollback to a savepoint of another step");
  const uint16_t slot = static_cast<uint16_t>(s.SlotOf(savepoint.seq));
  (void)s.Find(savepoint.seq);
  const auto begin = s.journal.begin() + savepoint.journal_size;
  const bool others_share = std::any_of(begin, s.journal.end(), [&](const Edit& edit) {
    return edit.kind == EditKind::kShare && edit.slot != slot;
  });
  for (size_t i = s.journal.size(); i-- > savepoint.journal_size;) {
    Edit& edit = s.journal[i];
    if (edit.slot != slot || edit.kind == EditKind::kOrphan) continue;
    if (s.UndoForSavepoint(edit, others_share)) edit.kind = EditKind::kUndone;
  }
  s.journal.erase(std::remove_if(begin, s.journal.end(),
                                 [](const Edit& edit) { return edit.kind == EditKind::kUndone; }),
                  s.journal.end());
  ++s.counters.savepoint_rollbacks;
  s.Check(/*tier=*/3);
}

void Pager::RollbackStep() {
  State& s = *state_;
  KVRM_CHECK(s.in_step, "RollbackStep outside a step");
  for (State::Group& group : s.groups) group.pool.BeginRollback();
  for (; !s.journal.empty(); s.journal.pop_back()) s.Undo(s.journal.back());
  for (State::Group& group : s.groups) group.pool.EndRollback(s.step_epoch());
  s.in_step = false;
  ++s.counters.rollbacks;
  s.Check(/*tier=*/2);
}

// ---- publish

std::span<const Delta> Pager::Commit(uint64_t epoch) {
  State& s = *state_;
  std::vector<Delta>& deltas = s.deltas[epoch % 2];
  if (epoch == s.epoch) return deltas;  // published already: the retry of a step that failed
  KVRM_CHECK(s.in_step && epoch == s.epoch + 1, "I2: Commit of an epoch that is not the next");
  deltas.clear();
  s.copies[epoch % 2].clear();
  for (const Edit& edit : s.journal) s.Publish(edit);
  s.journal.clear();
  s.epoch = epoch;
  s.in_step = false;
  ++s.counters.commits;
  s.Check(/*tier=*/2);
  return deltas;
}

void Pager::State::Publish(const Edit& edit) {
  if (edit.kind == EditKind::kLength) return PublishLength(edit);  // nearly all of a decode step
  PublishKept(edit);
  if (edit.slot == kNoSlot) return;
  std::vector<Delta>& out = deltas[step_epoch() % 2];
  Slot& sequence = slots[edit.slot];
  Delta delta{};
  delta.slot = edit.slot;
  delta.kv_group = edit.group;
  delta.index = edit.index;
  delta.first_token_place = edit.index * groups[edit.group].pool.geometry().page_tokens;
  delta.page = edit.page;
  delta.count = edit.count;
  switch (edit.kind) {
    case EditKind::kAppend:
    case EditKind::kShare:
      delta.kind = edit.extends ? DeltaKind::kExtend : DeltaKind::kAppend;
      if (edit.page == kNullPage.value) delta.kind = DeltaKind::kHole;  // before a window
      break;
    case EditKind::kSlide:
    case EditKind::kCold:
      delta.kind = DeltaKind::kHole;
      delta.page = kNullPage.value;
      break;
    case EditKind::kReplace:
      delta.kind = DeltaKind::kReplace;
      PlanCopy(edit);
      break;
    case EditKind::kDrop:
      delta.kind = DeltaKind::kTruncate;
      delta.page = 0;
      delta.count = 0;
      // Runs are dropped from the end: one cut tells all of them.
      if (!out.empty() && out.back().kind == DeltaKind::kTruncate &&
          out.back().slot == delta.slot && out.back().kv_group == delta.kv_group) {
        out.pop_back();
      }
      break;
    case EditKind::kClose:
      sequence.use = SlotUse::kFree;
      free_slots.push_back(edit.slot);
      return;
    case EditKind::kOrphan:
      PlanCopy(edit);
      return;
    case EditKind::kOpen:
    case EditKind::kLength:
    case EditKind::kTakeSuperblock:
    case EditKind::kTakeSoft:
    case EditKind::kReleaseSoft:
    case EditKind::kEvict:
    case EditKind::kUndone:
      return;
  }
  out.push_back(delta);
}

// What the end of the step means for pages that are only kept: for a sequence's growth, or cached.
void Pager::State::PublishKept(const Edit& edit) {
  auto& [pool, tables] = groups[edit.group];
  switch (edit.kind) {
    case EditKind::kEvict:
      pool.PoisonFreed(PageId{edit.page});
      return;
    case EditKind::kDrop:
    case EditKind::kReplace:
    case EditKind::kTakeSoft:
      SettleSoftRun(edit.group, edit.slot);
      return;
    case EditKind::kAppend:
      SettleSoftRun(edit.group, edit.slot);
      if (edit.decodes && slots[edit.slot].use == SlotUse::kOpen &&
          edit.index + 1 == tables.num_pages(edit.slot)) {
        (void)KeepSoftRun(edit.group, edit.slot);
      }
      return;
    default:
      return;
  }
}

void Pager::State::PlanCopy(const Edit& edit) {
  copies[step_epoch() % 2].push_back({edit.group, PageId{edit.old_page}, PageId{edit.page}});
  ++counters.copy_on_write;
}

std::span<const Pager::PageCopy> Pager::page_copies() const {
  return state_->copies[state_->epoch % 2];
}

void Pager::StepDone(uint64_t completed_epoch) {
  State& s = *state_;
  KVRM_CHECK(completed_epoch <= s.epoch, "StepDone of an epoch that was not committed");
  if (completed_epoch <= s.completed_epoch) return;
  s.completed_epoch = completed_epoch;
  for (State::Group& group : s.groups) group.pool.DrainLimbo(completed_epoch);
  s.Check(/*tier=*/2);
}

}  // namespace kvrm
