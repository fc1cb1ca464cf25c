// An engine on a clock of its own that is recorded under an irregular load, and its replay. Test
// code only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/paced_executor.h"
#include "engine/record_replay.h"
#include "engine/record_writer.h"
#include "engine/test_rig.h"

namespace kvrm::testing {

inline RecordHeader RigHeader(const Engine& engine, const RigOptions& options) {
  RecordHeader header;
  header.settings = SettingsOf(engine);
  header.settings.kv_bytes = options.pool_pages * kFakePageBytes;
  header.settings.kv_keep_bytes = options.kv_keep_bytes;
  header.settings.scatter_seed = options.scatter_seed;
  header.step_samples = engine.config().step_samples;
  return header;
}

// Where a test writes a record of its own.
inline std::string RecordPath() {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string(info->test_suite_name()) + "_" + info->name();
  std::replace(name.begin(), name.end(), '/', '_');
  return ::testing::TempDir() + name + ".kvrec";
}

inline std::vector<std::byte> FileBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::byte> bytes(text.size());
  std::transform(text.begin(), text.end(), bytes.begin(),
                 [](char c) { return static_cast<std::byte>(c); });
  return bytes;
}

// Little memory, so that sequences lose their pages, and a gap budget that the clock bears on.
inline RigOptions RecordedOptions() {
  return {.slots = 6,
          .pool_pages = 24,
          .max_seq_tokens = 300,
          .kv_keep_bytes = 4 * kFakePageBytes,
          .max_itl_us = 9000};
}

// Replays take as long as a seed says, times `slowness`.
inline std::unique_ptr<Rig> PacedRig(const RigOptions& options, uint64_t seed, int64_t slowness) {
  auto rng = std::make_shared<std::mt19937_64>(seed);
  return std::make_unique<Rig>(
      options, [&](std::unique_ptr<Executor> executor, ManualClock& clock) {
        return std::make_unique<PacedExecutor>(
            std::move(executor), clock, [rng, slowness](const FrameView& frame) {
              const int64_t pace_us = PacedExecutor::PaceUs(frame.head->num_rows);
              const auto noise_us = static_cast<int64_t>((*rng)() % 1500);
              return (slowness - 1) * pace_us + slowness * noise_us;
            });
      });
}

// Now and then a step is rolled back.
class Vetoes final : public StepObserver {
 public:
  bool OnEdited(const StepPlan&) override { return ++plans_ % 17 != 0; }
  void OnStep(const StepPlan&, const FrameView& frame, const StepResult&) override {
    chain_hash = frame.head->chain_hash;
  }
  uint64_t chain_hash = 0;

 private:
  uint32_t plans_ = 0;
};

// Arrivals, cancels, idle seconds, chores and a stop at the end, as `seed` says; as Engine::Run
// does it. Returns the chain hash of the last step.
inline uint64_t RunIrregularLoad(Rig& rig, uint64_t seed, uint32_t requests) {
  std::mt19937_64 rng(seed);
  Vetoes vetoes;
  Engine& engine = rig.engine();
  engine.SetObserver(&vetoes);
  std::vector<RequestId> ids;
  std::vector<TokenId> last_prompt;
  bool stopped = false;
  for (uint32_t turn = 0; turn < 100'000; ++turn) {
    while (ids.size() < requests && rng() % 6 == 0) {
      // One draw a statement: compilers differ in the order of a call's arguments.
      const auto length = static_cast<uint32_t>(1 + rng() % 200);
      const uint64_t prompt = rng() % 9;
      const auto output = static_cast<uint32_t>(rng() % 120);
      GenerateRequest request = Greedy(RandomPrompt(length, prompt), output);
      request.sampling.temperature = rng() % 2 == 0 ? 0.0f : 0.9f;
      request.sampling.seed = rng();
      request.priority = static_cast<int32_t>(rng() % 3);
      request.tenant = rng() % 2;
      request.sampling.presence_penalty = rng() % 3 == 0 ? 0.5f : 0.0f;
      if (rng() % 4 == 0) request.sampling.logit_bias = {{3, 2.5f}, {12, -4.0f}};
      request.score_prompt = rng() % 8 == 0;
      request.generate = !request.score_prompt || rng() % 2 == 0;
      if (!ids.empty() && rng() % 5 == 0) {
        request.prompt = last_prompt;
        request.fork_of = ids.back();
      }
      last_prompt = request.prompt;
      request.end_tokens = {static_cast<TokenId>(rng() % 290), 7};
      ids.push_back(rig.Submit(std::move(request)));
    }
    if (!ids.empty() && rng() % 40 == 0) engine.Cancel(ids[rng() % ids.size()]);
    const bool stepped = engine.Step();
    const bool maintained = engine.Maintain();
    if (stepped || maintained) continue;
    if (ids.size() < requests) {
      rig.clock().AdvanceUs(1'000'000);
      if (rng() % 2 == 0) engine.NoteIdle();
      continue;
    }
    if (std::exchange(stopped, true)) break;
    rig.Submit(Greedy(RandomPrompt(40, 1), 0));  // what the stop ends
    engine.Step();
    engine.Stop();
  }
  EXPECT_TRUE(stopped);
  engine.SetObserver(nullptr);
  return vetoes.chain_hash;
}

struct Recorded {
  std::string path;
  uint64_t chain_hash = 0;
  EngineMetrics metrics;
};

inline Recorded RecordLoad(uint64_t seed, uint32_t requests = 40, int64_t slowness = 1) {
  Recorded recorded{.path = RecordPath()};
  const RigOptions options = RecordedOptions();
  const auto rig = PacedRig(options, seed, slowness);
  auto writer = RecordWriter::Create(recorded.path, RigHeader(rig->engine(), options));
  KVRM_CHECK(writer.ok(), "a test's record can be made");
  rig->engine().SetRecorder(writer->get());
  recorded.chain_hash = RunIrregularLoad(*rig, seed, requests);
  recorded.metrics = rig->engine().Metrics();
  EXPECT_TRUE((*writer)->Close().ok());
  return recorded;
}

// An engine as RecordedOptions says, whose replays take no time.
struct Replayer {
  explicit Replayer(const RecordHeader& header) {
    RigOptions options = RecordedOptions();
    options.max_itl_us = header.settings.max_itl_us;
    options.step_samples = header.step_samples;
    engine = MakeEngine(options, clock);
  }
  Result<RecordReplayReport> Run(RecordReader& reader) {
    return ReplayRecord(reader, *engine, clock);
  }
  ReplayClock clock;
  std::unique_ptr<Engine> engine;
};

// Reads every entry and replays none.
inline Status ReadBytes(std::span<const std::byte> bytes) {
  KVRM_ASSIGN_OR_RETURN(const auto reader, RecordReader::FromBytes(bytes));
  for (;;) {
    KVRM_ASSIGN_OR_RETURN(const RecordEntry* entry, reader->Next());
    if (entry == nullptr) return Ok();
  }
}

// Replays it in an engine as RecordedOptions says; a record of any other is refused.
inline Result<RecordReplayReport> ReplayBytes(std::span<const std::byte> bytes) {
  KVRM_ASSIGN_OR_RETURN(const auto reader, RecordReader::FromBytes(bytes));
  Replayer replayer(reader->header());
  return replayer.Run(*reader);
}

}  // namespace kvrm::testing
