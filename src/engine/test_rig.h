// An engine over the FakeExecutor, and a sink that keeps what it is told. Test code only.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/fake_executor.h"

namespace kvrm::testing {

inline constexpr uint32_t kFakePageTokens = 16;
inline constexpr uint32_t kFakePagesPerSuperblock = 8;
inline constexpr uint64_t kFakePageBytes = 2 * kFakePageTokens * kFakeCellBytes;

// Two parts, pages of 1 KiB, 8 to a superblock; page 0 is the null page.
inline KvGeometry FakeGeometry() {
  KvGeometry geometry;
  geometry.groups.push_back({.format = KvFormat::kF32,
                             .page_tokens = kFakePageTokens,
                             .num_parts = 2,
                             .part_page_bytes = kFakePageBytes / 2,
                             .pages_per_superblock = kFakePagesPerSuperblock,
                             .superblock_bytes = kFakePageBytes * kFakePagesPerSuperblock});
  geometry.layer_group = {0, 0};
  geometry.layer_part = {0, 1};
  return geometry;
}

struct RigOptions {
  uint32_t slots = 32;
  uint32_t pool_pages = 1024;  // a multiple of kFakePagesPerSuperblock, null page included
  uint32_t max_seq_tokens = 400;
  uint32_t chunk_rows = 0;
  uint32_t mixed_prompt_rows = 64;
  uint32_t prefill_rows = 512;
  uint32_t max_queued = 4096;
  uint64_t scatter_seed = 0;
  bool prefix_cache = true;
  bool slot_runs = false;
  bool placement = true;
  uint64_t kv_keep_bytes = 32u << 20;
  bool poison = true;
  bool panel_hints = true;
  bool validate = true;
  int64_t max_itl_us = 0;
  std::vector<StepSample> step_samples;  // empty: the executor's
  StolenUs stolen_us;
};

// Puts an executor around the fake one.
using WrapExecutor = std::function<std::unique_ptr<Executor>(std::unique_ptr<Executor>)>;

inline std::unique_ptr<Engine> MakeEngine(const RigOptions& options, Clock& clock,
                                          const WrapExecutor& wrap = nullptr) {
  const KvGeometry geometry = FakeGeometry();
  auto pager = Pager::Create({.geometry = geometry,
                              .kv_bytes = options.pool_pages * kFakePageBytes,
                              .max_slots = options.slots,
                              .max_seq_tokens = options.max_seq_tokens,
                              .kv_keep_bytes = options.kv_keep_bytes,
                              .poison_freed = options.poison,
                              .placement = options.placement,
                              .scatter_seed = options.scatter_seed});
  KVRM_CHECK(pager.ok(), "a rig's pager can be made");
  std::unique_ptr<Executor> executor =
      std::make_unique<FakeExecutor>(geometry, pager.value()->base(0),
                                     FakeShape{.max_slots = options.slots,
                                               .mixed_rows = options.mixed_prompt_rows,
                                               .prefill_rows = options.prefill_rows,
                                               .panel_hints = options.panel_hints});
  if (wrap) executor = wrap(std::move(executor));
  executor->WarmUp();
  auto engine = Engine::Create({.max_slots = options.slots,
                                .max_seq_tokens = options.max_seq_tokens,
                                .max_queued = options.max_queued,
                                .chunk_rows = options.chunk_rows,
                                .mixed_prompt_rows = options.mixed_prompt_rows,
                                .max_itl_us = options.max_itl_us,
                                .prefix_cache = options.prefix_cache,
                                .slot_runs = options.slot_runs,
                                .validate_each_step = options.validate,
                                .step_samples = options.step_samples,
                                .stolen_us = options.stolen_us},
                               std::move(pager).value(), std::move(executor), clock);
  KVRM_CHECK(engine.ok(), "a rig's engine can be made");
  return std::move(engine).value();
}

// What one request got.
struct Stream {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  struct Scored {
    TokenId token;
    float logprob;
    uint32_t rank;
    std::vector<std::pair<TokenId, float>> top;
    bool operator==(const Scored&) const = default;
  };
  std::vector<Scored> prompt;  // of prompt tokens 1, 2, ...
  RequestTimings last;         // with its latest token
  uint32_t finishes = 0;
  FinishEvent finish;
};

// Keeps the streams by id and checks the sink's contract.
class Collector final : public EventSink {
 public:
  void OnPromptToken(RequestId id, const PromptTokenEvent& event) override {
    Stream& stream = streams_[id];
    EXPECT_EQ(stream.finishes, 0u) << "a score after the end";
    EXPECT_TRUE(stream.tokens.empty()) << "a score after a token";
    EXPECT_EQ(event.index, stream.prompt.size() + 1) << "scores come in order, each once";
    stream.prompt.push_back({event.token, event.logprob, event.rank, {}});
    for (const TokenLogprob& entry : *event.top) {
      stream.prompt.back().top.emplace_back(entry.id, entry.logprob);
    }
  }
  void OnToken(RequestId id, const TokenEvent& event) override {
    Stream& stream = streams_[id];
    EXPECT_EQ(stream.finishes, 0u) << "a token after the end";
    EXPECT_EQ(event.index, stream.tokens.size()) << "tokens come in output order";
    stream.tokens.push_back(event.token);
    stream.logprobs.push_back(event.logprob);
    stream.last = event.timings;
  }
  void OnFinish(RequestId id, const FinishEvent& event) override {
    Stream& stream = streams_[id];
    if (event.reason == StopReason::kEnd) {
      EXPECT_EQ(event.timings, stream.last) << "a token says what its request comes to";
    }
    EXPECT_EQ(++stream.finishes, 1u) << "an end comes once";
    EXPECT_EQ(event.timings.output_tokens, stream.tokens.size());
    stream.finish = event;
    ++num_finished_;
  }
  const Stream& at(RequestId id) { return streams_[id]; }
  bool finished(RequestId id) { return streams_[id].finishes == 1; }
  size_t num_finished() const { return num_finished_; }

 private:
  std::map<RequestId, Stream> streams_;
  size_t num_finished_ = 0;
};

class Rig {
 public:
  explicit Rig(const RigOptions& options = {}) : engine_(MakeEngine(options, clock_)) {}
  // The same over another executor; `wrap` gets the rig's clock, too.
  template <class WrapFn>
  Rig(const RigOptions& options, const WrapFn& wrap)
      : engine_(MakeEngine(options, clock_, [&](std::unique_ptr<Executor> executor) {
          return wrap(std::move(executor), clock_);
        })) {}

  RequestId Submit(GenerateRequest request) {
    request.sink = &sink_;
    const Status status = engine_->Check(request);
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
    auto id = engine_->Submit(std::move(request));
    EXPECT_TRUE(id.ok());
    return id.ok() ? id.value() : RequestId{};
  }
  // One step, a millisecond long.
  bool Step() {
    clock_.AdvanceUs(1000);
    return engine_->Step();
  }
  // Steps until there is nothing to do; a stall ends the test.
  void Drain(uint32_t bound = 100'000) {
    for (uint32_t i = 0; i < bound; ++i) {
      if (!Step()) return;
    }
    FAIL() << "not idle after " << bound << " steps";
  }

  Engine& engine() { return *engine_; }
  Collector& sink() { return sink_; }
  const Stream& stream(RequestId id) { return sink_.at(id); }
  ManualClock& clock() { return clock_; }
  // Pages in use beside the null page.
  uint64_t pages_in_use() const { return engine_->Metrics().books.in_use - 1; }

 private:
  ManualClock clock_;
  Collector sink_;
  std::unique_ptr<Engine> engine_;
};

inline std::vector<TokenId> RandomPrompt(uint32_t length, uint64_t seed) {
  std::vector<TokenId> prompt(length);
  uint64_t state = seed * 2 + 1;
  for (TokenId& id : prompt) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    id = static_cast<TokenId>((state >> 33) % kFaultToken);  // never the fault token
  }
  return prompt;
}

inline GenerateRequest Greedy(std::vector<TokenId> prompt, uint32_t max_new_tokens) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.max_new_tokens = max_new_tokens;
  return request;
}

// The same request with an engine of its own, all room in the world.
inline Stream Solo(const GenerateRequest& request, uint32_t max_seq_tokens = 400) {
  Rig rig({.slots = 1, .max_seq_tokens = max_seq_tokens, .validate = false});
  const RequestId id = rig.Submit(request);
  rig.Drain();
  return rig.stream(id);
}

}  // namespace kvrm::testing
