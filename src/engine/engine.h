// The engine: requests in, tokens out. It owns pager, frame builder, scheduler and sampler, and
// runs the step (step.cc): plan, edit, commit, move, run, sample, publish.
//
// Threads: one engine thread calls Step() or Run(); it alone touches pager and scheduler. Submit,
// Cancel, Metrics and Stop are thread-safe and meet it in one event queue, the engine's only
// entrance. Events come out through an EventSink on the engine thread; a sink must not block.
//
// Errors: a bad request is refused by Check() with the arithmetic in the message; a numeric fault
// ends that request with kError; running out of KV never ends a neighbour.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/histogram.h"
#include "base/ids.h"
#include "base/result.h"
#include "engine/gap_causes.h"
#include "engine/gap_ledger.h"
#include "engine/sampler.h"
#include "exec/executor.h"
#include "frame/frame.h"
#include "pager/pager.h"
#include "sched/scheduler.h"
#include "transport/descriptor.h"

namespace kvrm {

enum class StopReason : uint8_t { kNone, kEnd, kLength, kCancelled, kError };

struct RequestTimings {   // microseconds on the engine's clock
  int64_t queued_us = 0;  // submit to admission
  int64_t prompt_us = 0;  // admission to first token
  int64_t decode_us = 0;  // first token to last
  int64_t longest_gap_us = 0;
  uint32_t prompt_tokens = 0, output_tokens = 0, cached_tokens = 0, preemptions = 0;
  bool operator==(const RequestTimings&) const = default;
};

struct TokenEvent {
  TokenId token = -1;
  uint32_t index = 0;   // output index, from 0
  int64_t made_us = 0;  // on the engine's clock: where one gap of its stream ends, the next begins
  float logprob = 0;
  const std::vector<TokenLogprob>* top = nullptr;  // valid during the call; null when not asked
  RequestTimings timings;                          // as if its request ended with it
};
// What the model said of a prompt token, from what stands before it.
struct PromptTokenEvent {
  uint32_t index = 0;  // in the prompt, 1 or more: nothing stands before the first
  TokenId token = -1;
  float logprob = 0;
  uint32_t rank = 0;                               // 1 = the likeliest
  const std::vector<TokenLogprob>* top = nullptr;  // valid during the call
};
struct FinishEvent {
  StopReason reason = StopReason::kNone;
  std::string message;  // of kError
  RequestTimings timings;
};

struct PromptProgress {
  uint32_t total = 0;      // prompt tokens
  uint32_t cached = 0;     // of these, found in the prefix cache
  uint32_t processed = 0;  // cached or computed so far
  int64_t time_us = 0;     // since its admission
};

// Called on the engine thread, in output order, and never after OnFinish. The end token, too, comes
// as a TokenEvent (it counts as an output token); whoever prints text leaves it out.
class EventSink {
 public:
  virtual ~EventSink() = default;
  // With score_prompt: every token of the prompt but the first, in order, before the first OnToken.
  virtual void OnPromptToken(RequestId /*id*/, const PromptTokenEvent& /*event*/) {}
  // With report_progress: after each step that computed prompt rows but not the last of them.
  virtual void OnProgress(RequestId /*id*/, const PromptProgress& /*progress*/) {}
  virtual void OnToken(RequestId id, const TokenEvent& event) = 0;
  virtual void OnFinish(RequestId id, const FinishEvent& event) = 0;
};

struct GenerateRequest {
  std::vector<TokenId> prompt;  // 1..max_seq_tokens - 1 ids
  SamplingParams sampling;
  uint32_t max_new_tokens = 0;  // 0 = to the context's end
  uint32_t min_new_tokens = 0;
  bool generate = true;       // false: it ends (kLength) once its prompt is computed
  bool score_prompt = false;  // OnPromptToken. Each row is computed anew, whatever is cached of it
  uint32_t num_prompt_logprobs = 0;  // top entries beside each prompt token, 0..kMaxTopLogprobs
  // An earlier request with the same prompt, whose prompt shall be computed once for both: this one
  // waits for it and refers to its pages (Alias). An id that is unknown, has another prompt or
  // ended early is no error: then it is computed by itself. Tokens are the same either way (law
  // I5).
  std::optional<RequestId> fork_of;
  bool report_progress = false;     // OnProgress
  std::vector<TokenId> end_tokens;  // ids that end it (kEnd); empty with ignore_eos
  EventSink* sink = nullptr;        // outlives the request
  uint64_t tenant = 0;              // prefixes are shared within a tenant only
  int32_t priority = 0;             // higher first
};

// max_itl_us: the larger of 50 ms and 1.5 times a decode step of all slots at half the context, as
// the executor's samples tell; none where it took none.
inline constexpr int64_t kAutoMaxItl = -1;

struct EngineConfig {
  uint32_t max_slots = 32;
  uint32_t max_seq_tokens = 0;  // prompt + output of one sequence
  uint32_t max_queued = 4096;
  uint32_t chunk_rows = 0;  // --chunk: most prompt rows of a sequence in a step; 0 = auto
  uint32_t mixed_prompt_rows = 64;
  int64_t max_itl_us =
      0;  // gap between two tokens of a stream that steps are planned for; 0 = none
  bool prefix_cache = true;  // pages of earlier prompts and answers are found by their tokens
  bool slot_runs = false;  // one sequence a slot, reserved at max_seq_tokens when created (modes.h)
  bool return_memory = false;       // slot_runs: the memory of a run goes back when a request ends
  bool merge_copies = true;         // copies of neighbouring pages leave as one
  bool validate_each_step = false;  // laws I2, I6 and frame validation after each step (tests)
  // What the scheduler's cost model is made from; empty = what the executor measured.
  std::vector<StepSample> step_samples;
  // The view's name where it shows the decoder less than the model asks for, else empty: for
  // whoever tells answers and figures apart; the engine does nothing with it.
  std::string lossy_view;
  StolenUs stolen_us;  // of the threads that steps run on; empty = unknown
};

struct EngineMetrics {
  uint64_t steps = 0, commits = 0;
  uint64_t prompt_tokens = 0, output_tokens = 0;
  uint64_t requests_submitted = 0, requests_finished = 0, requests_cancelled = 0,
           requests_failed = 0;
  uint32_t running = 0, queued = 0;
  PagerBooks books;  // group 0
  PagerCounters pager;
  SchedulerCounters sched;
  ExecutorCounters exec;
  FrameBuilder::Reads reads;
  CopyCounters copies;
  // Totals; those of the phases add up to step_us but for what the publish does beside output.
  int64_t plan_us = 0, edit_commit_us = 0, move_us = 0, run_us = 0, sample_us = 0, output_us = 0,
          step_us = 0;
  int64_t maintain_us = 0;  // between steps, as of the last step
  int64_t longest_gap_us = 0;
  GapCounters gaps;  // over config().max_itl_us, by cause (law I7)

  // Plan, edit, commit and move as a part of all steps' time (law I3); 0 before the first step.
  double control_share() const {
    const auto control_us = static_cast<double>(plan_us + edit_commit_us + move_us);
    return step_us == 0 ? 0 : control_us / static_cast<double>(step_us);
  }
};

// In the order of a step. kPublished: tokens and ends are told.
enum class StepPhase : uint8_t { kPlanned, kCommitted, kMoved, kRun, kSampled, kPublished };
inline constexpr uint32_t kNumStepPhases = 6;

// Durations by the engine's clock, each a histogram. Kept apart from EngineMetrics: those are
// copied after each step, these are read where they are.
struct EngineLatencies {
  Histogram queued;       // submit to first admission
  Histogram prefill;      // first admission to first token
  Histogram gap;          // between two tokens of a stream (ITL)
  Histogram longest_gap;  // of each request that had one, when it ends
  Histogram step;
  Histogram phases[kNumStepPhases];  // by the phase that ended; kCommitted: edit and commit
};

// Sees each step after it ran, before its pages can be recycled; tests, benches, dumps.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // After plan and edit, before the commit. False rolls the step back as if it had not been planned
  // (tests of law I2); the next step plans it again.
  virtual bool OnEdited(const StepPlan& /*plan*/) { return true; }
  // `result` is empty when the step had no rows.
  virtual void OnStep(const StepPlan& plan, const FrameView& frame, const StepResult& result) = 0;
  // A phase ends; what this call takes still belongs to it.
  virtual void OnPhase(StepPhase /*phase*/) {}
};

class RecordWriter;  // record_writer.h

class Engine {
 public:
  // The pager, the executor (warmed up) and the clock are given; the engine owns the first two.
  static Result<std::unique_ptr<Engine>> Create(const EngineConfig& config,
                                                std::unique_ptr<Pager> pager,
                                                std::unique_ptr<Executor> executor, Clock& clock);
  ~Engine();

  // Thread-safe. Whether `request` can be taken at all: prompt length, ids in the vocabulary,
  // sampling ranges, room in an empty pool. Errors name field, value and limit.
  Status Check(const GenerateRequest& request) const;
  // Thread-safe. Requires: Check(request).ok(). Error kNoRoom: the queue is full.
  Result<RequestId> Submit(GenerateRequest request);
  // Thread-safe; unknown or finished ids are ignored. The sink still gets OnFinish(kCancelled).
  void Cancel(RequestId id);

  // One step on the calling (engine) thread. Returns false when there was nothing to do.
  bool Step();
  // Steps until Stop(), sleeping while there is nothing to do.
  void Run();
  // One chore of the pager, as Run() does it after each step; for who calls Step() himself. Returns
  // whether something was done.
  bool Maintain();
  // Thread-safe. As if nothing had come for a second: one piece of tidying is due. Run() does it by
  // itself.
  void NoteIdle();
  // Thread-safe. Run() returns after the current step; requests still open end with kCancelled.
  void Stop();

  EngineMetrics Metrics() const;  // thread-safe snapshot, as of the last step
  // Thread-safe. Of the KV pool what is in memory now, as the operating system counts: for who asks
  // now and then, it walks the pool (resident_memory.h).
  uint64_t ResidentKvBytes() const;
  const EngineLatencies& latencies() const;  // thread-safe to read
  const EngineConfig& config() const;
  const ExecutorInfo& executor_info() const;
  const FrameCapacity& frame_capacity() const;  // of the frames that observers see
  uint64_t kv_tokens() const;                   // token places of the pool
  uint32_t kv_page_tokens() const;              // of one page, group 0
  Pager& pager();                               // engine thread, or while nothing runs
  // On the engine thread between steps; nullptr = none. Not owned.
  void SetObserver(StepObserver* observer);
  // Before the first Submit; nullptr = none. Not owned; it outlives the engine's last step.
  void SetRecorder(RecordWriter* recorder);
  // Called on the engine thread when sinks have been told all there is: once after each step that
  // told them anything, and once between two steps for what ended there. It must neither block nor
  // throw. To be set while no request is open; empty = none.
  void SetTold(std::function<void()> told);

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kvrm
