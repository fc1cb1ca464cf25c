// The second half of the step: what its rows said. Sample and score, then publish.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/engine_state.h"

namespace kvrm {

// ---- sample

void Engine::State::SampleRows() {
  outcomes.clear();
  scores.clear();
  uint32_t row_begin = 0;
  for (const PlannedRows& planned : plan->rows) {
    Outcome outcome = SampleOne(planned, row_begin);
    if (outcome.fault_position == kNone32) {
      outcome.fault_position = ScorePromptRows(planned, row_begin);
    }
    row_begin += planned.count;
    const bool fault = outcome.fault_position != kNone32;
    if (planned.want_logits || fault) outcomes.push_back(std::move(outcome));
  }
}

const float* Engine::State::PanelMaxOf(uint32_t logits_idx) const {
  if (result.panel_max == nullptr) return nullptr;
  return result.panel_max + size_t{logits_idx} * result.num_panels;
}

// Row i of a scored prompt tells of its token i + 1; the last row is sampled instead. Returns the
// position of a row whose logits are not finite, if there is one.
uint32_t Engine::State::ScorePromptRows(const PlannedRows& planned, uint32_t row_begin) {
  LiveRequest& request = *by_slot[rows[row_begin].slot];
  const uint32_t end = planned.first + planned.count - (planned.want_logits ? 1 : 0);
  for (uint32_t i = planned.logits_from; i < end; ++i) {
    const uint32_t logits_idx = rows[row_begin + i - planned.first].logits_idx;
    Sample sample = sampler.Score(result.logits + size_t{logits_idx} * result.logits_stride,
                                  PanelMaxOf(logits_idx), request.tokens[i + 1],
                                  request.request.num_prompt_logprobs);
    if (!sample.ok) return i;
    scores.push_back({&request, i + 1, std::move(sample)});
  }
  return kNone32;
}

Outcome Engine::State::SampleOne(const PlannedRows& planned, uint32_t row_begin) {
  Outcome outcome;
  outcome.live = by_slot[rows[row_begin].slot];
  for (uint32_t i = 0; i < planned.count; ++i) {
    if (result.row_status[row_begin + i] == kRowOk) continue;
    outcome.fault_position = planned.first + i;
    return outcome;
  }
  if (!planned.want_logits || !outcome.live->request.generate) return outcome;
  const uint32_t logits_idx = rows[row_begin + planned.count - 1].logits_idx;
  const LiveRequest& request = *outcome.live;
  const uint32_t output_idx = request.num_output();
  const std::span<const TokenId> banned = output_idx < request.request.min_new_tokens
                                              ? std::span(request.request.end_tokens)
                                              : std::span<const TokenId>();
  outcome.sample = sampler.Run(request.request.sampling,
                               result.logits + size_t{logits_idx} * result.logits_stride,
                               PanelMaxOf(logits_idx), request.tokens, output_idx, banned);
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
  ReportProgress(now_us);
  for (const PromptScore& score : scores) PublishScore(score);
  for (Outcome& outcome : outcomes) PublishOutcome(outcome, now_us);
  EndUnserviceable();
  EndTelling();
  if (recorder != nullptr) recorder->Commit(*frame.head, *plan);
  EndPhase(StepPhase::kPublished, GapCause::kOutput, &metrics.output_us);
  const int64_t end_us = clock.NowUs();
  metrics.step_us += end_us - step_begin_us;
  latencies.step.Add(end_us - step_begin_us);
}

// The sink of a request, which is about to be called.
EventSink& Engine::State::Tell(EventSink* sink) {
  telling = true;
  return *sink;
}

// Whoever collects what sinks are told gets a step whole.
void Engine::State::EndTelling() {
  if (std::exchange(telling, false) && told) told();
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

// The last row of a prompt gives the first token, which tells by itself.
void Engine::State::ReportProgress(int64_t now_us) {
  uint32_t row_begin = 0;
  for (const PlannedRows& planned : plan->rows) {
    const LiveRequest& request = *by_slot[rows[row_begin].slot];
    row_begin += planned.count;
    const uint32_t processed = planned.first + planned.count;
    if (!request.request.report_progress || processed >= request.prompt_tokens) continue;
    Tell(request.request.sink)
        .OnProgress(request.id, {.total = request.prompt_tokens,
                                 .cached = request.cached_tokens,
                                 .processed = processed,
                                 .time_us = now_us - request.admitted_us});
  }
}

void Engine::State::PublishScore(const PromptScore& score) {
  LiveRequest& request = *score.live;
  const PromptTokenEvent event{.index = score.index,
                               .token = score.sample.id,
                               .logprob = score.sample.logprob,
                               .rank = score.sample.rank,
                               .top = &score.sample.top};
  Tell(request.request.sink).OnPromptToken(request.id, event);
}

void Engine::State::PublishOutcome(Outcome& outcome, int64_t now_us) {
  LiveRequest& request = *outcome.live;
  if (outcome.fault_position != kNone32) {
    Finish(request, StopReason::kError,
           "numeric fault: a value at position " + std::to_string(outcome.fault_position) +
               " is not finite, or no token may follow it; only this request ends");
    return;
  }
  request.prompt_done = true;
  ReleaseForks(request);
  if (!request.request.generate) {
    request.first_token_us = request.last_token_us = now_us;
    return Finish(request, StopReason::kLength, {});
  }
  if (request.num_output() == 0) {
    request.first_token_us = now_us;
    latencies.prefill.Add(now_us - request.admitted_us);
  } else {
    latencies.gap.Add(now_us - request.last_token_us);
    ledger.Count(request.last_token_us, request.preempted_since_token);
    request.longest_gap_us = std::max(request.longest_gap_us, now_us - request.last_token_us);
    metrics.longest_gap_us = std::max(metrics.longest_gap_us, request.longest_gap_us);
  }
  request.last_token_us = now_us;
  request.preempted_since_token = false;
  request.tokens.push_back(outcome.sample.id);
  const TokenEvent event{
      .token = outcome.sample.id,
      .index = request.num_output() - 1,
      .made_us = now_us,
      .logprob = outcome.sample.logprob,
      .top = request.request.sampling.num_logprobs > 0 ? &outcome.sample.top : nullptr,
      .timings = TimingsOf(request)};
  scheduler.OnToken(request.id);
  ++metrics.output_tokens;
  if (recorder != nullptr) recorder->Token(request.id, outcome.sample.id);
  Tell(request.request.sink).OnToken(request.id, event);
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

RequestTimings Engine::State::TimingsOf(const LiveRequest& request) const {
  const bool started = request.prompt_done;
  const int64_t waited_until_us = request.admitted ? request.admitted_us : clock.NowUs();
  return {.queued_us = waited_until_us - request.submit_us,
          .prompt_us = started ? request.first_token_us - request.admitted_us : 0,
          .decode_us = started ? request.last_token_us - request.first_token_us : 0,
          .longest_gap_us = request.longest_gap_us,
          .prompt_tokens = request.prompt_tokens,
          .output_tokens = request.num_output(),
          .cached_tokens = request.cached_tokens,
          .preemptions = request.preemptions};
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
  if (recorder != nullptr) recorder->End(id, reason);
  ReleaseForks(request);
  if (request.num_output() > 1) latencies.longest_gap.Add(request.longest_gap_us);
  FinishEvent event;
  event.reason = reason;
  event.message = std::move(message);
  event.timings = TimingsOf(request);
  const auto node = live.extract(id);  // ended for the sink's callback, too, and alive during it
  Tell(request.request.sink).OnFinish(id, event);
}

}  // namespace kvrm
