// What the static programs and the cache formats do at their limits, or refuse. Field reports.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "model/config.h"
#include "model/random_model.h"
#include "tests/invariance/workload.h"

namespace kvrm::testing {
namespace {

RandomModelSpec Spec(uint32_t context) {
  RandomModelSpec spec;
  spec.hidden = 128;
  spec.kv_heads = 2;
  spec.head_dim = 32;
  spec.ffn = 160;
  spec.context = context;
  return spec;
}

Result<std::unique_ptr<Runtime>> Load(const std::vector<std::byte>& bytes,
                                      const RuntimeOptions& options) {
  const auto file = GgufFile::Parse(bytes, "random");
  EXPECT_TRUE(file.ok());
  return LoadRuntime(**file, options);
}

// B031: the configured number of slots is always a size that a program has, odd ones too: a full
// batch runs on the decode program, and one more request waits.
TEST(B031, TheConfiguredBatchIsASizeOfTheDecodeProgram) {
  const std::vector<std::byte> bytes = WriteRandomModel(Spec(256));
  for (const uint32_t slots : {1u, 7u, 11u}) {
    RuntimeOptions options;
    options.kv_bytes = uint64_t{16} << 20;
    options.num_threads = 2;
    options.max_slots = slots;
    const auto runtime = Load(bytes, options);
    ASSERT_TRUE(runtime.ok());
    EXPECT_EQ((*runtime)->engine->executor_info().max_rows[0], slots);
    std::vector<WorkItem> items(slots + 1);
    for (uint32_t i = 0; i < items.size(); ++i) {
      items[i].prompt = {static_cast<TokenId>(3 + i)};
      items[i].max_new_tokens = 20;
    }
    RunWorkload(**runtime, items);
    const ExecutorCounters exec = (*runtime)->engine->Metrics().exec;
    EXPECT_GE(exec.replays[0], 19u);
    EXPECT_EQ(exec.replays[2], 0u);
    EXPECT_EQ(exec.hash_mismatches, 0u);
  }
}

// B080: nothing shifts. A run that fills its context ends there, in every cache format.
TEST(B080, AFullContextEndsTheRequestAndNeverShifts) {
  const std::vector<std::byte> bytes = WriteRandomModel(Spec(256));
  for (const KvFormat kv : {KvFormat::kF16, KvFormat::kF32}) {
    RuntimeOptions options;
    options.kv_bytes = uint64_t{16} << 20;
    options.kv_format = kv;
    const auto runtime = Load(bytes, options);
    ASSERT_TRUE(runtime.ok());
    WorkItem item;
    item.prompt = {5, 6, 7};
    item.max_new_tokens = 600;
    const Recording run = RunWorkload(**runtime, {item}).front();
    EXPECT_EQ(run.reason, StopReason::kLength);
    EXPECT_EQ(run.tokens.size() + item.prompt.size(), 256u);
  }
}

// B081: an int8 cache is not offered, and says so before anything is loaded.
TEST(B081, AQuantisedCacheIsRefusedByName) {
  const std::vector<std::byte> bytes = WriteRandomModel(Spec(256));
  RuntimeOptions options;
  options.kv_format = KvFormat::kInt8;
  const auto runtime = Load(bytes, options);
  ASSERT_FALSE(runtime.ok());
  EXPECT_EQ(runtime.error().kind, ErrorKind::kUnsupported);
  EXPECT_NE(runtime.error().message.find("int8"), std::string::npos) << runtime.error().message;
}

// B081: a cache of halves stays close to the exact one however long the run.
TEST(B081, HalvesStayCloseToFloatsOverALongRun) {
  const std::vector<std::byte> bytes = WriteRandomModel(Spec(1100));
  std::vector<std::vector<float>> logits;
  WorkItem item;
  std::mt19937_64 random(12);
  item.prompt = RandomPrompt(random, 320, 1000);
  item.max_new_tokens = 1;
  for (const KvFormat kv : {KvFormat::kF16, KvFormat::kF32}) {
    RuntimeOptions options;
    options.kv_bytes = uint64_t{32} << 20;
    options.kv_format = kv;
    options.weights = WeightChoice::kF32;
    const auto runtime = Load(bytes, options);
    ASSERT_TRUE(runtime.ok());
    logits.push_back(RunWorkload(**runtime, {item}).front().logits);
  }
  float largest = 0;
  float difference = 0;
  for (size_t i = 0; i < logits[0].size(); ++i) {
    ASSERT_TRUE(std::isfinite(logits[0][i]) && std::isfinite(logits[1][i])) << i;
    largest = std::max(largest, std::abs(logits[1][i]));
    difference = std::max(difference, std::abs(logits[0][i] - logits[1][i]));
  }
  EXPECT_LT(difference, 5e-3f * largest);
}

}  // namespace
}  // namespace kvrm::testing
