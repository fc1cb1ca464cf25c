// The step: plan, edit, commit, move, run, sample, publish. Nothing is visible before the commit;
// until then a step can be rolled back as if it had never been planned.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "engine/engine_state.h"
#include "transport/page_copies.h"

namespace kvrm {
bool Engine::State::Step() {
  if (!DrainEvents()) return stepped_last = false;
  PlanAndEdit();
  EndPhase(StepPhase::kPlanned, GapCause::kOther, &metrics.plan_us);
  stepped_last = Commit();
  if (!stepped_last) return true;
  EndPhase(StepPhase::kCommitted, GapCause::kOther, &metrics.edit_commit_us);
  MovePages();
  EndPhase(StepPhase::kMoved, GapCause::kTransport, &metrics.move_us);
  RunProgram();
  SampleRows();
  EndPhase(StepPhase::kSampled, GapCause::kSampling, &metrics.sample_us);
  Publish();
  PublishMetrics();
  return true;
}

// These readings of the clock are for people and decide nothing.
void Engine::State::EndPhase(StepPhase phase, GapCause cause, int64_t* total_us) {
  if (observer != nullptr) observer->OnPhase(phase);
  *total_us += ledger.Lap(clock.NowUs(), cause);
}

// One chore of the pager between two steps. Returns true when something was done.
bool Engine::State::Maintain() {
  ledger.Lap(clock.NowUs(), GapCause::kOther);
  const bool done = pager->Maintain();
  metrics.maintain_us += ledger.Lap(clock.NowUs(), GapCause::kTransport);
  return done;
}

// Sleeps until something comes. After a second without a request the engine tidies, one piece at a
// time with a look at the queue between two: cached pages over their bound go, empty superblocks go
// back to the system.
void Engine::State::WaitForEvents() {
  constexpr std::chrono::microseconds kIdleAfter = std::chrono::seconds(1);
  if (tidy) return events.Wait();
  events.WaitOrIdle(tidying ? std::chrono::microseconds(0) : kIdleAfter);
}

void Engine::State::Tidy() {
  tidying = pager->Maintain(Pager::Load::kIdle);
  tidy = !tidying;
}

// ---- before the step

// Returns whether there is a step to do: something to compute, or pages to give back.
bool Engine::State::DrainEvents() {
  const bool stop = events.Drain(&drained);
  for (Event& event : drained) {
    switch (event.kind) {
      case Event::Kind::kSubmit:
        Accept(event);
        break;
      case Event::Kind::kCancel:
        Cancel(event.id);
        break;
      case Event::Kind::kIdle:
        Tidy();
        break;
    }
  }
  if (stop && !stopping) CancelAll();
  stopping = stop;
  const bool work = !scheduler.idle() || !ended.empty();
  if (!work && !drained.empty()) PublishMetrics();
  drained.clear();
  if (work) NoteStepBegin();
  return work;
}

// The one reading of the clock in a step that decides something. What lies between two steps is
// what a stream waits for a token, so that is what the cost model learns; a pause of the engine is
// not.
void Engine::State::NoteStepBegin() {
  const int64_t now_us = clock.NowUs();
  if (stepped_last) scheduler.OnStepTimed(now_us - step_begin_us);
  step_begin_us = now_us;
  ledger.Lap(now_us, GapCause::kOther);
}

void Engine::State::Accept(Event& event) {
  auto request = std::make_unique<LiveRequest>();
  request->id = event.id;
  request->request = std::move(event.request);
  request->tokens = std::move(request->request.prompt);
  request->prompt_tokens = static_cast<uint32_t>(request->tokens.size());
  const uint32_t room = config.max_seq_tokens - request->prompt_tokens;
  const uint32_t asked = request->request.max_new_tokens;
  request->max_tokens = request->prompt_tokens + (asked == 0 ? room : std::min(asked, room));
  request->submit_us = event.submit_us;
  scheduler.Add(request->id, request->prompt_tokens, request->request.priority);
  tidy = tidying = false;
  ++metrics.requests_submitted;
  live.emplace(request->id, std::move(request));
}

void Engine::State::Cancel(RequestId id) {
  const auto it = live.find(id);
  if (it == live.end()) return;
  Finish(*it->second, StopReason::kCancelled, {});
}

void Engine::State::CancelAll() {
  while (!live.empty()) Finish(*live.begin()->second, StopReason::kCancelled, {});
}

// ---- plan and edit

void Engine::State::PlanAndEdit() {
  pager->BeginStep();
  for (const RequestId id : ended) scheduler.Remove(id, *pager);
  ended.clear();
  plan = &scheduler.Plan(*pager, adopt_prefix);
}

// The scheduler admits `id`, or takes it up again: what is cached of its tokens need not be
// computed.
uint32_t Engine::State::AdoptPrefix(RequestId id, SeqId seq) {
  const LiveRequest& request = *live.find(id)->second;
  const PrefixSalt salt{.tenant = request.request.tenant};
  const uint32_t cached = pager->MatchPrefix(salt, request.tokens);
  if (cached == 0) return 0;
  const Reservation adopted = pager->AdoptPrefix(seq, salt, request.tokens, cached);
  return adopted.status == ReserveStatus::kOk ? cached : 0;
}

// ---- commit

// Publishes the step's edits as one frame. False: the step was rolled back.
bool Engine::State::Commit() {
  if (observer != nullptr && !observer->OnEdited(*plan)) {
    RollBack();
    return false;
  }
  BuildRows();
  ++epoch;
  const std::span<const Delta> deltas = pager->Commit(epoch);
  frame = frames->Publish(epoch, rows, slots, deltas);
  ++metrics.steps;
  if (config.validate_each_step) ValidateCommitted();
  NotePlan();
  return true;
}

void Engine::State::RollBack() {
  pager->RollbackStep();
  scheduler.OnStepRolledBack();
}

// Rows in the plan's order, and the head of each slot that has rows, by ascending slot.
void Engine::State::BuildRows() {
  rows.clear();
  slots.clear();
  for (const RequestId id : plan->admitted) {
    const std::optional<SeqId> seq = scheduler.sequence(id);
    if (seq) by_slot[pager->slot(*seq).value] = live.find(id)->second.get();
  }
  uint32_t num_logits = 0;
  const uint32_t num_groups = static_cast<uint32_t>(pager->geometry().groups.size());
  for (const PlannedRows& planned : plan->rows) {
    SlotHead head{};
    head.slot = pager->slot(planned.seq).value;
    const LiveRequest& request = *by_slot[head.slot];
    KVRM_DCHECK(1, request.id == planned.request,
                "a slot belongs to the request that it was given");
    head.seq_id = planned.seq.value;
    head.row_begin = static_cast<uint32_t>(rows.size());
    head.num_rows = planned.count;
    for (uint32_t g = 0; g < num_groups; ++g) head.num_tokens[g] = pager->num_tokens(planned.seq);
    slots.push_back(head);
    const uint8_t no_write = planned.no_write ? kRowNoWrite : 0;
    for (uint32_t i = planned.first; i < planned.first + planned.count; ++i) {
      const bool sampled = planned.want_logits && i + 1 == planned.first + planned.count;
      rows.push_back({.token = request.tokens[i],
                      .slot = head.slot,
                      .token_src = TokenSource::kImmediate,
                      .flags = static_cast<uint8_t>((sampled ? kRowWantLogits : 0) | no_write),
                      .position = i,
                      .kv_index = i,
                      .mask_id = kNone32,
                      .lse_target = -1,
                      .logits_idx = sampled ? num_logits++ : kNone32,
                      .reserved = 0});
    }
  }
  std::sort(slots.begin(), slots.end(),
            [](const SlotHead& a, const SlotHead& b) { return a.slot < b.slot; });
}

// What the committed plan means for requests: only now has it happened.
void Engine::State::NotePlan() {
  uint32_t no_longer_waiting = 0;
  for (const RequestId id : plan->admitted) {
    LiveRequest& request = *live.find(id)->second;
    request.running = true;
    ++num_running;
    if (request.admitted) continue;  // once more after a preemption
    request.admitted = true;
    request.admitted_us = step_begin_us;
    request.cached_tokens = scheduler.num_cached_tokens(id);
    request.tokens.reserve(request.max_tokens);  // so that decoding does not allocate
    ++no_longer_waiting;
  }
  events.NoLongerWaiting(no_longer_waiting);
  for (const RequestId id : plan->preempted) {
    LiveRequest& request = *live.find(id)->second;
    request.running = false;
    request.preempted_since_token = true;
    --num_running;
    ++request.preemptions;
  }
}

// ---- move

// Copy-on-write of shared pages, before the rows of this step are written.
void Engine::State::MovePages() {
  AddPageCopies(pager->geometry(), pager->page_copies(), merger);
  copy_engine.Run(merger.Collect());
}

// ---- run

// A step may have nothing to compute (it only gave pages back); then no program is replayed.
void Engine::State::RunProgram() {
  result = rows.empty() ? StepResult{} : executor->Replay(frame);
  if (observer != nullptr) observer->OnPhase(StepPhase::kRun);
  const StepShape& shape = plan->shape;
  const StepShape decoding{.decode_rows = shape.decode_rows, .decode_tokens = shape.decode_tokens};
  metrics.run_us += ledger.LapReplay(
      clock.NowUs(), {.decode_rows = shape.decode_rows,
                      .prompt_rows = shape.prompt_rows,
                      .decode_us = static_cast<int64_t>(scheduler.cost().PredictUs(decoding))});
}

// ---- sample

void Engine::State::SampleRows() {
  outcomes.clear();
  uint32_t row_begin = 0;
  for (const PlannedRows& planned : plan->rows) {
    Outcome outcome = SampleOne(planned, row_begin);
    row_begin += planned.count;
    const bool fault = outcome.fault_position != kNone32;
    if (planned.want_logits || fault) outcomes.push_back(std::move(outcome));
  }
}

Outcome Engine::State::SampleOne(const PlannedRows& planned, uint32_t row_begin) {
  Outcome outcome;
  outcome.live = by_slot[rows[row_begin].slot];
  for (uint32_t i = 0; i < planned.count; ++i) {
    if (result.row_status[row_begin + i] == kRowOk) continue;
    outcome.fault_position = planned.first + i;
    return outcome;
  }
  if (!planned.want_logits) return outcome;
  const uint32_t logits_idx = rows[row_begin + planned.count - 1].logits_idx;
  const LiveRequest& request = *outcome.live;
  const uint32_t output_idx = request.num_output();
  const std::span<const TokenId> banned = output_idx < request.request.min_new_tokens
                                              ? std::span(request.request.end_tokens)
                                              : std::span<const TokenId>();
  const float* panel_max = result.panel_max == nullptr
                               ? nullptr
                               : result.panel_max + size_t{logits_idx} * result.num_panels;
  outcome.sample = sampler.Run(request.request.sampling,
                               result.logits + size_t{logits_idx} * result.logits_stride, panel_max,
                               request.tokens, output_idx, banned);
  if (!outcome.sample.ok) outcome.fault_position = planned.first + planned.count - 1;
  return outcome;
}

// ---- publish

void Engine::State::Publish() {
  if (observer != nullptr) observer->OnStep(*plan, frame, result);
  scheduler.OnStepDone();
  pager->StepDone(epoch);
  if (config.prefix_cache) IndexPrefixes();
  metrics.prompt_tokens += plan->num_prompt_rows;
  if (config.validate_each_step) ValidateStep();
  const int64_t now_us = clock.NowUs();  // stamps what goes out; decides nothing
  ledger.Stamp(now_us);
  for (Outcome& outcome : outcomes) PublishOutcome(outcome, now_us);
  EndUnserviceable();
  EndPhase(StepPhase::kPublished, GapCause::kOutput, &metrics.output_us);
  const int64_t end_us = clock.NowUs();
  metrics.step_us += end_us - step_begin_us;
  ledger.EndStep(end_us);
}

// Pages that this step filled can be found by their tokens from now on, unless a value in them was
// not finite: such a sequence ends, and nobody shall find what it left.
void Engine::State::IndexPrefixes() {
  const uint32_t page_tokens = pager->geometry().groups[0].page_tokens;
  uint32_t row_begin = 0;
  for (const PlannedRows& planned : plan->rows) {
    const LiveRequest& request = *by_slot[rows[row_begin].slot];
    const uint8_t* status = result.row_status + row_begin;
    row_begin += planned.count;
    const uint32_t end = planned.first + planned.count;
    if (planned.first / page_tokens == end / page_tokens) continue;
    if (!std::all_of(status, status + planned.count, [](uint8_t s) { return s == kRowOk; }))
      continue;
    pager->IndexPrefix(planned.seq, {.tenant = request.request.tenant},
                       std::span(request.tokens).first(end));
  }
}

void Engine::State::PublishOutcome(Outcome& outcome, int64_t now_us) {
  LiveRequest& request = *outcome.live;
  if (outcome.fault_position != kNone32) {
    Finish(request, StopReason::kError,
           "numeric fault: a value at position " + std::to_string(outcome.fault_position) +
               " is not finite, or no token may follow it; only this request ends");
    return;
  }
  if (request.num_output() == 0) {
    request.first_token_us = now_us;
  } else {
    ledger.Count(request.last_token_us, request.preempted_since_token);
    request.longest_gap_us = std::max(request.longest_gap_us, now_us - request.last_token_us);
    metrics.longest_gap_us = std::max(metrics.longest_gap_us, request.longest_gap_us);
  }
  request.last_token_us = now_us;
  request.preempted_since_token = false;
  const TokenEvent event{
      .token = outcome.sample.id,
      .index = request.num_output(),
      .logprob = outcome.sample.logprob,
      .top = request.request.sampling.num_logprobs > 0 ? &outcome.sample.top : nullptr};
  request.tokens.push_back(outcome.sample.id);
  scheduler.OnToken(request.id);
  ++metrics.output_tokens;
  request.request.sink->OnToken(request.id, event);
  const StopReason reason = ReasonToStop(request);
  if (reason != StopReason::kNone) Finish(request, reason, {});
}

StopReason Engine::State::ReasonToStop(const LiveRequest& request) const {
  const auto& ends = request.request.end_tokens;
  if (std::find(ends.begin(), ends.end(), request.tokens.back()) != ends.end()) {
    return StopReason::kEnd;
  }
  return request.tokens.size() >= request.max_tokens ? StopReason::kLength : StopReason::kNone;
}

// The pool itself is too small for a sequence that grew: it ends where the pool ends, as at the end
// of its context. Without a single output token that is an error (Check tells it beforehand).
void Engine::State::EndUnserviceable() {
  for (const RequestId id : plan->unserviceable) {
    LiveRequest& request = *live.find(id)->second;
    if (request.num_output() > 0) {
      Finish(request, StopReason::kLength, {});
      continue;
    }
    Finish(request, StopReason::kError,
           "prompt has " + std::to_string(request.prompt_tokens) +
               " tokens, but the KV pool can give one sequence at most " +
               std::to_string(std::min<uint64_t>(kv_tokens, config.max_seq_tokens)));
  }
}

// The one place where a request ends. Its pages go back in the edit of the next step.
void Engine::State::Finish(LiveRequest& request, StopReason reason, std::string message) {
  const RequestId id = request.id;
  if (scheduler.sequence(id).has_value()) {
    ended.push_back(id);
  } else {
    scheduler.Remove(id, *pager);  // it only queues: no edit
  }
  num_running -= request.running ? 1 : 0;
  if (!request.admitted) events.NoLongerWaiting(1);  // at once: the sink may submit anew
  uint64_t& count = reason == StopReason::kCancelled ? metrics.requests_cancelled
                    : reason == StopReason::kError   ? metrics.requests_failed
                                                     : metrics.requests_finished;
  ++count;
  const bool started = request.num_output() > 0;
  FinishEvent event;
  event.reason = reason;
  event.message = std::move(message);
  const int64_t waited_until_us = request.admitted ? request.admitted_us : clock.NowUs();
  event.timings = {.queued_us = waited_until_us - request.submit_us,
                   .prompt_us = started ? request.first_token_us - request.admitted_us : 0,
                   .decode_us = started ? request.last_token_us - request.first_token_us : 0,
                   .longest_gap_us = request.longest_gap_us,
                   .prompt_tokens = request.prompt_tokens,
                   .output_tokens = request.num_output(),
                   .cached_tokens = request.cached_tokens,
                   .preemptions = request.preemptions};
  const auto node = live.extract(id);  // ended for the sink's callback, too, and alive during it
  request.request.sink->OnFinish(id, event);
}

}  // namespace kvrm
