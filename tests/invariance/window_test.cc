// Sliding layers end to end: how far a row sees, what is held of a long sequence, and what of it
// may be shared.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "model/random_model.h"
#include "tests/invariance/workload.h"

namespace kvrm::testing {
namespace {

RandomModelSpec Windowed(uint32_t window, uint32_t layers, uint32_t full_every) {
  RandomModelSpec spec;
  spec.hidden = 128;
  spec.head_dim = 32;
  spec.ffn = 160;
  spec.context = 1024;
  spec.layers = layers;
  spec.window = window;
  spec.full_every = full_every;
  return spec;
}

std::unique_ptr<Runtime> Load(const std::vector<std::byte>& bytes, uint32_t chunk_rows,
                              bool prefix_cache) {
  const auto file = GgufFile::Parse(bytes, "random");
  EXPECT_TRUE(file.ok());
  RuntimeOptions options;
  options.kv_bytes = uint64_t{8} << 20;
  options.num_threads = 2;
  options.chunk_rows = chunk_rows;
  options.prefix_cache = prefix_cache;
  options.validate_each_step = true;
  options.poison_freed = true;
  auto runtime = LoadRuntime(**file, options);
  EXPECT_TRUE(runtime.ok()) << (runtime.ok() ? "" : runtime.error().message);
  return std::move(runtime).value();
}

// Logits of the last of `prompt` and of three tokens more.
std::vector<float> LogitsOf(const std::vector<std::byte>& bytes, uint32_t chunk_rows,
                            std::vector<TokenId> prompt) {
  WorkItem item;
  item.prompt = std::move(prompt);
  item.max_new_tokens = 4;
  const auto runtime = Load(bytes, chunk_rows, /*prefix_cache=*/false);
  return RunWorkload(*runtime, {item}).front().logits;
}

// B078: one layer with a window of 8 sees the current token and the 7 before it, in prompts of one
// piece, in pieces, and row by row; far out, where pages have left, as at the beginning.
TEST(B078, AWindowIsTheCurrentTokenAndTheOnesJustBeforeIt) {
  const std::vector<std::byte> bytes = WriteRandomModel(Windowed(8, 1, 0));
  std::mt19937_64 random(1);
  for (const uint32_t length : {20u, 150u}) {
    const std::vector<TokenId> prompt = RandomPrompt(random, kVocab, length);
    for (const uint32_t chunk : {0u, 7u, 1u}) {
      const std::vector<float> logits = LogitsOf(bytes, chunk, prompt);
      for (const uint32_t distance : {6u, 7u, 8u, 9u}) {
        std::vector<TokenId> other = prompt;
        TokenId& changed = other[length - 1 - distance];
        changed = (changed + 1) % static_cast<TokenId>(kVocab);
        const std::vector<float> then = LogitsOf(bytes, chunk, other);
        const bool same = std::memcmp(logits.data(), then.data(), kVocab * sizeof(float)) == 0;
        EXPECT_EQ(same, distance > 7) << "distance " << distance << ", chunk " << chunk;
      }
    }
  }
}

TEST(Windows, ASequenceHoldsThemAndNoMore) {
  const std::vector<std::byte> bytes = WriteRandomModel(Windowed(40, 4, 2));
  const auto runtime = Load(bytes, 0, /*prefix_cache=*/false);
  Pager& pager = runtime->engine->pager();
  ASSERT_EQ(pager.geometry().groups.size(), 2u);

  class Most final : public StepObserver {
   public:
    explicit Most(Pager& pager) : pager_(pager) {}
    void OnStep(const StepPlan& plan, const FrameView&, const StepResult&) override {
      if (plan.rows.empty()) return;
      for (uint32_t g = 0; g < 2; ++g) last_[g] = pager_.pages(plan.rows[0].seq, g).size();
    }
    uint64_t last(uint32_t group) const { return last_[group]; }

   private:
    Pager& pager_;
    uint64_t last_[2] = {};
  } most(pager);
  runtime->engine->SetObserver(&most);
  std::mt19937_64 random(2);
  struct Quiet final : public EventSink {
    void OnToken(RequestId, const TokenEvent&) override {}
    void OnFinish(RequestId, const FinishEvent& event) override { reason = event.reason; }
    StopReason reason = StopReason::kNone;
  } sink;
  GenerateRequest request;
  request.prompt = RandomPrompt(random, kVocab, 600);
  request.sampling.temperature = 0;
  request.max_new_tokens = 40;
  request.sink = &sink;
  ASSERT_TRUE(runtime->engine->Submit(request).ok());
  while (runtime->engine->Step()) {
  }
  EXPECT_EQ(sink.reason, StopReason::kLength);
  EXPECT_EQ(most.last(0), 40u);  // 639 places
  EXPECT_LE(most.last(1), 4u);   // 40 places, wherever they begin within a page
  EXPECT_GE(most.last(1), 3u);
  EXPECT_GT(pager.counters().slid_pages, 30u);
}

// What the index gives a sliding group is the window before the first row that is computed: the
// request gets what it would have got without the index.
TEST(Windows, APrefixThatIsLongerThanTheWindowIsShared) {
  const std::vector<std::byte> bytes = WriteRandomModel(Windowed(40, 4, 2));
  std::mt19937_64 random(3);
  WorkItem first, second;
  first.prompt = RandomPrompt(random, kVocab, 200);
  second.prompt = first.prompt;
  const std::vector<TokenId> rest = RandomPrompt(random, kVocab, 50);
  second.prompt.insert(second.prompt.end(), rest.begin(), rest.end());
  const auto alone = Load(bytes, 0, /*prefix_cache=*/false);
  const Recording expected = RunWorkload(*alone, {second}).front();
  const auto runtime = Load(bytes, 0, /*prefix_cache=*/true);
  RunWorkload(*runtime, {first});
  const Recording shared = RunWorkload(*runtime, {second}).front();
  ExpectSame(expected, shared, "shared prefix");
  EXPECT_GE(runtime->engine->Metrics().sched.cached_tokens, 192u);
}

}  // namespace
}  // namespace kvrm::testing
