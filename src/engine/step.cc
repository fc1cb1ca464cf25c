// The step: plan, edit, commit, move, run, sample, publish. Nothing is visible before the commit;
// until then a step can be rolled back as if it had never been planned.
#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/retry_memory.h"
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
  const int64_t lap_us = ledger.Lap(clock.NowUs(), cause);
  *total_us += lap_us;
  latencies.phases[static_cast<size_t>(phase)].Add(lap_us);
}

// One chore of the pager between two steps. Returns true when something was done.
bool Engine::State::Maintain() {
  ledger.Lap(clock.NowUs(), GapCause::kOther);
  const bool done = pager->Maintain();
  if (done && recorder != nullptr) recorder->Maintained();
  metrics.maintain_us += ledger.Lap(clock.NowUs(), GapCause::kTransport);
  return done;
}

// Sleeps until something comes. After a second without a request the engine tidies, one piece at a
// time with a look at the queue between two: cached pages over their bound go, empty superblocks go
// back to the system.
void Engine::State::WaitForEvents() {
  constexpr std::chrono::microseconds kIdleAfter = std::chrono::seconds(1);
  if (idleness == Idleness::kNoRequestYet || idleness == Idleness::kTidy) return events.Wait();
  const bool tidying = idleness == Idleness::kTidying;
  events.WaitOrIdle(tidying ? std::chrono::microseconds(0) : kIdleAfter);
}

void Engine::State::Tidy() {
  idleness = pager->Maintain(Pager::Load::kIdle) ? Idleness::kTidying : Idleness::kTidy;
}

// ---- before the step

// Returns whether there is a step to do: something to compute, or pages to give back.
bool Engine::State::DrainEvents() {
  const bool stop = events.Drain(&drained);
  for (Event& event : drained) {
    if (recorder != nullptr) RecordEvent(event);
    switch (event.kind) {
      case Event::Kind::kSubmit:
        AcceptOrFail(event);
        break;
      case Event::Kind::kCancel:
        Cancel(event.id);
        break;
      case Event::Kind::kIdle:
        Tidy();
        break;
    }
  }
  const bool stop_is_new = stop && !stopping;
  if (stop_is_new) {
    if (recorder != nullptr) recorder->Stop();
    CancelAll();
  }
  stopping = stop;
  EndTelling();
  const bool work = !scheduler.idle() || !ended.empty();
  if (!work && recorder != nullptr) recorder->Pause(stepped_last);
  if (!work && (stop_is_new || !drained.empty())) PublishMetrics();
  drained.clear();
  if (work) NoteStepBegin();
  return work;
}

void Engine::State::RecordEvent(const Event& event) {
  switch (event.kind) {
    case Event::Kind::kSubmit:
      return recorder->Submit(event.id, event.submit_us, event.request);
    case Event::Kind::kCancel:
      return recorder->Cancel(event.id);
    case Event::Kind::kIdle:
      return recorder->Idle();
  }
}

// The one reading of the clock in a step that decides something. What lies between two steps is
// what a stream waits for a token, so that is what the cost model learns; a pause of the engine is
// not.
void Engine::State::NoteStepBegin() {
  const int64_t now_us = clock.NowUs();
  if (stepped_last) scheduler.OnStepTimed(now_us - step_begin_us);
  step_begin_us = now_us;
  ledger.Lap(now_us, GapCause::kOther);
  if (recorder != nullptr) recorder->Step(now_us);
}

// Memory that is refused here costs this request alone.
void Engine::State::AcceptOrFail(Event& event) {
  ++metrics.requests_submitted;
  try {
    return Accept(event);
  } catch (const std::bad_alloc&) {
    live.erase(event.id);
  }
  ++metrics.requests_failed;
  events.NoLongerWaiting(1);
  if (recorder != nullptr) recorder->End(event.id, StopReason::kError);
  FinishEvent finish;
  finish.reason = StopReason::kError;
  finish.message = "out of memory";  // short enough to need none itself
  Tell(event.request.sink).OnFinish(event.id, finish);
}

// Throws std::bad_alloc with the request half known; its sink is still to be read from `event`.
void Engine::State::Accept(Event& event) {
  auto request = std::make_unique<LiveRequest>();
  request->id = event.id;
  request->request = std::move(event.request);
  request->tokens = std::move(request->request.prompt);
  request->prompt_tokens = static_cast<uint32_t>(request->tokens.size());
  const uint32_t room = config.max_seq_tokens - request->prompt_tokens;
  const uint32_t asked = request->request.max_new_tokens;
  const uint32_t output = asked == 0 ? room : std::min(asked, room);
  request->max_tokens = request->prompt_tokens + (request->request.generate ? output : 0);
  request->submit_us = event.submit_us;
  idleness = Idleness::kNone;
  const LiveRequest& accepted = *live.emplace(event.id, std::move(request)).first->second;
  if (!WaitsForItsTwin(accepted)) Queue(accepted, Scheduler::Place::kLast);
}

void Engine::State::Queue(const LiveRequest& request, Scheduler::Place place) {
  const uint32_t scored = request.request.score_prompt ? request.prompt_tokens - 1 : 0;
  scheduler.Add(request.id, request.prompt_tokens, request.request.priority, scored, place);
}

// Of equal prompts that came together the first is computed; the others then refer to its pages.
bool Engine::State::WaitsForItsTwin(const LiveRequest& request) {
  if (!request.request.fork_of) return false;
  const auto found = live.find(*request.request.fork_of);
  if (found == live.end() || found->second.get() == &request) return false;
  LiveRequest& twin = *found->second;
  if (twin.prompt_done || twin.tokens != request.tokens) return false;
  twin.forks.push_back(request.id);
  return true;
}

// Before what came after the request that they waited for.
void Engine::State::ReleaseForks(LiveRequest& request) {
  for (auto id = request.forks.rbegin(); id != request.forks.rend(); ++id) {
    const auto found = live.find(*id);
    if (found == live.end()) continue;
    RetryUntilMemory([&] { Queue(*found->second, Scheduler::Place::kFirst); });
  }
  request.forks.clear();
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
  for (const RequestId id : ended) {
    const std::optional<SeqId> seq = scheduler.sequence(id);
    if (config.return_memory && seq) pager->ReturnMemory(*seq);
    scheduler.Remove(id, *pager);
  }
  ended.clear();
  plan = &scheduler.Plan(*pager, adopt_prefix);
}

// The scheduler admits `id`, or takes it up again: what is known of its tokens' pages need not be
// computed, but for rows that are still to be scored.
uint32_t Engine::State::AdoptPrefix(RequestId id, SeqId seq) {
  if (config.slot_runs) return 0;  // a slot's pages are its own
  const LiveRequest& request = *live.find(id)->second;
  std::span<const TokenId> tokens = request.tokens;
  const uint32_t num_scored = scheduler.num_scored_rows(id);
  if (request.request.score_prompt && num_scored + 1 < request.prompt_tokens) {
    tokens = tokens.first(num_scored);
  }
  if (tokens.size() == request.prompt_tokens) {
    const uint32_t shared = AdoptFromTwin(request, seq);
    if (shared > 0) return shared;
  }
  if (!config.prefix_cache || tokens.empty()) return 0;
  const PrefixSalt salt{.tenant = request.request.tenant};
  const uint32_t cached = pager->MatchPrefix(salt, tokens);
  if (cached == 0) return 0;
  const Reservation adopted = pager->AdoptPrefix(seq, salt, tokens, cached);
  return adopted.status == ReserveStatus::kOk ? cached : 0;
}

// The whole prompt, from the pages of the request that it forks, while that one holds them.
uint32_t Engine::State::AdoptFromTwin(const LiveRequest& request, SeqId seq) {
  if (!request.request.fork_of) return 0;
  const RequestId twin_id = *request.request.fork_of;
  const auto found = live.find(twin_id);
  const std::optional<SeqId> twin_seq = scheduler.sequence(twin_id);
  if (found == live.end() || !twin_seq) return 0;
  const LiveRequest& twin = *found->second;
  const uint32_t count = request.prompt_tokens;
  if (twin.request.tenant != request.request.tenant || twin.prompt_tokens != count ||
      scheduler.num_computed_tokens(twin_id) < count ||
      !std::equal(request.tokens.begin(), request.tokens.end(), twin.tokens.begin())) {
    return 0;
  }
  const Reservation shared = pager->Alias(seq, *twin_seq, count);
  return shared.status == ReserveStatus::kOk ? count : 0;
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
  if (recorder != nullptr) recorder->Rollback();
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
      const bool has_logits = i >= planned.logits_from;
      const bool scored = has_logits && i + 1 < request.prompt_tokens;
      rows.push_back({.token = request.tokens[i],
                      .slot = head.slot,
                      .token_src = TokenSource::kImmediate,
                      .flags = static_cast<uint8_t>((has_logits ? kRowWantLogits : 0) | no_write),
                      .position = i,
                      .kv_index = i,
                      .mask_id = kNone32,
                      .lse_target = scored ? request.tokens[i + 1] : -1,
                      .logits_idx = has_logits ? num_logits++ : kNone32,
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
    latencies.queued.Add(step_begin_us - request.submit_us);
    request.cached_tokens = scheduler.num_cached_tokens(id);
    // So that decoding does not allocate.
    RetryUntilMemory([&] { request.tokens.reserve(request.max_tokens); });
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

// Memory first: the program meets no page fault (I1), however much the step took at once. Then
// copy-on-write of shared pages, before the rows of this step are written.
void Engine::State::MovePages() {
  while (pager->Maintain(Pager::Load::kTaken)) {
  }
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
  const int64_t lap_us = ledger.LapReplay(
      clock.NowUs(), {.decode_rows = shape.decode_rows,
                      .prompt_rows = shape.prompt_rows,
                      .decode_us = static_cast<int64_t>(scheduler.cost().PredictUs(decoding))});
  metrics.run_us += lap_us;
  latencies.phases[static_cast<size_t>(StepPhase::kRun)].Add(lap_us);
}

}  // namespace kvrm
