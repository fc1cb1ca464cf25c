// What the scheduler is made of; shared by scheduler.cc (what is known of requests) and plan.cc
// (one plan), included by nothing else.
#pragma once

#include <list>
#include <map>
#include <vector>

#include "sched/scheduler.h"

namespace kvrm {

struct SchedEntry {
  RequestId id;
  int32_t priority = 0;
  uint32_t num_known = 0;     // tokens whose values are known: prompt and sampled ones
  uint32_t num_computed = 0;  // of these, in the cache
  uint32_t prompt_end = 0;    // rows below it are prompt rows; moves up at a preemption
  uint32_t num_adopted = 0;   // of the places that exist, these refer to cached pages
  uint32_t num_cached = 0;    // rows saved at its first admission
  uint32_t resumed_at = 0;    // num_known at its last admission
  uint32_t scored_rows = 0;   // rows [0, scored_rows) shall have logits
  uint32_t num_scored = 0;    // of these, how many had them in a step that is done
  bool was_admitted = false;
  bool was_preempted = false;
  SeqId seq;  // while running
  bool running = false;
  uint64_t turn = 0;       // prompts take turns, the lowest first
  uint32_t deficit = 0;    // prompt rows that are left of its turn
  uint32_t grant = 0;      // prompt rows that this plan gives it
  uint32_t most_rows = 0;  // prompt rows that this plan may give it, for its logits' sake
};
// An entry is a node of exactly one list (SCHED-1 by construction); moves are splices, which keep
// iterators and allocate nothing.
using SchedEntries = std::list<SchedEntry>;
using SchedEntryRef = SchedEntries::iterator;

struct Scheduler::State {
  using Entry = SchedEntry;
  using Entries = SchedEntries;
  using EntryRef = SchedEntryRef;

  // One move of the last plan, undone in reverse order when the step is rolled back.
  struct Move {
    enum class Kind : uint8_t { kAdmit, kPreempt, kDrop } kind;
    EntryRef entry;
    Entry before;     // fields as they were
    Entries* source;  // list that it came from
    EntryRef next;    // its successor there
  };

  explicit State(const SchedulerConfig& c) : config(c), cost(c.step_samples) {}

  const SchedulerConfig config;
  CostModel cost;
  Entries queue;    // first = next to be admitted: by priority, then by arrival
  Entries running;  // first = oldest admission
  Entries gone;     // dropped by the last plan; erased when its step is done
  std::map<RequestId, EntryRef> index;
  StepPlan plan;
  const PrefixAdopter* adopt = nullptr;  // during Plan
  std::vector<EntryRef> plan_entries;    // [plan.rows]
  std::vector<Move> moves;               // of the last plan
  std::vector<SeqId> idle_runs;          // slot_runs: sequences that no request has; last = next
  std::vector<SeqId> closed;             // sequences that Remove closed in this step
  std::vector<SeqId> to_close;           // the same, of a step that was rolled back
  std::vector<RequestId> unchecked;      // added since the last plan
  uint32_t stuck_plans = 0;              // in a row that had work and no row
  uint64_t last_turn = 0;
  std::vector<EntryRef> prompts;  // scratch: those that wait, by turn
  // What a rolled back plan puts back.
  struct Turn {
    EntryRef entry;
    uint64_t turn;
    uint32_t deficit;
  };
  std::vector<Turn> turns;
  uint64_t turn_before = 0;
  StepShape timed_shape;  // of the last step that was done, until it is timed
  SchedulerCounters counters;

  EntryRef Find(RequestId id);
  // A request takes a sequence, and leaves it for good.
  std::optional<SeqId> TakeSequence(Pager& pager);
  void LeaveSequence(SeqId seq, Pager& pager);
  void MoveTo(Move::Kind kind, Entries& source, EntryRef entry, Entries& target, EntryRef where);
  // Where a newcomer of `priority` queues: behind its equals. And one that was preempted: before
  // them.
  EntryRef QueueBehind(int32_t priority);
  EntryRef QueueBefore(int32_t priority);

  // ---- one plan (plan.cc)
  void BeginPlan(Pager& pager);
  void DropUnfit(Pager& pager);
  void Drop(Entries& source, EntryRef entry, Pager& pager);
  uint32_t ReserveRows(EntryRef entry, uint32_t count, Pager& pager, ReserveStatus* status);
  void AddRows(EntryRef entry, uint32_t count, bool decode);
  void PlanDecodeRows(Pager& pager);
  void PlanPromptRows(Pager& pager);
  void GrantPromptRows(uint32_t rows);
  void BoundScoredRows();
  uint32_t PromptBudget(uint32_t first_position) const;
  uint32_t RowsWithinGap(uint32_t first_position, uint32_t at_most) const;
  void PlanPromptChunk(EntryRef entry, uint32_t budget, Pager& pager);
  bool HasRoomFor(const Entry& head, const Pager& pager) const;
  bool KeepsGap(const Entry& head) const;
  bool Admit(Pager& pager);
  void Adopt(Entry& entry);
  void MakeRoom(Pager& pager);
  EntryRef Victim();
  void Preempt(EntryRef victim, Pager& pager);
};

}  // namespace kvrm
