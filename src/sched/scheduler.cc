#include "sched/scheduler.h"

#include <algorithm>
#include <limits>
#include <list>
#include <map>
#include <utility>

#include "base/check.h"

namespace kvrm {
namespace {

struct Entry {
  RequestId id;
  uint32_t num_known = 0;     // tokens whose values are known: prompt and sampled ones
  uint32_t num_computed = 0;  // of these, in the cache
  uint32_t prompt_end = 0;    // rows below it are prompt rows; moves up at a preemption
  uint32_t num_adopted = 0;   // of the places that exist, these refer to cached pages
  uint32_t num_cached = 0;    // rows saved at its first admission
  bool was_admitted = false;
  SeqId seq;  // while running
  bool running = false;
};
// An entry is a node of exactly one list (SCHED-1 by construction); moves are splices, which keep
// iterators and allocate nothing.
using Entries = std::list<Entry>;
using EntryRef = Entries::iterator;

// One move of the last plan, undone in reverse order when the step is rolled back.
struct Move {
  enum class Kind : uint8_t { kAdmit, kPreempt, kDrop } kind;
  EntryRef entry;
  Entry before;     // fields as they were
  Entries* source;  // list that it came from
  EntryRef next;    // its successor there
};

}  // namespace

struct Scheduler::State {
  explicit State(const SchedulerConfig& c) : config(c) {}

  const SchedulerConfig config;
  Entries queue;    // first = next to be admitted
  Entries running;  // first = oldest admission
  Entries gone;     // dropped by the last plan; erased when its step is done
  std::map<RequestId, EntryRef> index;
  StepPlan plan;
  const PrefixAdopter* adopt = nullptr;  // during Plan
  std::vector<EntryRef> plan_entries;    // [plan.rows]
  std::vector<Move> moves;               // of the last plan
  std::vector<SeqId> closed;             // sequences that Remove closed in this step
  std::vector<SeqId> to_close;           // the same, of a step that was rolled back
  std::vector<RequestId> unchecked;      // added since the last plan
  SchedulerCounters counters;

  EntryRef Find(RequestId id) {
    const auto it = index.find(id);
    KVRM_CHECK(it != index.end(), "SCHED-1: a request named to the scheduler is known");
    return it->second;
  }
  void MoveTo(Move::Kind kind, Entries& source, EntryRef entry, Entries& target, EntryRef where) {
    moves.push_back({kind, entry, *entry, &source, std::next(entry)});
    target.splice(where, source, entry);
  }

  void BeginPlan(Pager& pager);
  void DropUnfit(Pager& pager);
  void Drop(Entries& source, EntryRef entry, Pager& pager);
  uint32_t ReserveRows(EntryRef entry, uint32_t count, Pager& pager, ReserveStatus* status);
  void AddRows(EntryRef entry, uint32_t count, bool decode);
  void PlanDecodeRows(Pager& pager);
  void PlanPromptRows(Pager& pager);
  uint32_t PromptBudget() const;
  void PlanPromptChunk(EntryRef entry, uint32_t budget, Pager& pager);
  bool HasRoomFor(const Entry& head, const Pager& pager) const;
  bool Admit(Pager& pager);
  void Adopt(Entry& entry);
  void MakeRoom(Pager& pager);
  void Preempt(EntryRef victim, Pager& pager);
};

namespace {

// Pages of `num_tokens` token places in the group that rounds up most.
uint64_t PagesFor(const KvGeometry& geometry, uint64_t num_tokens) {
  uint64_t pages = 0;
  for (const auto& group : geometry.groups) {
    pages = std::max(pages, (num_tokens + group.page_tokens - 1) / group.page_tokens);
  }
  return pages;
}

// Token places that `entry` could have now without another sequence giving pages back.
uint64_t PlacesWithinReach(const Entry& entry, const Pager& pager) {
  uint64_t places = std::numeric_limits<uint64_t>::max();
  const uint64_t available = pager.available_pages(/*with_limbo=*/false);
  const auto& groups = pager.geometry().groups;
  for (uint32_t g = 0; g < groups.size(); ++g) {
    const uint64_t pages =
        pager.first_page(entry.seq, g) + pager.pages(entry.seq, g).size() + available;
    places = std::min(places, pages * groups[g].page_tokens);
  }
  return places;
}

}  // namespace

void Scheduler::State::BeginPlan(Pager& pager) {
  plan.rows.clear();
  plan.admitted.clear();
  plan.preempted.clear();
  plan.unserviceable.clear();
  plan.num_rows = plan.num_prompt_rows = plan.num_logits = plan.deferred = 0;
  plan.cached_tokens = 0;
  plan_entries.clear();
  moves.clear();
  gone.clear();
  for (const SeqId seq : to_close) {
    pager.Close(seq);
    closed.push_back(seq);
  }
  to_close.clear();
}

// Leaves the plan, and with the step's success the scheduler. A running one gives its pages back.
void Scheduler::State::Drop(Entries& source, EntryRef entry, Pager& pager) {
  MoveTo(Move::Kind::kDrop, source, entry, gone, gone.end());
  if (entry->running) pager.Close(entry->seq);
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
  const uint64_t reach = PlacesWithinReach(*entry, pager);
  if (reach <= computed) return 0;
  const auto fitting = static_cast<uint32_t>(std::min<uint64_t>(count, reach - computed));
  const Pager::Savepoint again = pager.Mark(entry->seq);
  *status = pager.Reserve(entry->seq, computed + fitting, computed + fitting).status;
  if (*status == ReserveStatus::kOk) return fitting;
  pager.Rollback(again);
  return 0;
}

void Scheduler::State::AddRows(EntryRef entry, uint32_t count, bool decode) {
  const bool last = entry->num_computed + count == entry->num_known;
  const bool no_write = entry->num_computed < entry->num_adopted;
  plan.rows.push_back({entry->id, entry->seq, entry->num_computed, count, decode, last, no_write});
  plan_entries.push_back(entry);
  plan.num_rows += count;
  plan.num_prompt_rows += decode ? 0 : count;
  plan.num_logits += last ? 1 : 0;
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

// Prompt rows that this step may still take.
uint32_t Scheduler::State::PromptBudget() const {
  const uint32_t decoding = plan.num_rows - plan.num_prompt_rows;
  const uint32_t bound = decoding > 0 ? config.mixed_prompt_rows : config.prompt_rows;
  const uint32_t left = bound > plan.num_prompt_rows ? bound - plan.num_prompt_rows : 0;
  return std::min(left, config.max_rows - plan.num_rows);
}

// One chunk of a running sequence's prompt, as long as bounds and room allow.
void Scheduler::State::PlanPromptChunk(EntryRef entry, uint32_t budget, Pager& pager) {
  uint32_t count = std::min(entry->num_known - entry->num_computed, budget);
  if (config.chunk_rows > 0) count = std::min(count, config.chunk_rows);
  ReserveStatus status;
  count = ReserveRows(entry, count, pager, &status);
  if (count > 0) {
    AddRows(entry, count, /*decode=*/false);
  } else if (status == ReserveStatus::kUnserviceable) {
    Drop(running, entry, pager);
  } else {
    ++plan.deferred;
  }
}

void Scheduler::State::PlanPromptRows(Pager& pager) {
  for (auto it = running.begin(); it != running.end();) {
    const EntryRef entry = it++;
    if (entry->num_computed >= entry->prompt_end) continue;
    const uint32_t budget = PromptBudget();
    if (budget == 0) return;
    PlanPromptChunk(entry, budget, pager);
  }
  // A sequence that waits for pages comes before a newcomer that would take them.
  while (plan.deferred == 0 && PromptBudget() > 0 && Admit(pager)) {
    PlanPromptChunk(std::prev(running.end()), PromptBudget(), pager);
  }
}

// Whether the head of the queue finds room for all that it knows and one token more, beside what
// running prompts are still to take and a page of growth for each running sequence. The margin
// keeps a request from being admitted only to be preempted (B019).
bool Scheduler::State::HasRoomFor(const Entry& head, const Pager& pager) const {
  const KvGeometry& geometry = pager.geometry();
  uint64_t wanted = PagesFor(geometry, uint64_t{head.num_known} + 1);
  for (const Entry& entry : running) {
    const uint64_t target = std::max<uint64_t>(entry.prompt_end, pager.num_tokens(entry.seq)) + 1;
    const uint64_t held = PagesFor(geometry, pager.num_tokens(entry.seq));
    wanted += PagesFor(geometry, target) - held + 1;
  }
  return wanted <= pager.available_pages(/*with_limbo=*/false);
}

// Takes the head of the queue. Nobody overtakes it: a large request is not starved by small ones.
bool Scheduler::State::Admit(Pager& pager) {
  if (queue.empty() || running.size() >= config.max_slots) return false;
  const EntryRef head = queue.begin();
  if (!running.empty() && !HasRoomFor(*head, pager)) return false;
  const std::optional<SeqId> seq = pager.Open();
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
  entry.num_computed = std::min(entry.num_adopted, entry.num_known - 1);
  plan.cached_tokens += entry.num_computed;
  if (!entry.was_admitted) entry.num_cached = entry.num_computed;
  entry.was_admitted = true;
}

void Scheduler::State::Preempt(EntryRef victim, Pager& pager) {
  MoveTo(Move::Kind::kPreempt, running, victim, queue, queue.begin());
  pager.Close(victim->seq);
  victim->running = false;
  victim->num_computed = victim->num_adopted = 0;
  victim->prompt_end = victim->num_known;
  plan.preempted.push_back(victim->id);
}

// Nothing can run for want of pages. The youngest are preempted until enough pages are on their
// way to the oldest: pages of this step's victims come back when the step is done, so they are
// counted here and no further victim falls for them (B019). Alone and still without room, the
// oldest can never be served.
void Scheduler::State::MakeRoom(Pager& pager) {
  if (plan.num_rows > 0 || plan.deferred == 0 || running.empty()) return;
  while (pager.available_pages(/*with_limbo=*/true) == 0) {
    if (running.size() == 1) {
      Drop(running, running.begin(), pager);
      return;
    }
    Preempt(std::prev(running.end()), pager);
  }
}

Scheduler::Scheduler(const SchedulerConfig& config) : state_(std::make_unique<State>(config)) {
  KVRM_CHECK(config.max_slots > 0 && config.max_slots <= config.max_rows,
             "SCHED-2: the widest program has a row for each slot");
  KVRM_CHECK(config.prompt_rows > 0 && config.mixed_prompt_rows > 0,
             "SCHED-4: each step may advance some prompt");
  State& s = *state_;
  s.plan.rows.reserve(config.max_slots);
  s.plan.admitted.reserve(config.max_slots);
  s.plan.preempted.reserve(config.max_slots);
  s.plan.unserviceable.reserve(config.max_slots);
  s.plan_entries.reserve(config.max_slots);
  s.moves.reserve(size_t{4} * config.max_slots);
  s.closed.reserve(size_t{2} * config.max_slots);
  s.to_close.reserve(size_t{2} * config.max_slots);
}
Scheduler::~Scheduler() = default;

void Scheduler::Add(RequestId id, uint32_t num_tokens) {
  State& s = *state_;
  KVRM_CHECK(num_tokens >= 1, "a request has at least one known token");
  KVRM_CHECK(!s.index.contains(id), "SCHED-1: a request is added once");
  const EntryRef entry = s.queue.insert(
      s.queue.end(), Entry{.id = id, .num_known = num_tokens, .prompt_end = num_tokens});
  s.index.emplace(id, entry);
  s.unchecked.push_back(id);
}

void Scheduler::Remove(RequestId id, Pager& pager) {
  State& s = *state_;
  const auto it = s.index.find(id);
  if (it == s.index.end()) return;
  const EntryRef entry = it->second;
  s.index.erase(it);
  if (entry->running) {
    pager.Close(entry->seq);
    s.closed.push_back(entry->seq);
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
    s.plan_entries[i]->num_computed += s.plan.rows[i].count;
  }
  s.plan_entries.clear();
  s.moves.clear();
  s.gone.clear();
  s.closed.clear();
  ++s.counters.plans;
  s.counters.admitted += s.plan.admitted.size();
  s.counters.preempted += s.plan.preempted.size();
  s.counters.deferred += s.plan.deferred;
  s.counters.cached_tokens += s.plan.cached_tokens;
}

void Scheduler::OnStepRolledBack() {
  State& s = *state_;
  for (auto it = s.moves.rbegin(); it != s.moves.rend(); ++it) {
    Entries& now_in = it->kind == Move::Kind::kAdmit     ? s.running
                      : it->kind == Move::Kind::kPreempt ? s.queue
                                                         : s.gone;
    it->source->splice(it->next, now_in, it->entry);
    *it->entry = it->before;
    if (it->kind != Move::Kind::kDrop) continue;
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
