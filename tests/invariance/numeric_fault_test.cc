// A numeric fault ends the request that has it, and no other: NaN weights that one prompt touches,
// pages that a faulty request has left behind.
#include <gtest/gtest.h>

#include <cstring>

#include "model/random_model.h"
#include "tests/invariance/workload.h"

namespace kvrm::testing {
namespace {

constexpr TokenId kFaulty = 77;

std::unique_ptr<Runtime> LoadFaulty(std::vector<std::byte>& bytes, KvFormat kv, uint64_t kv_bytes) {
  RandomModelSpec spec;
  spec.hidden = 128;
  spec.kv_heads = 2;
  spec.head_dim = 32;
  spec.ffn = 160;
  spec.vocab = kVocab;
  spec.tied = false;  // a tied head would carry the NaN into every request's logits
  spec.nan_tensor = "token_embd.weight";
  spec.nan_row = kFaulty;
  bytes = WriteRandomModel(spec);
  const auto file = GgufFile::Parse(bytes, "random");
  EXPECT_TRUE(file.ok());
  RuntimeOptions options;
  options.kv_format = kv;
  options.kv_bytes = kv_bytes;
  options.num_threads = 2;
  options.validate_each_step = true;
  options.poison_freed = true;
  auto runtime = LoadRuntime(**file, options);
  EXPECT_TRUE(runtime.ok()) << (runtime.ok() ? "" : runtime.error().message);
  return std::move(runtime).value();
}

std::vector<TokenId> CleanPrompt(std::mt19937_64& random, uint32_t length) {
  std::vector<TokenId> prompt = RandomPrompt(random, kVocab, length);
  for (TokenId& id : prompt) id = id == kFaulty ? kFaulty + 1 : id;
  return prompt;
}

class NumericFaultIn : public ::testing::TestWithParam<KvFormat> {};

TEST_P(NumericFaultIn, NaNWeightsEndThatRequestOnly) {
  std::vector<std::byte> bytes;
  std::mt19937_64 random(4);
  WorkItem good;
  good.prompt = CleanPrompt(random, 60);
  good.max_new_tokens = 12;
  WorkItem bad = good;
  bad.prompt[10] = kFaulty;
  const auto alone = LoadFaulty(bytes, GetParam(), uint64_t{16} << 20);
  const Recording expected = RunWorkload(*alone, {good}).front();
  ASSERT_EQ(expected.reason, StopReason::kLength);
  const auto runtime = LoadFaulty(bytes, GetParam(), uint64_t{16} << 20);
  const std::vector<Recording> both = RunWorkload(*runtime, {bad, good, bad});
  for (const size_t i : {size_t{0}, size_t{2}}) {
    EXPECT_EQ(both[i].reason, StopReason::kError);
    EXPECT_FALSE(both[i].message.empty());
    EXPECT_TRUE(both[i].tokens.empty());
  }
  EXPECT_EQ(both[1].reason, StopReason::kLength);
  EXPECT_EQ(both[1].tokens, expected.tokens);
  EXPECT_EQ(both[1].logits, expected.logits);
  EXPECT_EQ(runtime->engine->Metrics().requests_failed, 2u);
}

// 0 x NaN: pages that held NaN are recycled, and nothing of it reaches the next owner.
TEST_P(NumericFaultIn, RecycledPagesOfAFaultyRequestHarmNobody) {
  std::vector<std::byte> bytes;
  std::mt19937_64 random(8);
  WorkItem good;
  good.prompt = CleanPrompt(random, 21);
  good.max_new_tokens = 9;
  const auto alone = LoadFaulty(bytes, GetParam(), uint64_t{16} << 20);
  const Recording expected = RunWorkload(*alone, {good}).front();
  const auto runtime = LoadFaulty(bytes, GetParam(), uint64_t{16} << 20);
  for (uint32_t round = 0; round < 10; ++round) {
    WorkItem bad;
    bad.prompt = std::vector<TokenId>(100 + round, kFaulty);
    RunWorkload(*runtime, {bad});
    const Recording after = RunWorkload(*runtime, {good}).front();
    ASSERT_EQ(after.tokens, expected.tokens) << round;
    ASSERT_EQ(after.logits, expected.logits) << round;
  }
}

INSTANTIATE_TEST_SUITE_P(KvFormats, NumericFaultIn,
                         ::testing::Values(KvFormat::kF16, KvFormat::kInt8),
                         [](const ::testing::TestParamInfo<KvFormat>& param) {
                           return param.param == KvFormat::kInt8 ? "int8" : "f16";
                         });

// A NaN in the head's weights reaches the logits of every request: each is told, none gets a token
// chosen from NaN (greedy, or sampled with top-p alone).
TEST(NumericFault, NaNLogitsOfATiedHeadAreToldNeverSampled) {
  RandomModelSpec spec;
  spec.hidden = 128;
  spec.kv_heads = 2;
  spec.head_dim = 32;
  spec.ffn = 160;
  spec.vocab = kVocab;
  spec.nan_tensor = "token_embd.weight";
  spec.nan_row = kFaulty;
  const std::vector<std::byte> bytes = WriteRandomModel(spec);
  const auto file = GgufFile::Parse(bytes, "random");
  ASSERT_TRUE(file.ok());
  RuntimeOptions options;
  options.kv_bytes = uint64_t{16} << 20;
  const auto runtime = LoadRuntime(**file, options);
  ASSERT_TRUE(runtime.ok());
  WorkItem greedy;
  greedy.prompt = {5, 6, 7};
  WorkItem sampled = greedy;
  sampled.temperature = 0.8f;
  for (const Recording& r : RunWorkload(**runtime, {greedy, sampled})) {
    EXPECT_EQ(r.reason, StopReason::kError);
    EXPECT_TRUE(r.tokens.empty());
  }
}

// Every row of the step faulty: each request ends, the engine goes on.
TEST(NumericFault, AStepOfFaultyRowsAloneEndsThemAll) {
  std::vector<std::byte> bytes;
  const auto runtime = LoadFaulty(bytes, KvFormat::kF32, uint64_t{16} << 20);
  WorkItem bad;
  bad.prompt = {kFaulty};
  for (const Recording& r : RunWorkload(*runtime, {bad, bad, bad})) {
    EXPECT_EQ(r.reason, StopReason::kError);
  }
  WorkItem good;
  good.prompt = {3};
  EXPECT_EQ(RunWorkload(*runtime, {good}).front().reason, StopReason::kLength);
}

// B032: a long greedy run crosses page borders while the pool grows; its tokens do not depend on
// where its pages lie.
TEST(B032, AThousandTokensDoNotDependOnPlacementOrPoolGrowth) {
  RandomModelSpec spec;
  spec.hidden = 128;
  spec.kv_heads = 2;
  spec.head_dim = 32;
  spec.ffn = 160;
  spec.context = 1100;
  const std::vector<std::byte> bytes = WriteRandomModel(spec);
  const auto file = GgufFile::Parse(bytes, "random");
  ASSERT_TRUE(file.ok());
  for (const KvFormat kv : {KvFormat::kF16, KvFormat::kInt8, KvFormat::kF32}) {
    std::vector<TokenId> expected;
    for (const uint64_t scatter : {uint64_t{0}, uint64_t{5}}) {
      RuntimeOptions options;
      options.kv_format = kv;
      options.kv_bytes = uint64_t{32} << 20;
      options.num_threads = 2;
      options.scatter_seed = scatter;
      const auto runtime = LoadRuntime(**file, options);
      ASSERT_TRUE(runtime.ok());
      WorkItem item;
      item.prompt = {5, 6, 7};
      item.max_new_tokens = 1000;
      const Recording run = RunWorkload(**runtime, {item}).front();
      ASSERT_EQ(run.tokens.size(), 1000u);
      if (expected.empty()) expected = run.tokens;
      EXPECT_EQ(run.tokens, expected);
    }
  }
}

}  // namespace
}  // namespace kvrm::testing
