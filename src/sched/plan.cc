// One plan: decode rows, then prompt rows within the gap budget, admissions, and, when nothing can
// run for want of pages, victims.
#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "sched/scheduler_state.h"

namespace kvrm {
namespace {

// Pages of `num_tokens` token places in the group that rounds up most.
uint64_t PagesFor(const KvGeometry& geometry, uint64_t num_tokens) {
  uint64_t pages = 0;
  for (const auto& group : geometry.groups) {
    pages = std::max(pages, (num_tokens + group.page_tokens - 1) / group.page_tokens);
  }
  return pages;
}

// Shares of the gap budget: what a step with prompt rows is planned to take, and what those rows
// get whatever decoding takes.
constexpr double kPlannedShare = 0.9;
constexpr double kLeastShare = 0.1;

}  // namespace

void Scheduler::State::BeginPlan(Pager& pager) {
  plan.rows.clear();
  plan.admitted.clear();
  plan.preempted.clear();
  plan.unserviceable.clear();
  plan.num_rows = plan.num_prompt_rows = plan.num_logits = plan.deferred = 0;
  plan.cached_tokens = 0;
  turn_before = last_turn;
  plan.shape = {};
  plan_entries.clear();
  moves.clear();
  gone.clear();
  turns.clear();
  for (const SeqId seq : to_close) {
    pager.Close(seq);
    closed.push_back(seq);
  }
  to_close.clear();
}

// Leaves the plan, and with the step's success the scheduler. A running one gives its pages back.
void Scheduler::State::Drop(Entries& source, EntryRef entry, Pager& pager) {
  MoveTo(Move::Kind::kDrop, source, entry, gone, gone.end());
  if (entry->running) LeaveSequence(entry->seq, pager);
  entry->running = false;
  plan.unserviceable.push_back(entry->id);
  index.erase(entry->id);
}

// New requests that no pool of this size can hold are told at once, wherever they queue (B016).
void Scheduler::State::DropUnfit(Pager& pager) {
  const uint64_t max_tokens = pager.max_tokens();
  for (const RequestId id : unchecked) {
    const auto it = index.find(id);
    if (it == index.end()) continue;  // removed meanwhile
    const EntryRef entry = it->second;
    if (entry->num_known > max_tokens) Drop(queue, entry, pager);
  }
  unchecked.clear();
}

// Makes room for rows [num_computed, num_computed + count) of a running sequence, or for as many of
// them as there is room for. Returns how many; 0 leaves the sequence as it was.
uint32_t Scheduler::State::ReserveRows(EntryRef entry, uint32_t count, Pager& pager,
                                       ReserveStatus* status) {
  const uint32_t computed = entry->num_computed;
  const Pager::Savepoint savepoint = pager.Mark(entry->seq);
  *status =
      pager.Reserve(entry->seq, computed + count, std::max(entry->prompt_end, computed + count))
          .status;
  if (*status == ReserveStatus::kOk) return count;
  pager.Rollback(savepoint);
  if (*status == ReserveStatus::kUnserviceable || count == 1) return 0;
  const uint32_t reach = pager.ReachableTokens(entry->seq, computed + count);
  if (reach <= computed) return 0;
  const uint32_t fitting = reach - computed;
  const Pager::Savepoint again = pager.Mark(entry->seq);
  *status = pager.Reserve(entry->seq, computed + fitting, computed + fitting).status;
  if (*status == ReserveStatus::kOk) return fitting;
  pager.Rollback(again);
  return 0;
}

void Scheduler::State::AddRows(EntryRef entry, uint32_t count, bool decode) {
  const bool last = entry->num_computed + count == entry->num_known;
  const uint64_t end = entry->num_computed + count;
  const uint64_t seen = count * end - uint64_t{count} * (count - 1) / 2;
  (decode ? plan.shape.decode_rows : plan.shape.prompt_rows) += count;
  (decode ? plan.shape.decode_tokens : plan.shape.prompt_tokens) += seen;
  const bool no_write = entry->num_computed < entry->num_adopted;
  const uint32_t first = entry->num_computed;
  uint32_t logits_from = first + count - (last ? 1 : 0);
  if (entry->num_scored < entry->scored_rows) {
    logits_from = std::clamp(entry->num_scored, first, logits_from);
  }
  plan.rows.push_back({entry->id, entry->seq, first, count, decode, last, logits_from, no_write});
  plan_entries.push_back(entry);
  plan.num_rows += count;
  plan.num_prompt_rows += decode ? 0 : count;
  plan.num_logits += first + count - logits_from;
}

void Scheduler::State::PlanDecodeRows(Pager& pager) {
  for (auto it = running.begin(); it != running.end();) {
    const EntryRef entry = it++;
    if (entry->num_computed < entry->prompt_end) continue;
    if (entry->num_computed == entry->num_known) continue;  // its token is still to come
    ReserveStatus status;
    if (ReserveRows(entry, 1, pager, &status) == 1) {
      AddRows(entry, 1, /*decode=*/true);
    } else if (status == ReserveStatus::kUnserviceable) {
      Drop(running, entry, pager);
    } else {
      ++plan.deferred;
    }
  }
}

// ---- prompt rows

// Prompt rows that this step may still take, the first of which stands at `first_position`.
uint32_t Scheduler::State::PromptBudget(uint32_t first_position) const {
  const uint32_t room = config.max_rows - plan.num_rows;
  const auto left = [&](uint32_t bound) {
    return std::min(room, bound > plan.num_prompt_rows ? bound - plan.num_prompt_rows : 0);
  };
  if (plan.shape.decode_rows == 0) return left(config.prompt_rows);
  if (config.max_step_us == 0 || !cost.known()) return left(config.mixed_prompt_rows);
  return RowsWithinGap(first_position, left(config.prompt_rows));
}

// Streams wait while prompts are computed: as many rows as keep the step within nine tenths of the
// budget; the rest is for what no plan foresees, memory, output, other programs. Where decoding
// alone takes most of that, prompts still get a tenth, and one row at least (SCHED-4).
uint32_t Scheduler::State::RowsWithinGap(uint32_t first_position, uint32_t at_most) const {
  const double planned_us = kPlannedShare * static_cast<double>(config.max_step_us);
  StepShape decoding = plan.shape;
  decoding.prompt_rows = 0;
  decoding.prompt_tokens = 0;
  const double least_us =
      cost.PredictUs(decoding) + kLeastShare * static_cast<double>(config.max_step_us);
  const uint32_t rows =
      cost.PromptRowsWithin(std::max(planned_us, least_us), plan.shape, first_position, at_most);
  return plan.num_prompt_rows > 0 ? rows : std::max(rows, std::min(1u, at_most));
}

// How many rows each prompt may get for its logits' sake. One row with logits is kept for each that
// waits; what is left goes to those that are scored, the next in turn first.
void Scheduler::State::BoundScoredRows() {
  const uint32_t max_logits = std::max(config.max_logits, config.max_slots);
  const auto waiting = static_cast<uint32_t>(prompts.size());
  uint32_t spare = max_logits - plan.num_logits - waiting;
  for (const EntryRef entry : prompts) {
    entry->most_rows = entry->num_known;
    if (entry->num_scored >= entry->scored_rows) continue;
    const uint32_t first = std::max(entry->num_scored, entry->num_computed);
    entry->most_rows = first - entry->num_computed + 1 + spare;
    spare -= std::min(spare, entry->scored_rows - first);
  }
}

// Prompts take turns of `prompt_quantum` rows (deficit round robin): a short prompt waits for a
// turn of a long one, never for its end. A turn that the step's budget cuts short goes on in the
// next step.
void Scheduler::State::GrantPromptRows(uint32_t rows) {
  std::sort(prompts.begin(), prompts.end(),
            [](const EntryRef& a, const EntryRef& b) { return a->turn < b->turn; });
  for (const EntryRef entry : prompts) {
    turns.push_back({entry, entry->turn, entry->deficit});
    entry->grant = 0;
  }
  BoundScoredRows();
  size_t first = 0, waiting = prompts.size();  // prompts[first, first + waiting) still want rows
  while (rows > 0 && waiting > 0) {
    const EntryRef entry = prompts[first];
    const uint32_t left = entry->num_known - entry->num_computed - entry->grant;
    uint32_t wanted = std::min(left, entry->most_rows - entry->grant);
    const bool bounded = wanted < left;
    if (config.chunk_rows > 0) wanted = std::min(wanted, config.chunk_rows - entry->grant);
    if (entry->deficit == 0) entry->deficit = config.prompt_quantum;
    const uint32_t given = std::min({wanted, entry->deficit, rows});
    entry->grant += given;
    entry->deficit -= given;
    rows -= given;
    if (given == wanted) {
      if (config.chunk_rows == 0) entry->deficit = 0;
      if (bounded) entry->turn = ++last_turn;
      ++first;
      --waiting;
    } else if (entry->deficit == 0) {
      entry->turn = ++last_turn;
      std::rotate(prompts.begin() + static_cast<ptrdiff_t>(first),
                  prompts.begin() + static_cast<ptrdiff_t>(first) + 1, prompts.end());
    }
  }
}

// One chunk of a running sequence's prompt, as long as bounds and room allow.
void Scheduler::State::PlanPromptChunk(EntryRef entry, uint32_t budget, Pager& pager) {
  ReserveStatus status;
  const uint32_t count = ReserveRows(entry, std::min(entry->grant, budget), pager, &status);
  if (count > 0) {
    AddRows(entry, count, /*decode=*/false);
  } else if (status == ReserveStatus::kUnserviceable) {
    Drop(running, entry, pager);
  } else {
    ++plan.deferred;
  }
}

void Scheduler::State::PlanPromptRows(Pager& pager) {
  // A sequence that waits for pages comes before a newcomer that would take them.
  while (plan.deferred == 0 && Admit(pager)) {
  }
  prompts.clear();
  for (EntryRef entry = running.begin(); entry != running.end(); ++entry) {
    if (entry->num_computed < entry->prompt_end) prompts.push_back(entry);
  }
  if (prompts.empty()) return;
  const auto next =
      std::min_element(prompts.begin(), prompts.end(),
                       [](const EntryRef& a, const EntryRef& b) { return a->turn < b->turn; });
  GrantPromptRows(PromptBudget((*next)->num_computed));
  for (const EntryRef entry : prompts) {
    const uint32_t budget = entry->grant == 0 ? 0 : PromptBudget(entry->num_computed);
    if (budget > 0) PlanPromptChunk(entry, budget, pager);
  }
}

// ---- admission

// Whether the head of the queue finds room for all that it knows and one token more, beside what
// running prompts are still to take and a page of growth for each running sequence. The margin
// keeps a request from being admitted only to be preempted (B019).
bool Scheduler::State::HasRoomFor(const Entry& head, const Pager& pager) const {
  if (config.slot_runs) return true;  // a slot is room
  const KvGeometry& geometry = pager.geometry();
  uint64_t wanted = PagesFor(geometry, uint64_t{head.num_known} + 1);
  for (const Entry& entry : running) {
    const uint64_t target = std::max<uint64_t>(entry.prompt_end, pager.num_tokens(entry.seq)) + 1;
    const uint64_t held = PagesFor(geometry, pager.num_tokens(entry.seq));
    wanted += PagesFor(geometry, target) - held + 1;
  }
  return wanted <= pager.available_pages(/*with_limbo=*/false);
}

// Whether decoding with one sequence more would leave a fifth of the gap budget to prompts.
bool Scheduler::State::KeepsGap(const Entry& head) const {
  if (config.max_step_us == 0 || !cost.known()) return true;
  StepShape decoding{.decode_rows = 1, .decode_tokens = head.num_known};
  for (const Entry& entry : running) {
    ++decoding.decode_rows;
    decoding.decode_tokens += entry.num_known;
  }
  return cost.PredictUs(decoding) <= 0.8 * static_cast<double>(config.max_step_us);
}

// Takes the head of the queue. Nobody overtakes it: a large request is not starved by small ones.
bool Scheduler::State::Admit(Pager& pager) {
  if (queue.empty() || running.size() >= config.max_slots) return false;
  const EntryRef head = queue.begin();
  if (!running.empty() && !(HasRoomFor(*head, pager) && KeepsGap(*head))) return false;
  const std::optional<SeqId> seq = TakeSequence(pager);
  if (!seq.has_value()) return false;  // the slot of a sequence that ended is free after this step
  MoveTo(Move::Kind::kAdmit, queue, head, running, running.end());
  head->running = true;
  head->seq = *seq;
  Adopt(*head);
  plan.admitted.push_back(head->id);
  return true;
}

// A prompt that is cached whole still computes its last row, for its logits: it reads and writes
// not.
void Scheduler::State::Adopt(Entry& entry) {
  entry.num_adopted = *adopt ? (*adopt)(entry.id, entry.seq) : 0;
  KVRM_CHECK(entry.num_adopted <= entry.num_known, "SCHED-3: no more is adopted than is known");
  KVRM_CHECK(entry.num_scored == entry.scored_rows || entry.num_adopted <= entry.num_scored,
             "a row that is to be scored is computed");
  entry.num_computed = std::min(entry.num_adopted, entry.num_known - 1);
  plan.cached_tokens += entry.num_computed;
  if (!entry.was_admitted) entry.num_cached = entry.num_computed;
  entry.was_admitted = true;
  entry.resumed_at = entry.num_known;
  entry.turn = ++last_turn;
  entry.deficit = 0;
}

// ---- preemption

// Who gives its pages up: the least urgent, of these the one that loses least work, the youngest of
// equals. One that came back keeps its place until it has gained something, unless all others have
// just come back. The most urgent with most work is never taken: it ends one day, so that work is
// not done over and over for ever. Requires: two that run.
SchedEntryRef Scheduler::State::Victim() {
  const auto gives_way = [](const Entry& a, const Entry& b) {
    return a.priority != b.priority ? a.priority < b.priority : a.num_computed < b.num_computed;
  };
  const EntryRef kept = std::max_element(running.begin(), running.end(), gives_way);
  EntryRef victim = running.end();
  for (const bool spare_resumed : {true, false}) {
    for (EntryRef entry = running.begin(); entry != running.end(); ++entry) {
      const bool fresh =
          entry->was_preempted && entry->num_known - entry->resumed_at < kLeastTokensOfAResumed;
      if (entry == kept || (spare_resumed && fresh)) continue;
      if (victim == running.end() || !gives_way(*victim, *entry)) victim = entry;
    }
    if (victim != running.end()) break;
  }
  return victim;
}

void Scheduler::State::Preempt(EntryRef victim, Pager& pager) {
  MoveTo(Move::Kind::kPreempt, running, victim, queue, QueueBefore(victim->priority));
  LeaveSequence(victim->seq, pager);
  victim->running = false;
  victim->was_preempted = true;
  victim->num_computed = victim->num_adopted = 0;
  victim->prompt_end = victim->num_known;
  plan.preempted.push_back(victim->id);
}

// Nothing can run for want of pages. Victims are preempted until enough pages are on their
// way to the oldest: pages of this step's victims come back when the step is done, so they are
// counted here and no further victim falls for them (B019). Alone and still without room, the
// oldest can never be served.
void Scheduler::State::MakeRoom(Pager& pager) {
  const bool stuck = plan.num_rows == 0 && plan.deferred > 0 && !running.empty();
  stuck_plans = stuck ? stuck_plans + 1 : 0;
  if (!stuck) return;
  // Pages that are there but do not help (they may be another KV group's, which Maintain is to
  // move): they get some steps to, and no more, so that nothing waits for ever.
  bool patient = stuck_plans < kMostStuckPlans;
  while (!patient || pager.available_pages(/*with_limbo=*/true) == 0) {
    patient = true;
    if (running.size() == 1) {
      Drop(running, running.begin(), pager);
      return;
    }
    Preempt(Victim(), pager);
  }
}

}  // namespace kvrm
