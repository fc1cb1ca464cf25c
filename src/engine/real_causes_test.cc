// Law I7 with the parts of a real run: a random model on the CPU executor and its worker pool, the
// system's clock, the kernel's run-queue delay, causes that really happen. What is counted to the
// microsecond, on a clock of the test's own, stands in gap_causes_test.cc; what a client's
// connection holds up, in server/output_gaps_test.cc.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <numeric>
#include <random>
#include <thread>
#include <utility>

#include "base/run_delay.h"
#include "engine/test_rig.h"
#include "exec/cpu_executor.h"
#include "model/random_model.h"

namespace kvrm {
namespace {

using testing::MakeEngine;
using testing::RandomPrompt;

// Sleeps in some replays, as a part of an op that one worker computes and all others wait for.
using PauseUs = std::function<int64_t(const FrameView&)>;

class PausingExecutor final : public Executor {
 public:
  PausingExecutor(std::unique_ptr<Executor> inner, WorkerPool& pool, PauseUs pause_us)
      : inner_(std::move(inner)), pool_(pool), pause_us_(std::move(pause_us)) {}
  const ExecutorInfo& info() const override { return inner_->info(); }
  void WarmUp() override { inner_->WarmUp(); }
  const ExecutorCounters& counters() const override { return inner_->counters(); }
  StepResult Replay(const FrameView& frame) override {
    part_us_ = pause_us_ ? pause_us_(frame) : 0;
    if (part_us_ > 0) pool_.Run(Part, this);
    return inner_->Replay(frame);
  }

 private:
  static void Part(void* arg, uint32_t worker) {
    const auto& self = *static_cast<PausingExecutor*>(arg);
    if (worker + 1 != self.pool_.num_threads()) return;
    std::this_thread::sleep_for(std::chrono::microseconds(self.part_us_));
  }

  const std::unique_ptr<Executor> inner_;
  WorkerPool& pool_;
  const PauseUs pause_us_;
  int64_t part_us_ = 0;
};

// The gaps of all streams, by the times of their tokens.
class MadeGapSink final : public EventSink {
 public:
  void OnToken(RequestId id, const TokenEvent& event) override {
    const int64_t before_us = std::exchange(made_us_[id], event.made_us);
    if (event.index > 0) gaps_us.push_back(event.made_us - before_us);
  }
  void OnFinish(RequestId, const FinishEvent&) override {}
  int64_t median_us() {
    const auto middle = gaps_us.begin() + static_cast<std::ptrdiff_t>(gaps_us.size() / 2);
    std::nth_element(gaps_us.begin(), middle, gaps_us.end());
    return *middle;
  }
  std::vector<int64_t> gaps_us;

 private:
  std::map<RequestId, int64_t> made_us_;
};

struct RealOptions {
  int64_t budget_us = 0;
  uint64_t kv_bytes = uint64_t{4} << 20;
  PauseUs pause_us;
};

constexpr uint32_t kSlots = 8;
constexpr uint32_t kContext = 256;

template <class T>
T Must(Result<T> result) {
  KVRM_CHECK(result.ok(), "the parts of a real run can be made");
  return std::move(result).value();
}

class RealRun {
 public:
  explicit RealRun(const RealOptions& options)
      : bytes_(WriteRandomModel({.context = kContext})),
        file_(Must(GgufFile::Parse(bytes_, "random"))),
        model_(Must(Model::Load(*file_, {}))),
        pool_(2) {
    const KvGeometry geometry = Must(KvGeometryOf(model_->config(), KvFormat::kF16));
    auto pager = Must(Pager::Create({.geometry = geometry,
                                     .kv_bytes = options.kv_bytes,
                                     .max_slots = kSlots,
                                     .max_seq_tokens = kContext}));
    CpuExecutorConfig config;
    config.max_slots = kSlots;
    config.max_seq_tokens = kContext;
    config.geometry = geometry;
    config.kv_base[0] = pager->base(0);
    auto executor = std::make_unique<PausingExecutor>(
        Must(CreateCpuExecutor(*model_, config, pool_)), pool_, options.pause_us);
    executor->WarmUp();
    run_delay_ = std::make_unique<RunDelay>(pool_);
    engine_ = Must(Engine::Create({.max_slots = kSlots,
                                   .max_seq_tokens = kContext,
                                   .max_itl_us = options.budget_us,
                                   .prefix_cache = false,
                                   .stolen_us = [this] { return run_delay_->ReadUs(); }},
                                  std::move(pager), std::move(executor), clock_));
  }

  // Both together not longer than the context.
  void Submit(uint32_t prompt_tokens, uint32_t tokens) {
    GenerateRequest request = testing::Greedy(RandomPrompt(prompt_tokens, ++seed_), tokens);
    request.sink = &sink_;
    KVRM_CHECK(engine_->Submit(std::move(request)).ok(), "the queue has room");
  }
  void Drain() {
    while (engine_->Step()) {
    }
  }
  void Steps(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) engine_->Step();
  }

  Engine& engine() { return *engine_; }
  WorkerPool& pool() { return pool_; }
  MadeGapSink& sink() { return sink_; }
  GapCounters counted() const { return engine_->Metrics().gaps; }

 private:
  const std::vector<std::byte> bytes_;
  const std::unique_ptr<const GgufFile> file_;
  const std::unique_ptr<const Model> model_;
  WorkerPool pool_;
  std::unique_ptr<RunDelay> run_delay_;
  SystemClock clock_;
  MadeGapSink sink_;
  std::unique_ptr<Engine> engine_;
  uint64_t seed_ = 0;
};

int64_t ExcessUs(const GapCounters& counted, GapCause cause) {
  return counted.excess_us[static_cast<uint32_t>(cause)];
}
int64_t AllExcessUs(const GapCounters& counted) {
  return std::accumulate(std::begin(counted.excess_us), std::end(counted.excess_us), int64_t{0});
}
bool NearlyAllUnder(const GapCounters& counted, GapCause cause) {
  const int64_t all_us = AllExcessUs(counted);
  return all_us > 0 && 100 * ExcessUs(counted, cause) >= 95 * all_us;
}
std::string TextOf(const GapCounters& counted) {
  std::string text;
  for (uint32_t i = 0; i < kNumGapCauses; ++i) {
    text += std::string(GapCauseName(static_cast<GapCause>(i))) + " " +
            std::to_string(counted.over_budget[i]) + " gaps, " +
            std::to_string(counted.excess_us[i]) + " us; ";
  }
  return text;
}

// What else happens on the machine holds up steps, too, under causes of its own: a run that it
// spoiled is made again.
template <class Run>
void ExpectNearlyAllUnder(GapCause cause, const Run& run) {
  std::string spoiled;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const GapCounters counted = run();
    if (NearlyAllUnder(counted, cause)) return;
    spoiled += TextOf(counted) + "\n";
  }
  ADD_FAILURE() << "not nearly all under " << GapCauseName(cause) << ":\n" << spoiled;
}

// More than what others take now and then on a busy machine.
constexpr int64_t kPauseBudgetUs = 100'000;
constexpr int64_t kPauseUs = 300'000;

TEST(RealCauses, ASlowOpOfADecodeStepIsDecode) {
  ExpectNearlyAllUnder(GapCause::kDecode, [] {
    uint32_t steps = 0;
    RealRun run({.budget_us = kPauseBudgetUs,
                 .pause_us = [&](const FrameView&) { return ++steps % 15 == 0 ? kPauseUs : 0; }});
    for (int i = 0; i < 4; ++i) run.Submit(6, 60);
    run.Drain();
    return run.counted();
  });
}

TEST(RealCauses, APrefillThatPausesIsPrefill) {
  ExpectNearlyAllUnder(GapCause::kPrefill, [] {
    RealRun run({.budget_us = kPauseBudgetUs, .pause_us = [](const FrameView& frame) {
                   const bool prompts = frame.head->num_rows > frame.head->num_slots;
                   return prompts && frame.head->num_slots > 1 ? kPauseUs : 0;
                 }});
    run.Submit(6, 200);
    for (int i = 0; i < 4; ++i) {
      run.Steps(20);
      run.Submit(150, 2);
    }
    run.Drain();
    return run.counted();
  });
}

// A pool of half the room that the streams grow to, and steps of three milliseconds or more: who
// lost its pages waits until another stream has ended.
TEST(RealCauses, AForcedPreemptionIsPreemption) {
  ExpectNearlyAllUnder(GapCause::kPreemption, [] {
    RealRun run({.budget_us = kPauseBudgetUs,
                 .kv_bytes = uint64_t{256} << 10,
                 .pause_us = [](const FrameView&) { return int64_t{3000}; }});
    for (uint32_t i = 0; i < kSlots; ++i) run.Submit(20, 200);
    run.Drain();
    EXPECT_GT(run.engine().Metrics().sched.preempted, 0u);
    return run.counted();
  });
}

// Computes nothing: rows of random logits over a large vocabulary, which are all the sampler's.
class WideLogits final : public Executor {
 public:
  static constexpr uint32_t kVocab = 128 * 1024;
  explicit WideLogits(uint32_t slots) : logits_(size_t{slots} * kVocab) {
    info_ = {.name = "wide", .vocab = kVocab, .max_slots = slots, .max_logits = slots};
    info_.max_rows[0] = slots;
    info_.max_rows[1] = info_.max_rows[2] = slots + 64;
    row_status_.resize(info_.max_rows[2], kRowOk);
    std::mt19937 random(3);
    std::normal_distribution<float> logit(0, 3);
    for (float& value : logits_) value = logit(random);
  }
  const ExecutorInfo& info() const override { return info_; }
  void WarmUp() override {}
  const ExecutorCounters& counters() const override { return counters_; }
  StepResult Replay(const FrameView&) override {
    return {.logits = logits_.data(), .logits_stride = kVocab, .row_status = row_status_.data()};
  }

 private:
  ExecutorInfo info_;
  ExecutorCounters counters_;
  std::vector<float> logits_;
  std::vector<uint8_t> row_status_;
};

// Every stage that has to look at a whole row. No run-queue delay here: a sampler that computes is
// robbed as often as anything else.
TEST(RealCauses, ASamplerThatIsSlowIsSampling) {
  const SamplingParams sampling = {.temperature = 2.0f,
                                   .top_k = 0,
                                   .top_p = 1.0f,
                                   .min_p = 0,
                                   .typical_p = 0.9f,
                                   .repetition_penalty = 1.1f,
                                   .num_logprobs = kMaxTopLogprobs};
  static constexpr uint32_t kStreams = 4;
  ExpectNearlyAllUnder(GapCause::kSampling, [&] {
    SystemClock clock;
    MadeGapSink sink;
    const auto engine = MakeEngine(
        {.slots = kStreams, .validate = false, .max_itl_us = 2000}, clock,
        [](std::unique_ptr<Executor>) { return std::make_unique<WideLogits>(kStreams); });
    for (uint32_t i = 0; i < kStreams; ++i) {
      GenerateRequest request = testing::Greedy(RandomPrompt(6, i), 15);
      request.sampling = sampling;
      request.sink = &sink;
      KVRM_CHECK(engine->Submit(std::move(request)).ok(), "the queue has room");
    }
    while (engine->Step()) {
    }
    return engine->Metrics().gaps;
  });
}

// ---- a core that is taken away

std::vector<int> AllowedCpuNumbers() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> numbers;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return numbers;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) numbers.push_back(cpu);
  }
  return numbers;
}

void PinCaller(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  sched_setaffinity(0, sizeof(one), &one);
}

// Threads that hold one CPU as long as the object lives.
class Spinners {
 public:
  Spinners(int cpu, int count) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this, cpu] {
        PinCaller(cpu);
        while (!stop_.load(std::memory_order_relaxed)) {
        }
      });
    }
  }
  ~Spinners() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

// Pins the pool's last worker to the CPU that will be taken away.
void PinWorker(WorkerPool& pool, int cpu) {
  struct Place {
    uint32_t worker;
    int cpu;
  } place{pool.num_threads() - 1, cpu};
  pool.Run(
      [](void* arg, uint32_t worker) {
        const Place& at = *static_cast<Place*>(arg);
        if (worker == at.worker) PinCaller(at.cpu);
      },
      &place);
}

bool KernelTellsRunDelay() { return access("/proc/self/schedstat", R_OK) == 0; }

// One stream until spinners have cost it a second in all; what it was like before them is how much
// a gap may take.
GapCounters DecodeBesideSpinners() {
  const int cpu = AllowedCpuNumbers().back();
  constexpr int64_t kLeastBudgetUs = 4000;
  constexpr int kMostStreams = 100;
  int64_t undisturbed_us = 0;
  {
    RealRun run({});
    PinWorker(run.pool(), cpu);
    run.Submit(6, 100);
    run.Drain();
    undisturbed_us = run.sink().median_us();
  }
  RealRun run({.budget_us = std::max(kLeastBudgetUs, 3 * undisturbed_us)});
  PinWorker(run.pool(), cpu);
  const Spinners spinners(cpu, 6);
  for (int i = 0; i < kMostStreams && AllExcessUs(run.counted()) < 1'000'000; ++i) {
    run.Submit(6, 240);
    run.Drain();
  }
  const GapCounters counted = run.counted();
  const int64_t budget_us = run.engine().config().max_itl_us;
  const auto over = std::count_if(run.sink().gaps_us.begin(), run.sink().gaps_us.end(),
                                  [&](int64_t gap_us) { return gap_us > budget_us; });
  EXPECT_EQ(
      std::accumulate(std::begin(counted.over_budget), std::end(counted.over_budget), uint64_t{0}),
      static_cast<uint64_t>(over))
      << "each under exactly one";
  return counted;
}

TEST(RealCauses, SpinnersOnAWorkersCoreAreStolenWhereTheKernelTellsOfThem) {
  if (KernelTellsRunDelay()) {
    ExpectNearlyAllUnder(GapCause::kStolen, DecodeBesideSpinners);
  } else {
    const GapCounters counted = DecodeBesideSpinners();
    EXPECT_GT(AllExcessUs(counted), 0);
    EXPECT_EQ(ExcessUs(counted, GapCause::kStolen), 0) << "nothing is called stolen unproved";
  }
}

}  // namespace
}  // namespace kvrm
