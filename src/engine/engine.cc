#include "engine/engine.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/resident_memory.h"
#include "engine/engine_state.h"

namespace kvrm {
namespace {

SchedulerConfig SchedulerConfigOf(const EngineConfig& config, const ExecutorInfo& info) {
  const uint32_t widest = info.max_rows[static_cast<uint32_t>(ProgramKind::kPrefill)];
  const uint32_t prompt_rows = std::max(1u, widest - std::min(widest, info.max_slots));
  return {.max_slots = config.max_slots,
          .max_rows = widest,
          .prompt_rows = prompt_rows,
          .mixed_prompt_rows = std::min(config.mixed_prompt_rows, prompt_rows),
          .chunk_rows = config.chunk_rows,
          .max_logits = info.max_logits,
          .slot_runs = config.slot_runs,
          .max_step_us = config.max_itl_us,
          .step_samples = config.step_samples};
}

Error Refuse(const std::string& field, uint64_t value, const std::string& range) {
  return InvalidInput(field + " is " + std::to_string(value) + ", but must be " + range);
}

Status CheckConfig(const EngineConfig& config, const ExecutorInfo& info) {
  const uint32_t widest = info.max_rows[static_cast<uint32_t>(ProgramKind::kPrefill)];
  const uint32_t most_slots = std::min({info.max_slots, info.max_logits, widest});
  if (config.max_slots == 0 || config.max_slots > most_slots) {
    return Refuse("max_slots", config.max_slots,
                  "1 to " + std::to_string(most_slots) + ", the executor's slots");
  }
  if (config.max_seq_tokens < 2) {
    return Refuse("max_seq_tokens", config.max_seq_tokens, "at least 2 (a prompt and an answer)");
  }
  if (config.mixed_prompt_rows == 0) {
    return Refuse("mixed_prompt_rows", 0, "at least 1, or prompts would never advance");
  }
  if (config.max_itl_us < 0 && config.max_itl_us != kAutoMaxItl) {
    return InvalidInput("max_itl_us is " + std::to_string(config.max_itl_us) +
                        ", but must be at least 0");
  }
  if (config.slot_runs && config.prefix_cache) {
    return InvalidInput(
        "prefix_cache is on, but with slot_runs each sequence keeps its own pages: "
        "nothing is shared");
  }
  if (config.max_queued == 0) return Refuse("max_queued", 0, "at least 1");
  if (info.vocab == 0) return Refuse("the executor's vocabulary", 0, "at least 1");
  return Ok();
}

Status CheckIds(const char* field, const std::vector<TokenId>& ids, uint32_t vocab) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && static_cast<uint32_t>(ids[i]) < vocab) continue;
    return InvalidInput(std::string(field) + "[" + std::to_string(i) + "] is " +
                        std::to_string(ids[i]) + ", but token ids go from 0 to " +
                        std::to_string(vocab - 1));
  }
  return Ok();
}

uint32_t PagesPerSlot(const KvGeometry& geometry, uint32_t max_seq_tokens) {
  uint32_t pages = 0;
  for (const auto& group : geometry.groups) {
    pages = std::max(pages, (max_seq_tokens + group.page_tokens - 1) / group.page_tokens);
  }
  return pages;
}

int64_t AutoMaxItlUs(const EngineConfig& config) {
  constexpr double kLeastUs = 50'000, kRoom = 1.5;
  const CostModel cost(config.step_samples);
  if (!cost.known()) return 0;
  const StepShape decoding{.decode_rows = config.max_slots,
                           .decode_tokens = uint64_t{config.max_slots} * config.max_seq_tokens / 2};
  return static_cast<int64_t>(std::max(kLeastUs, kRoom * cost.PredictUs(decoding)));
}

// Copies of pages that happen to be neighbours leave as one train, or each part of a page alone.
uint64_t TauBytes(const EngineConfig& config, const KvGeometry& geometry) {
  if (config.merge_copies) return kDefaultTauBytes;
  uint64_t most = 4;
  for (const KvGroupGeometry& group : geometry.groups) {
    most = std::max(most, group.part_page_bytes);
  }
  return most / 4;  // a train is never longer than four times this
}

// Prints all violations, then stops the process.
void RequireNone(const std::vector<std::string>& violations, const char* law) {
  for (const std::string& violation : violations) {
    std::fprintf(stderr, "%s\n", violation.c_str());
  }
  KVRM_CHECK(violations.empty(), law);
}

}  // namespace

Engine::State::State(const EngineConfig& engine_config, std::unique_ptr<Pager> given_pager,
                     std::unique_ptr<Executor> given_executor,
                     std::unique_ptr<FrameBuilder> frame_builder, Clock& given_clock)
    : config(engine_config),
      info(given_executor->info()),
      kv_tokens(given_pager->max_tokens()),
      clock(given_clock),
      events(config.max_queued),
      pager(std::move(given_pager)),
      executor(std::move(given_executor)),
      frames(std::move(frame_builder)),
      merger(TauBytes(config, pager->geometry())),
      scheduler(SchedulerConfigOf(config, info)),
      adopt_prefix([this](RequestId id, SeqId seq) { return AdoptPrefix(id, seq); }),
      sampler(info.vocab),
      ledger(config.max_itl_us, config.stolen_us) {
  by_slot.resize(config.max_slots);
  ended.reserve(size_t{2} * config.max_slots);
  rows.reserve(info.max_rows[static_cast<uint32_t>(ProgramKind::kPrefill)]);
  slots.reserve(config.max_slots);
  outcomes.reserve(config.max_slots);
  scores.reserve(info.max_logits);
  for (uint32_t g = 0; g < pager->geometry().groups.size(); ++g) {
    copy_engine.Bind({.kind = CopySpaceKind::kPool, .kv_group = static_cast<uint8_t>(g)},
                     pager->base(g), pager->range_bytes(g));
  }
  PublishMetrics();
}

// A step of its own: its one commit reserves all that any request will ever have.
bool Engine::State::OpenSlotRuns() {
  pager->BeginStep();
  if (!scheduler.OpenSlotRuns(*pager, config.max_seq_tokens)) return false;
  ++epoch;
  frame = frames->Publish(epoch, {}, {}, pager->Commit(epoch));
  ++metrics.steps;
  if (config.validate_each_step) ValidateCommitted();
  pager->StepDone(epoch);
  PublishMetrics();
  return true;
}

void Engine::State::PublishMetrics() {
  metrics.commits = pager->counters().commits;
  metrics.running = num_running;
  metrics.queued = static_cast<uint32_t>(live.size()) - num_running;
  metrics.books = pager->books(0);
  metrics.pager = pager->counters();
  metrics.sched = scheduler.counters();
  metrics.exec = executor->counters();
  metrics.reads = frames->LastReads();
  metrics.copies = merger.counters();
  metrics.gaps = ledger.counters();
  published.Store(metrics);
}

// Before the run: the frame is sound, and each step has committed and published once (law I2).
void Engine::State::ValidateCommitted() {
  RequireNone(ValidateFrame(pager->geometry(), frame, previous_head ? &*previous_head : nullptr),
              "FRAME-1..7 hold in each published frame");
  previous_head = *frame.head;
  KVRM_CHECK(pager->counters().commits == metrics.steps, "I2: one commit per step");
  KVRM_CHECK(frames->publishes() == metrics.steps, "I2: one publish per step");
}

// After the run: the books balance (law I6).
void Engine::State::ValidateStep() {
  RequireNone(Validate(pager->Snapshot()), "PAGER-1..7 hold after each step");
  for (uint32_t g = 0; g < pager->geometry().groups.size(); ++g) {
    const PagerBooks books = pager->books(g);
    KVRM_CHECK(
        books.free + books.cached + books.in_use + books.soft + books.limbo + books.in_flight ==
            books.total,
        "I6: the books balance");
  }
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::Create(const EngineConfig& config,
                                               std::unique_ptr<Pager> pager,
                                               std::unique_ptr<Executor> executor, Clock& clock) {
  KVRM_CHECK(pager != nullptr && executor != nullptr, "an engine is given pager and executor");
  const ExecutorInfo& info = executor->info();
  KVRM_RETURN_IF_ERROR(CheckConfig(config, info));
  const FrameCapacity capacity{
      .max_slots = info.max_slots,
      .max_rows = info.max_rows[static_cast<uint32_t>(ProgramKind::kPrefill)],
      .max_pages = PagesPerSlot(pager->geometry(), config.max_seq_tokens)};
  KVRM_ASSIGN_OR_RETURN(auto frames, FrameBuilder::Create(pager->geometry(), capacity));
  EngineConfig resolved = config;
  if (config.step_samples.empty()) resolved.step_samples = info.step_samples;
  if (config.max_itl_us == kAutoMaxItl) resolved.max_itl_us = AutoMaxItlUs(resolved);
  auto state = std::make_unique<State>(resolved, std::move(pager), std::move(executor),
                                       std::move(frames), clock);
  if (config.slot_runs && !state->OpenSlotRuns()) {
    return NoRoom("max_slots x max_seq_tokens: " + std::to_string(config.max_slots) + " x " +
                  std::to_string(config.max_seq_tokens) +
                  " token places are to be reserved, but the whole KV pool holds " +
                  std::to_string(state->kv_tokens));
  }
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

Status Engine::Check(const GenerateRequest& request) const {
  const State& s = *state_;
  const uint64_t prompt = request.prompt.size();
  if (prompt == 0) return InvalidInput("prompt has 0 tokens, but needs at least 1");
  if (prompt >= s.config.max_seq_tokens) {
    return InvalidInput("prompt has " + std::to_string(prompt) + " tokens, but a sequence holds " +
                        std::to_string(s.config.max_seq_tokens) +
                        " (prompt and answer together), so a prompt at most " +
                        std::to_string(s.config.max_seq_tokens - 1));
  }
  if (prompt > s.kv_tokens) {
    return InvalidInput("prompt has " + std::to_string(prompt) +
                        " tokens, but the whole KV pool holds " + std::to_string(s.kv_tokens));
  }
  KVRM_RETURN_IF_ERROR(CheckIds("prompt", request.prompt, s.info.vocab));
  KVRM_RETURN_IF_ERROR(CheckIds("end_tokens", request.end_tokens, s.info.vocab));
  if (request.num_prompt_logprobs > kMaxTopLogprobs) {
    return Refuse("num_prompt_logprobs", request.num_prompt_logprobs,
                  "at most " + std::to_string(kMaxTopLogprobs));
  }
  for (const LogitBias& entry : request.sampling.logit_bias) {
    if (entry.id >= 0 && static_cast<uint32_t>(entry.id) < s.info.vocab) continue;
    return InvalidInput("logit_bias names token " + std::to_string(entry.id) +
                        ", but token ids go from 0 to " + std::to_string(s.info.vocab - 1));
  }
  return CheckSampling(request.sampling);
}

Result<RequestId> Engine::Submit(GenerateRequest request) {
  KVRM_CHECK(request.sink != nullptr, "a request has a sink");
  KVRM_DCHECK(1, Check(request).ok(), "Submit requires Check(request).ok()");
  const int64_t now_us = state_->clock.NowUs();
  return state_->events.PushSubmit(std::move(request), now_us);
}

void Engine::Cancel(RequestId id) { state_->events.PushCancel(id); }

bool Engine::Step() { return state_->Step(); }
bool Engine::Maintain() { return state_->Maintain(); }
void Engine::NoteIdle() { state_->events.PushIdle(); }

void Engine::Run() {
  constexpr uint32_t kMostChores = 4;
  State& s = *state_;
  for (;;) {
    const bool stepped = s.Step();
    if (!stepped && s.stopping) return;
    // Else what was given back would be made ready again, for ever.
    if (!stepped && s.idleness >= State::Idleness::kTidying) {
      s.WaitForEvents();
      continue;
    }
    // Under load, too: growth shall find its memory ready. Chores are part of a gap: while streams
    // decode one of them a step, unless the next step may lack memory; then as many as a step's
    // growth may need, and a look at the queue.
    const uint32_t most = s.num_running == 0 || s.pager->RunsShort() ? kMostChores : 1;
    uint32_t chores = 0;
    while (chores < most && s.Maintain()) ++chores;
    if (stepped || chores > 0) continue;
    s.WaitForEvents();
  }
}

void Engine::Stop() { state_->events.PushStop(); }

EngineMetrics Engine::Metrics() const { return state_->published.Load(); }

// The ranges stay where they are for the engine's life.
uint64_t Engine::ResidentKvBytes() const {
  const Pager& pager = *state_->pager;
  uint64_t bytes = 0;
  for (uint32_t g = 0; g < pager.geometry().groups.size(); ++g) {
    bytes += ResidentBytes(pager.base(g), pager.range_bytes(g));
  }
  return bytes;
}

const EngineLatencies& Engine::latencies() const { return state_->latencies; }
const EngineConfig& Engine::config() const { return state_->config; }
const ExecutorInfo& Engine::executor_info() const { return state_->info; }
uint64_t Engine::kv_tokens() const { return state_->kv_tokens; }
uint32_t Engine::kv_page_tokens() const { return state_->pager->geometry().groups[0].page_tokens; }
Pager& Engine::pager() { return *state_->pager; }

const FrameCapacity& Engine::frame_capacity() const { return state_->frames->capacity(); }
void Engine::SetObserver(StepObserver* observer) { state_->observer = observer; }

void Engine::SetTold(std::function<void()> told) { state_->told = std::move(told); }

void Engine::SetRecorder(RecordWriter* recorder) {
  KVRM_CHECK(state_->metrics.requests_submitted == 0, "a record begins where its engine does");
  state_->recorder = recorder;
}

}  // namespace kvrm
