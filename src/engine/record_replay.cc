#include "engine/record_replay.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/record_fields.h"
#include "frame/field_codec.h"

namespace kvrm {
namespace {

std::string Hex(uint64_t value) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (size_t i = text.size(); i-- > 0; value /= 16) text[i] = kDigits[value % 16];
  return text;
}

class Replay final : public StepObserver, public EventSink {
 public:
  Replay(Engine& engine, ReplayClock& clock) : engine_(engine), clock_(clock) {
    engine_.SetObserver(this);
  }
  ~Replay() override { engine_.SetObserver(nullptr); }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  // Returns whether the replay goes on.
  bool Follow(const RecordEntry& entry);
  RecordReplayReport TakeReport() { return std::move(report_); }

  // ---- the engine's side
  // What the record says of the step is known only afterwards, so a rollback is prepared by the
  // entry before.
  bool OnEdited(const StepPlan& plan) override {
    plan_ = {plan.num_rows, plan.num_prompt_rows, static_cast<uint32_t>(plan.admitted.size()),
             static_cast<uint32_t>(plan.preempted.size()), plan.deferred};
    return !rolls_back_;
  }
  void OnStep(const StepPlan&, const FrameView& frame, const StepResult&) override {
    epoch_ = frame.head->epoch;
    chain_hash_ = frame.head->chain_hash;
    committed_ = true;
  }
  void OnToken(RequestId id, const TokenEvent& event) override {
    tokens_.push_back({id.value, event.token, 0});
  }
  void OnFinish(RequestId id, const FinishEvent& event) override {
    ends_.push_back({id.value, static_cast<uint32_t>(event.reason), 0});
  }

 private:
  struct PlanCounts {
    uint32_t rows = 0, prompt_rows = 0, admitted = 0, preempted = 0, deferred = 0;
  };
  bool Submit(const RecordEntry& entry);
  bool Step(const RecordEntry& entry);
  bool Pause(const RecordEntry& entry);
  bool SameOutcome(const RecordEntry& entry);
  bool Diverge(std::string what);

  Engine& engine_;
  ReplayClock& clock_;
  RecordReplayReport report_;
  bool rolls_back_ = false;

  // ---- of the step in hand
  PlanCounts plan_;
  bool committed_ = false;
  uint64_t epoch_ = 0, chain_hash_ = 0;
  std::vector<RecordToken> tokens_;
  std::vector<RecordEnd> ends_;
};

bool Replay::Diverge(std::string what) {
  report_.divergence = {report_.steps, std::move(what)};
  return false;
}

bool Replay::Follow(const RecordEntry& entry) {
  switch (entry.kind) {
    case RecordKind::kSubmit:
      return Submit(entry);
    case RecordKind::kCancel:
      engine_.Cancel(entry.id);
      return true;
    case RecordKind::kIdle:
      engine_.NoteIdle();
      return true;
    case RecordKind::kStop:
      engine_.Stop();
      return true;
    case RecordKind::kMaintain:
      return engine_.Maintain() ||
             Diverge("the pager has no chore, the record says that it did one");
    case RecordKind::kPause:
      return Pause(entry);
    case RecordKind::kStep:
      ++report_.steps;
      clock_.Show(entry.now_us);
      return true;
    case RecordKind::kRollback:
    case RecordKind::kCommit:
      return Step(entry);
    case RecordKind::kClosed:
      return true;
  }
  return true;
}

bool Replay::Submit(const RecordEntry& entry) {
  GenerateRequest request = entry.request;
  request.sink = this;
  ++report_.requests;
  clock_.Show(entry.submit.submit_us);
  const std::string name = "request " + std::to_string(entry.id.value);
  if (const Status taken = engine_.Check(request); !taken.ok()) {
    return Diverge(name + " is refused: " + taken.error().message);
  }
  const auto id = engine_.Submit(std::move(request));
  if (!id.ok()) return Diverge(name + " is refused: " + id.error().message);
  return *id == entry.id || Diverge(name + " is given the id " + std::to_string(id->value));
}

bool Replay::Step(const RecordEntry& entry) {
  rolls_back_ = entry.kind == RecordKind::kRollback;
  committed_ = false;
  if (!engine_.Step()) return Diverge("there is nothing to do, the record has a step");
  if (rolls_back_) return true;
  KVRM_CHECK(committed_, "a step that is not rolled back commits");
  const auto same = [&](const char* name, uint64_t here, uint64_t recorded) {
    return here == recorded || Diverge(std::string(name) + " " + std::to_string(here) +
                                       ", recorded " + std::to_string(recorded));
  };
  const RecordCommit& commit = entry.commit;
  if (!(same("epoch", epoch_, commit.epoch) && same("rows", plan_.rows, commit.num_rows) &&
        same("prompt rows", plan_.prompt_rows, commit.num_prompt_rows) &&
        same("admitted", plan_.admitted, commit.num_admitted) &&
        same("preempted", plan_.preempted, commit.num_preempted) &&
        same("deferred", plan_.deferred, commit.num_deferred))) {
    return false;
  }
  if (chain_hash_ != commit.chain_hash) {
    return Diverge("the frame's hash is " + Hex(chain_hash_) + ", recorded " +
                   Hex(commit.chain_hash));
  }
  ++report_.commits;
  report_.chain_hash = chain_hash_;
  return SameOutcome(entry);
}

bool Replay::Pause(const RecordEntry& entry) {
  if (engine_.Step()) return Diverge("there is a step, the record has none");
  return SameOutcome(entry);
}

bool Replay::SameOutcome(const RecordEntry& entry) {
  const auto tokens = std::exchange(tokens_, {});
  const auto ends = std::exchange(ends_, {});
  report_.tokens += tokens.size();
  const auto number = [](uint64_t value) { return std::to_string(value); };
  if (tokens.size() != entry.tokens.size() || ends.size() != entry.ends.size()) {
    return Diverge(number(tokens.size()) + " tokens and " + number(ends.size()) +
                   " ends, recorded " + number(entry.tokens.size()) + " and " +
                   number(entry.ends.size()));
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    const RecordToken &here = tokens[i], &there = entry.tokens[i];
    if (here.id == there.id && here.token == there.token) continue;
    return Diverge("request " + number(here.id) + " gets token " + std::to_string(here.token) +
                   ", recorded: request " + number(there.id) + ", token " +
                   std::to_string(there.token));
  }
  for (size_t i = 0; i < ends.size(); ++i) {
    const RecordEnd &here = ends[i], &there = entry.ends[i];
    if (here.id == there.id && here.reason == there.reason) continue;
    return Diverge("request " + number(here.id) + " ends for reason " + number(here.reason) +
                   ", recorded: request " + number(there.id) + ", reason " + number(there.reason));
  }
  return true;
}

// An engine that was made otherwise parts from the record sooner or later: better told at once.
Status CheckSettings(const RecordSettings& recorded, const Engine& engine) {
  const RecordSettings here = SettingsOf(engine);
  RecordSettings expected = here;
  expected.max_itl_us = recorded.max_itl_us;
  expected.max_slots = recorded.max_slots;
  expected.max_seq_tokens = recorded.max_seq_tokens;
  expected.max_queued = recorded.max_queued;
  expected.chunk_rows = recorded.chunk_rows;
  expected.mixed_prompt_rows = recorded.mixed_prompt_rows;
  expected.prefill_rows = recorded.prefill_rows;
  expected.vocab = recorded.vocab;
  expected.prefix_cache = recorded.prefix_cache;
  const auto difference = FirstDifference(here, expected);
  if (!difference) return Ok();
  return InvalidInput("the engine's " + difference->name + " is " + difference->first +
                      ", recorded " + difference->second);
}

}  // namespace

Result<RecordReplayReport> ReplayRecord(RecordReader& reader, Engine& engine, ReplayClock& clock) {
  KVRM_RETURN_IF_ERROR(CheckSettings(reader.header().settings, engine));
  Replay replay(engine, clock);
  for (;;) {
    KVRM_ASSIGN_OR_RETURN(const RecordEntry* entry, reader.Next());
    if (entry == nullptr || !replay.Follow(*entry)) break;
  }
  RecordReplayReport report = replay.TakeReport();
  report.closed = reader.closed();
  return report;
}

}  // namespace kvrm
