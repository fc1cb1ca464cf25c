#include "sched/scheduler.h"

#include <algorithm>
#include <new>

#include "base/check.h"
#include "sched/scheduler_state.h"

namespace kvrm {

SchedEntryRef Scheduler::State::Find(RequestId id) {
  const auto it = index.find(id);
  KVRM_CHECK(it != index.end(), "SCHED-1: a request named to the scheduler is known");
  return it->second;
}

std::optional<SeqId> Scheduler::State::TakeSequence(Pager& pager) {
  if (!config.slot_runs) return pager.Open();
  if (idle_runs.empty()) return std::nullopt;
  const SeqId seq = idle_runs.back();
  idle_runs.pop_back();
  return seq;
}

void Scheduler::State::LeaveSequence(SeqId seq, Pager& pager) {
  if (config.slot_runs) {
    idle_runs.push_back(seq);
  } else {
    pager.Close(seq);
  }
}

bool Scheduler::OpenSlotRuns(Pager& pager, uint32_t num_tokens) {
  State& s = *state_;
  KVRM_CHECK(s.config.slot_runs && s.idle_runs.empty(), "slot runs are asked for, and opened once");
  for (uint32_t slot = 0; slot < s.config.max_slots; ++slot) {
    const std::optional<SeqId> seq = pager.Open();
    KVRM_CHECK(seq.has_value(), "SCHED-2: the pager has as many slots");
    if (pager.Reserve(*seq, num_tokens, num_tokens).status != ReserveStatus::kOk) return false;
    s.idle_runs.push_back(*seq);
  }
  return true;
}

void Scheduler::State::MoveTo(Move::Kind kind, Entries& source, EntryRef entry, Entries& target,
                              EntryRef where) {
  moves.push_back({kind, entry, *entry, &source, std::next(entry)});
  target.splice(where, source, entry);
}

SchedEntryRef Scheduler::State::QueueBehind(int32_t priority) {
  return std::find_if(queue.begin(), queue.end(),
                      [&](const Entry& entry) { return entry.priority < priority; });
}

SchedEntryRef Scheduler::State::QueueBefore(int32_t priority) {
  return std::find_if(queue.begin(), queue.end(),
                      [&](const Entry& entry) { return entry.priority <= priority; });
}

Scheduler::Scheduler(const SchedulerConfig& config) : state_(std::make_unique<State>(config)) {
  KVRM_CHECK(config.max_slots > 0 && config.max_slots <= config.max_rows,
             "SCHED-2: the widest program has a row for each slot");
  KVRM_CHECK(config.max_logits == 0 || config.max_logits >= config.max_slots,
             "each sequence that runs may have a row with logits");
  KVRM_CHECK(config.prompt_rows > 0 && config.mixed_prompt_rows > 0,
             "SCHED-4: each step may advance some prompt");
  State& s = *state_;
  s.plan.rows.reserve(config.max_slots);
  s.plan.admitted.reserve(config.max_slots);
  s.plan.preempted.reserve(config.max_slots);
  s.plan.unserviceable.reserve(config.max_slots);
  s.plan_entries.reserve(config.max_slots);
  s.prompts.reserve(config.max_slots);
  s.turns.reserve(config.max_slots);
  s.moves.reserve(size_t{4} * config.max_slots);
  s.closed.reserve(size_t{2} * config.max_slots);
  s.to_close.reserve(size_t{2} * config.max_slots);
  s.idle_runs.reserve(config.max_slots);
}
Scheduler::~Scheduler() = default;

void Scheduler::Add(RequestId id, uint32_t num_tokens, int32_t priority, uint32_t scored_rows,
                    Place place) {
  State& s = *state_;
  KVRM_CHECK(scored_rows < num_tokens || scored_rows == 0, "a scored row has a next token");
  KVRM_CHECK(num_tokens >= 1, "a request has at least one known token");
  KVRM_CHECK(!s.index.contains(id), "SCHED-1: a request is added once");
  const SchedEntryRef entry =
      s.queue.insert(place == Place::kFirst ? s.QueueBefore(priority) : s.QueueBehind(priority),
                     SchedEntry{.id = id,
                                .priority = priority,
                                .num_known = num_tokens,
                                .prompt_end = num_tokens,
                                .scored_rows = scored_rows});
  try {
    s.index.emplace(id, entry);
    s.unchecked.push_back(id);
  } catch (const std::bad_alloc&) {  // as if it had not been called
    s.index.erase(id);
    s.queue.erase(entry);
    throw;
  }
}

void Scheduler::Remove(RequestId id, Pager& pager) {
  State& s = *state_;
  const auto it = s.index.find(id);
  if (it == s.index.end()) return;
  const SchedEntryRef entry = it->second;
  s.index.erase(it);
  if (entry->running) {
    s.LeaveSequence(entry->seq, pager);
    if (!s.config.slot_runs) s.closed.push_back(entry->seq);
    s.running.erase(entry);
    return;
  }
  s.queue.erase(entry);
}

void Scheduler::OnToken(RequestId id) { ++state_->Find(id)->num_known; }

const StepPlan& Scheduler::Plan(Pager& pager, const PrefixAdopter& adopt) {
  State& s = *state_;
  s.adopt = &adopt;
  s.BeginPlan(pager);
  s.DropUnfit(pager);
  s.PlanDecodeRows(pager);
  s.PlanPromptRows(pager);
  s.MakeRoom(pager);
  KVRM_CHECK(s.plan.num_rows <= s.config.max_rows, "a plan fits the widest program");
  KVRM_CHECK(s.running.size() <= s.config.max_slots, "SCHED-2: running <= max_slots");
  return s.plan;
}

void Scheduler::OnStepDone() {
  State& s = *state_;
  for (size_t i = 0; i < s.plan_entries.size(); ++i) {
    SchedEntry& entry = *s.plan_entries[i];
    entry.num_computed += s.plan.rows[i].count;
    entry.num_scored = std::min(entry.scored_rows, std::max(entry.num_scored, entry.num_computed));
  }
  s.plan_entries.clear();
  s.moves.clear();
  s.turns.clear();
  s.gone.clear();
  s.closed.clear();
  ++s.counters.plans;
  s.counters.admitted += s.plan.admitted.size();
  s.counters.preempted += s.plan.preempted.size();
  s.counters.deferred += s.plan.deferred;
  s.counters.cached_tokens += s.plan.cached_tokens;
  s.timed_shape = s.plan.shape;
}

void Scheduler::OnStepTimed(int64_t us) {
  State& s = *state_;
  s.cost.Observe(s.timed_shape, us);
  s.timed_shape = {};
}

const CostModel& Scheduler::cost() const { return state_->cost; }

void Scheduler::OnStepRolledBack() {
  State& s = *state_;
  for (auto it = s.turns.rbegin(); it != s.turns.rend(); ++it) {
    it->entry->turn = it->turn;
    it->entry->deficit = it->deficit;
  }
  s.turns.clear();
  s.last_turn = s.turn_before;
  for (auto it = s.moves.rbegin(); it != s.moves.rend(); ++it) {
    using Kind = State::Move::Kind;
    SchedEntries& now_in = it->kind == Kind::kAdmit     ? s.running
                           : it->kind == Kind::kPreempt ? s.queue
                                                        : s.gone;
    it->source->splice(it->next, now_in, it->entry);
    const bool took_a_run = s.config.slot_runs && it->kind == Kind::kAdmit;
    if (took_a_run) s.idle_runs.push_back(it->entry->seq);
    *it->entry = it->before;
    if (it->kind != Kind::kDrop) continue;
    s.index.emplace(it->entry->id, it->entry);
    if (it->source == &s.queue) s.unchecked.push_back(it->entry->id);
  }
  s.moves.clear();
  s.plan_entries.clear();
  // What Remove had closed is open again in the pager; the next plan closes it first.
  s.to_close.insert(s.to_close.end(), s.closed.begin(), s.closed.end());
  s.closed.clear();
}

bool Scheduler::idle() const {
  return state_->queue.empty() && state_->running.empty() && state_->to_close.empty();
}

std::optional<SeqId> Scheduler::sequence(RequestId id) const {
  const auto it = state_->index.find(id);
  if (it == state_->index.end() || !it->second->running) return std::nullopt;
  return it->second->seq;
}

uint32_t Scheduler::num_computed_tokens(RequestId id) const {
  const auto it = state_->index.find(id);
  return it == state_->index.end() ? 0 : it->second->num_computed;
}

uint32_t Scheduler::num_scored_rows(RequestId id) const {
  const auto it = state_->index.find(id);
  return it == state_->index.end() ? 0 : it->second->num_scored;
}

uint32_t Scheduler::num_cached_tokens(RequestId id) const {
  const auto it = state_->index.find(id);
  return it == state_->index.end() ? 0 : it->second->num_cached;
}

SchedulerCounters Scheduler::counters() const {
  SchedulerCounters counters = state_->counters;
  counters.queued = static_cast<uint32_t>(state_->queue.size());
  counters.running = static_cast<uint32_t>(state_->running.size());
  return counters;
}

}  // namespace kvrm
