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
  for (const KvFormat kv : {KvFormat::kF16, KvFormat::kInt8, KvFormat::kF32}) {
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

// The logits after a prompt of `length` random tokens, in a cache of `kv`.
std::vector<float> LogitsAfter(const std::vector<std::byte>& bytes, uint32_t length, KvFormat kv) {
  RuntimeOptions options;
  options.kv_bytes = uint64_t{64} << 20;
  options.kv_format = kv;
  options.weights = WeightChoice::kF32;
  const auto runtime = Load(bytes, options);
  EXPECT_TRUE(runtime.ok());
  WorkItem item;
  std::mt19937_64 random(12);
  item.prompt = RandomPrompt(random, 320, length);
  item.max_new_tokens = 1;
  return RunWorkload(**runtime, {item}).front().logits;
}

// Kullback-Leibler divergence of the distributions that two rows of logits stand for.
double Divergence(const std::vector<float>& want, const std::vector<float>& got) {
  const auto log_sum = [](const std::vector<float>& logits) {
    double sum = 0;
    for (const float x : logits) sum += std::exp(double{x});
    return std::log(sum);
  };
  const double log_want = log_sum(want);
  const double log_got = log_sum(got);
  double divergence = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double p = want[i] - log_want;
    divergence += std::exp(p) * (p - (got[i] - log_got));
  }
  return divergence;
}

// B081: a quantised cache that is wrong shows at once, after a hundred tokens or past a border. The
// distribution stays as near to the exact cache's at 2,000 tokens as at 10.
TEST(B081, NarrowCachesStayCloseToFloatsAtEveryLength) {
  const std::vector<std::byte> bytes = WriteRandomModel(Spec(2048));
  for (const uint32_t length : {10u, 100u, 200u, 1'100u, 2'000u}) {
    const std::vector<float> exact = LogitsAfter(bytes, length, KvFormat::kF32);
    const double halves = Divergence(exact, LogitsAfter(bytes, length, KvFormat::kF16));
    const double int8 = Divergence(exact, LogitsAfter(bytes, length, KvFormat::kInt8));
    EXPECT_LT(halves, 1e-5) << length;
    EXPECT_LT(int8, 2e-3) << length;
    EXPECT_GT(int8, 0) << "the cache of bytes is really used";
    RecordProperty("int8_divergence_" + std::to_string(length), std::to_string(int8));
  }
}

}  // namespace
}  // namespace kvrm::testing
