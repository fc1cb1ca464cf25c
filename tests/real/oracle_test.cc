// The f32 path against an independent implementation over the same file, position by position.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/test_data.h"
#include "exec/test_stack.h"
#include "tests/real/oracle_values.h"

namespace kvrm::testing {
namespace {

TestStackConfig F32Config() {
  TestStackConfig config;
  config.model_path = DefaultModelPath();
  config.spec.context = 1024;
  config.load.weights = WeightChoice::kF32;
  config.load.num_threads = 2;
  config.kv_format = KvFormat::kF32;
  config.max_slots = 64;  // logits rows of a step
  config.kv_bytes = uint64_t{256} << 20;
  return config;
}

TokenId ArgMax(const std::vector<float>& logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

void CheckCase(const OracleCase& oracle) {
  TestStack stack(F32Config());
  const SeqId seq = stack.Open();
  std::vector<std::vector<float>> logits;  // of every position
  for (size_t begin = 0; begin < oracle.ids.size(); begin += 64) {
    const size_t end = std::min(begin + 64, oracle.ids.size());
    const std::vector<TokenId> chunk(oracle.ids.begin() + static_cast<ptrdiff_t>(begin),
                                     oracle.ids.begin() + static_cast<ptrdiff_t>(end));
    const StepResult result = stack.Step({{seq, chunk, /*all_logits=*/true}});
    for (uint32_t i = 0; i < chunk.size(); ++i) logits.push_back(stack.Logits(result, i));
  }
  double worst = 0;
  for (size_t p = 0; p < oracle.positions.size(); ++p) {
    const std::vector<float>& row = logits[static_cast<size_t>(oracle.positions[p])];
    for (size_t c = 0; c < oracle.columns.size(); ++c) {
      const double expected = oracle.logits[p * oracle.columns.size() + c];
      const float got = row[static_cast<size_t>(oracle.columns[c])];
      ASSERT_TRUE(std::isfinite(got)) << oracle.name << ", position " << oracle.positions[p];
      worst = std::max(worst, std::abs(got - expected));
    }
  }
  EXPECT_LE(worst / oracle.max_abs_logit, 1e-3) << oracle.name;
  ::testing::Test::RecordProperty("max_difference_over_max_logit",
                                  std::to_string(worst / oracle.max_abs_logit));
  TokenId next = ArgMax(logits.back());
  for (size_t i = 0; i < oracle.greedy.size(); ++i) {
    if (oracle.greedy_gap[i] >= 1e-3) {
      ASSERT_EQ(next, oracle.greedy[i]) << oracle.name << ", greedy token " << i;
    }
    next = ArgMax(stack.Logits(stack.Step({{seq, {oracle.greedy[i]}}}), 0));
  }
}

TEST(RealOracle, ShortChatEqualsTheF32Reference) {
  KVRM_REQUIRE_DATA(DefaultModelPath());
  CheckCase(ReadOracleCase(ProjectDataDir() + "/oracle", "short_chat"));
}

TEST(RealOracle, AHundredTokensEqualTheF32Reference) {
  KVRM_REQUIRE_DATA(DefaultModelPath());
  KVRM_REQUIRE_DATA(DataDir() + "/oracle/wiki100.logits.npy");
  CheckCase(ReadOracleCase(DataDir() + "/oracle", "wiki100"));
}

TEST(RealOracle, SixHundredTokensEqualTheF32Reference) {
  KVRM_REQUIRE_DATA(DefaultModelPath());
  KVRM_REQUIRE_DATA(DataDir() + "/oracle/wiki600.logits.npy");
  CheckCase(ReadOracleCase(DataDir() + "/oracle", "wiki600"));
}

}  // namespace
}  // namespace kvrm::testing
