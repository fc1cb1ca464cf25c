// The scheduler: which rows the next step computes. It plans from counts alone, never from token
// values, and never sees a frame. Engine-thread-only. No clock, no hash-ordered container: the same
// calls give the same plans.
//
// Order of a plan: decode rows first (one for each sequence that has computed its prompt), then
// prompt rows. How many of these is told by the gap budget and the cost model where something
// decodes, else by the widest program; prompts share them in turns, so that a short one is not
// stuck behind a long one. While a prompt waits each step advances some prompt. A sequence that was
// deferred (no room) is left out of that step alone. When nothing can run because of room, a
// sequence is preempted by recompute: its pages are trimmed and it queues again, first of its
// priority, with what it has generated as part of its prompt. Victims are those that lose least
// work.
//
// A newcomer, or one that comes back, may find the beginning of what it knows in the prefix index:
// then its rows begin where that ends. The scheduler knows no tokens; the host adopts for it.
//
// SCHED-1  a request is in exactly one of: queue, running, gone.
// SCHED-2  running <= max_slots.
// SCHED-3  each running sequence has at most one chunk of rows in a plan, ascending positions.
// SCHED-4  with work and room for one sequence, a plan is never empty (no lost wake-up, B021).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "pager/pager.h"
#include "sched/cost_model.h"

namespace kvrm {

struct SchedulerConfig {
  uint32_t max_slots = 32;
  uint32_t max_rows = 0;            // of the widest program
  uint32_t prompt_rows = 512;       // most prompt rows in one step when nothing decodes
  uint32_t mixed_prompt_rows = 64;  // most prompt rows in a step that decodes too
  uint32_t chunk_rows = 0;  // most prompt rows of one sequence in a step; 0 = no further bound
  uint32_t max_logits = 0;  // most rows with logits in a step, at least max_slots; 0 = max_slots
  uint32_t prompt_quantum = 256;  // prompt rows of a turn
  // Each slot has one sequence, reserved once at its full length (OpenSlotRuns) and handed from
  // request to request: nobody waits for pages, nobody is preempted, nothing is shared.
  bool slot_runs = false;
  int64_t max_step_us = 0;               // gap budget of a step that decodes; 0 = none
  std::vector<StepSample> step_samples;  // of the cost model; none: mixed_prompt_rows rules
};

// Tokens that a sequence which was preempted gains, once it runs again, before it may be a victim
// anew.
inline constexpr uint32_t kLeastTokensOfAResumed = 32;

// Plans in a row without a row, for want of pages that are there but do not help, until somebody
// gives way.
inline constexpr uint32_t kMostStuckPlans = 16;

struct PlannedRows {
  RequestId request;
  SeqId seq;
  uint32_t first;  // KV index of the first row
  uint32_t count;
  bool decode;           // true: one row, token sampled by an earlier step
  bool want_logits;      // the last row completes what is known: its logits are sampled
  uint32_t logits_from;  // rows [logits_from, first + count) have logits; scored, but for the last
                         // with want_logits
  bool no_write =
      false;  // its places hold their contents already (adopted whole): one row, read only
};

// Called for a request that was just admitted, with its empty sequence: makes the sequence's first
// places refer to cached pages that hold its tokens (Pager::AdoptPrefix), and returns how many.
using PrefixAdopter = std::function<uint32_t(RequestId, SeqId)>;

struct StepPlan {
  std::vector<PlannedRows> rows;         // decode rows first
  std::vector<RequestId> admitted;       // taken from the queue by this plan
  std::vector<RequestId> preempted;      // trimmed and queued again by this plan
  std::vector<RequestId> unserviceable;  // can never fit; removed
  uint32_t num_rows = 0, num_prompt_rows = 0, num_logits = 0;
  uint32_t deferred = 0;
  StepShape shape;             // what it computes, as the cost model counts
  uint32_t cached_tokens = 0;  // of the admitted: rows that need not be computed
};

struct SchedulerCounters {
  uint64_t plans = 0, admitted = 0, preempted = 0, deferred = 0;
  uint64_t cached_tokens = 0;  // rows that no plan had to hold, over all admissions
  uint32_t queued = 0, running = 0;
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerConfig& config);
  ~Scheduler();

  // With slot_runs, once, before the first plan and inside a step of its own: opens the sequence of
  // each slot and reserves `num_tokens` places for it. False: the pager has no room for all.
  bool OpenSlotRuns(Pager& pager, uint32_t num_tokens);

  // Queues a request whose known tokens (prompt) number `num_tokens` >= 1. Higher priorities come
  // first and are preempted last; equals queue in the order in which they came, but for one that
  // comes `kFirst`. Rows [0, scored_rows) of the prompt, scored_rows < num_tokens, shall have
  // logits: each once, in order, in as many steps as the bound on logits asks for.
  enum class Place : uint8_t { kLast, kFirst };
  void Add(RequestId id, uint32_t num_tokens, int32_t priority = 0, uint32_t scored_rows = 0,
           Place place = Place::kLast);
  // Drops a request wherever it is; a running one's sequence is closed in `pager`.
  void Remove(RequestId id, Pager& pager);
  // One more token is known (sampled): the next plan may compute it.
  void OnToken(RequestId id);

  // Plans one step and makes its edits in `pager` (Open, Reserve, Trim, Close of victims), each
  // sequence under its own savepoint. Requires: pager.BeginStep() was called. The plan is valid
  // until the next call. `adopt`, if given, finds prefixes that are cached.
  const StepPlan& Plan(Pager& pager, const PrefixAdopter& adopt = nullptr);
  // The step ran: rows of the last plan are computed.
  void OnStepDone();
  // The last step that was done took `us`: the cost model learns. Not called where the engine
  // slept.
  void OnStepTimed(int64_t us);
  // The step was rolled back: nothing of the last plan happened.
  void OnStepRolledBack();

  bool idle() const;
  std::optional<SeqId> sequence(RequestId id) const;
  uint32_t num_computed_tokens(RequestId id) const;
  uint32_t num_scored_rows(RequestId id) const;  // of the rows to be scored, those that were
  // Prompt rows of its first admission that need not be computed, because they were cached.
  uint32_t num_cached_tokens(RequestId id) const;
  SchedulerCounters counters() const;
  const CostModel& cost() const;

  struct State;  // of this folder's sources

 private:
  std::unique_ptr<State> state_;
};

}  // namespace kvrm
