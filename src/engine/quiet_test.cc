// The step path does not allocate in steady state. Checks of tier 2 and 3 copy whole snapshots, so
// this binary compiles the control plane without them (CMakeLists.txt) and counts every allocation.
#include <gtest/gtest.h>

#include "base/counted_new.h"
#include "engine/record_writer.h"
#include "engine/test_rig.h"

namespace kvrm {
namespace {

using testing::NumAllocations;

static_assert(KVRM_CHECK_TIER == 0, "this binary is compiled without the linear checks");

class CountingSink final : public EventSink {
 public:
  void OnToken(RequestId, const TokenEvent&) override { ++tokens; }
  void OnFinish(RequestId, const FinishEvent&) override {}
  uint64_t tokens = 0;
};

TEST(Quiet, TheCounterCounts) {
  const uint64_t before = NumAllocations();
  void* memory = ::operator new(8);
  EXPECT_EQ(NumAllocations(), before + 1);
  ::operator delete(memory);
}

// Decoding across page boundaries: steps that reserve, publish, sample and tell allocate nothing.
TEST(Quiet, DecodeStepsDoNotAllocate) {
  for (const uint64_t scatter : {0ull, 7ull}) {
    ManualClock clock;
    const auto engine = testing::MakeEngine(
        {.slots = 8, .pool_pages = 256, .scatter_seed = scatter, .validate = false}, clock);
    CountingSink sink;
    for (uint32_t i = 0; i < 8; ++i) {
      GenerateRequest request = testing::Greedy(testing::RandomPrompt(5 + 3 * i, i), 200);
      request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
      request.sampling.repetition_penalty = 1.1f;
      request.sampling.presence_penalty = 0.5f;
      request.sampling.frequency_penalty = 0.25f;
      request.sampling.typical_p = i % 4 < 2 ? 0.9f : 1.0f;
      request.sampling.logit_bias = {{static_cast<TokenId>(i), -1.0f}, {200, 1.0f}};
      request.sink = &sink;
      ASSERT_TRUE(engine->Submit(std::move(request)).ok());
    }
    for (int i = 0; i < 20; ++i) engine->Step();
    const uint64_t before = NumAllocations();
    const uint64_t tokens = sink.tokens;
    for (int i = 0; i < 150; ++i) engine->Step();
    EXPECT_EQ(NumAllocations(), before) << "scatter " << scatter;
    EXPECT_EQ(sink.tokens, tokens + 8 * 150);
  }
}

// The same with a record: its memory was there before, and its thread allocates nothing either.
TEST(Quiet, RecordedStepsDoNotAllocate) {
  ManualClock clock;
  const auto engine =
      testing::MakeEngine({.slots = 8, .pool_pages = 256, .validate = false}, clock);
  const auto writer =
      RecordWriter::Create(::testing::TempDir() + "Quiet_Recorded.kvrec",
                           {.settings = SettingsOf(*engine), .step_samples = {}, .text = ""});
  ASSERT_TRUE(writer.ok());
  engine->SetRecorder(writer->get());
  CountingSink sink;
  for (uint32_t i = 0; i < 8; ++i) {
    GenerateRequest request = testing::Greedy(testing::RandomPrompt(5 + 3 * i, i), 200);
    request.sink = &sink;
    ASSERT_TRUE(engine->Submit(std::move(request)).ok());
  }
  for (int i = 0; i < 20; ++i) engine->Step();
  (*writer)->Flush();
  const uint64_t before = NumAllocations();
  for (int i = 0; i < 100; ++i) engine->Step();
  (*writer)->Flush();
  for (int i = 0; i < 50; ++i) engine->Step();
  EXPECT_EQ(NumAllocations(), before);
}

// A long prompt in chunks beside a stream that decodes.
TEST(Quiet, MixedStepsDoNotAllocate) {
  ManualClock clock;
  const auto engine = testing::MakeEngine(
      {.slots = 4, .chunk_rows = 3, .mixed_prompt_rows = 8, .validate = false}, clock);
  CountingSink sink;
  GenerateRequest stream = testing::Greedy(testing::RandomPrompt(5, 1), 300);
  stream.sink = &sink;
  GenerateRequest prompt = testing::Greedy(testing::RandomPrompt(390, 2), 5);
  prompt.sink = &sink;
  ASSERT_TRUE(engine->Submit(std::move(stream)).ok());
  for (int i = 0; i < 5; ++i) engine->Step();
  ASSERT_TRUE(engine->Submit(std::move(prompt)).ok());
  for (int i = 0; i < 5; ++i) engine->Step();
  const uint64_t before = NumAllocations();
  for (int i = 0; i < 100; ++i) engine->Step();
  EXPECT_EQ(NumAllocations(), before);
  EXPECT_GE(engine->Metrics().prompt_tokens, 300u);
}

}  // namespace
}  // namespace kvrm
