// What the engine is made of; shared by engine.cc (the outside) and step.cc (the step), included by
// nothing else. Engine-thread-only but for `events`, `published` and what is constant.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/engine.h"
#include "engine/event_queue.h"
#include "engine/published.h"
#include "engine/record_writer.h"
#include "transport/copy_engine.h"
#include "transport/train_merger.h"

namespace kvrm {

// A request from the moment its event is drained until OnFinish.
struct LiveRequest {
  RequestId id;
  GenerateRequest request;      // its prompt has moved into `tokens`
  std::vector<TokenId> tokens;  // prompt, then output
  uint32_t prompt_tokens = 0;
  uint32_t max_tokens = 0;       // prompt + output end here
  std::vector<RequestId> forks;  // wait until its prompt is computed
  bool prompt_done = false;      // its prompt is computed
  bool admitted = false;         // has run at least once
  bool running = false;          // holds a slot
  int64_t submit_us = 0, admitted_us = 0, first_token_us = 0, last_token_us = 0;
  int64_t longest_gap_us = 0;
  uint32_t preemptions = 0;
  uint32_t cached_tokens = 0;          // prompt rows that were not computed
  bool preempted_since_token = false;  // its next token ends a gap with that cause

  uint32_t num_output() const { return static_cast<uint32_t>(tokens.size()) - prompt_tokens; }
};

// What a step found out about one sequence, between sampling and publishing.
struct Outcome {
  LiveRequest* live = nullptr;
  Sample sample;
  uint32_t fault_position = kNone32;  // position of a row that was not finite
};

// A prompt token whose score a step found out.
struct PromptScore {
  LiveRequest* live = nullptr;
  uint32_t index = 0;  // in the prompt
  Sample sample;
};

struct Engine::State {
  State(const EngineConfig& config, std::unique_ptr<Pager> pager,
        std::unique_ptr<Executor> executor, std::unique_ptr<FrameBuilder> frames, Clock& clock);

  // ---- constant after construction
  const EngineConfig config;
  const ExecutorInfo info;
  const uint64_t kv_tokens;
  Clock& clock;
  StepObserver* observer = nullptr;
  RecordWriter* recorder = nullptr;
  std::function<void()> told;  // read only once a request has come, so that it is set by then

  // ---- the two ways in and out for other threads
  EventQueue events;
  Published<EngineMetrics> published;

  // ---- the parts
  std::unique_ptr<Pager> pager;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<FrameBuilder> frames;
  TrainMerger merger;
  CpuCopyEngine copy_engine;
  Scheduler scheduler;
  const PrefixAdopter adopt_prefix;
  Sampler sampler;

  // ---- requests
  std::map<RequestId, std::unique_ptr<LiveRequest>> live;
  std::vector<LiveRequest*> by_slot;  // [max_slots] of the sequence that holds it; else stale
  std::vector<RequestId> ended;       // finished; their sequences close in the next step's edit
  uint32_t num_running = 0;           // live and running
  std::vector<Event> drained;         // scratch
  bool telling = false;               // a sink was called since `told` was
  bool stopping = false;
  // What idleness has come to. From kTidying on nothing is made ready before a request comes.
  enum class Idleness : uint8_t { kNoRequestYet, kNone, kTidying, kTidy };
  Idleness idleness = Idleness::kNoRequestYet;

  // ---- the step in hand; vectors are sized at construction
  uint64_t epoch = 0;
  int64_t step_begin_us = 0;       // the one reading of the clock that may decide something
  bool stepped_last = false;       // no pause since the last step
  const StepPlan* plan = nullptr;  // the scheduler's, until its next Plan
  std::vector<Row> rows;
  std::vector<SlotHead> slots;
  FrameView frame;
  StepResult result;
  std::vector<Outcome> outcomes;
  std::vector<PromptScore> scores;  // in the order of rows
  EngineMetrics metrics;
  EngineLatencies latencies;  // added to here, read by any thread
  GapLedger ledger;
  std::optional<FrameHead> previous_head;  // validate_each_step

  bool OpenSlotRuns();  // before the first step

  // ---- the step (step.cc)
  bool Step();
  bool Maintain();
  void WaitForEvents();
  void Tidy();
  bool DrainEvents();
  void RecordEvent(const Event& event);
  void NoteStepBegin();
  void EndPhase(StepPhase phase, GapCause cause, int64_t* total_us);
  void PlanAndEdit();
  bool Commit();
  void MovePages();
  void RunProgram();
  void SampleRows();
  void Publish();

  void AcceptOrFail(Event& event);
  void Accept(Event& event);
  void Cancel(RequestId id);
  void CancelAll();
  void RollBack();
  void BuildRows();
  void NotePlan();
  const float* PanelMaxOf(uint32_t logits_idx) const;
  uint32_t ScorePromptRows(const PlannedRows& planned, uint32_t row_begin);
  Outcome SampleOne(const PlannedRows& planned, uint32_t row_begin);
  void ReportProgress(int64_t now_us);
  EventSink& Tell(EventSink* sink);
  void EndTelling();
  void PublishScore(const PromptScore& score);
  void PublishOutcome(Outcome& outcome, int64_t now_us);
  void EndUnserviceable();
  void Queue(const LiveRequest& request, Scheduler::Place place);
  bool WaitsForItsTwin(const LiveRequest& request);
  void ReleaseForks(LiveRequest& request);
  uint32_t AdoptPrefix(RequestId id, SeqId seq);
  uint32_t AdoptFromTwin(const LiveRequest& request, SeqId seq);
  void IndexPrefixes();
  StopReason ReasonToStop(const LiveRequest& request) const;
  RequestTimings TimingsOf(const LiveRequest& request) const;
  void Finish(LiveRequest& request, StopReason reason, std::string message);
  void PublishMetrics();
  void ValidateCommitted();
  void ValidateStep();
};

}  // namespace kvrm
