// Every family computes what PyPI transformers computes: logits at every position of a prompt and
// its continuation, which runs past every window, and the same greedy choices.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/largest_difference.h"
#include "tests/golden/golden_case.h"
#include "tests/invariance/workload.h"

namespace kvrm::testing {
namespace {

constexpr double kTolerance = 1e-4;  // of the greatest logit

struct Case {
  const char* family;
  const char* file;  // within the family's folder; "": the folder itself, safetensors
};

std::unique_ptr<Runtime> Load(const Case& c, const RuntimeOptions& wanted) {
  RuntimeOptions options = wanted;
  options.model_path = GoldenPath(c.family, c.file);
  options.kv_bytes = uint64_t{16} << 20;
  options.validate_each_step = true;
  options.poison_freed = true;
  auto runtime = LoadRuntime(options);
  EXPECT_TRUE(runtime.ok()) << (runtime.ok() ? "" : runtime.error().message);
  return std::move(runtime).value();
}

RuntimeOptions Float() {
  RuntimeOptions options;
  options.weights = WeightChoice::kF32;
  options.kv_format = KvFormat::kF32;
  options.num_threads = 1;
  return options;
}

class Golden : public ::testing::TestWithParam<Case> {};

// Each prefix of the text is a request of its own, so that every position's logits are seen.
TEST_P(Golden, LogitsAtEveryPositionAreThoseOfTransformers) {
  const GoldenCase golden = ReadGoldenCase(GetParam().family);
  const auto runtime = Load(GetParam(), Float());
  ASSERT_EQ(runtime->model->config().vocab, golden.vocab());
  std::vector<WorkItem> items;
  for (size_t length = 1; length < golden.ids.size(); ++length) {
    WorkItem item;
    item.prompt.assign(golden.ids.begin(), golden.ids.begin() + static_cast<ptrdiff_t>(length));
    item.max_new_tokens = 1;
    items.push_back(item);
  }
  const std::vector<Recording> recordings = RunWorkload(*runtime, items);
  std::vector<float> logits;
  for (const Recording& recording : recordings) {
    logits.insert(logits.end(), recording.logits.begin(), recording.logits.end());
  }
  const double worst = LargestDifference(logits, golden.logits) / golden.max_abs_logit;
  EXPECT_LE(worst, kTolerance);
  RecordProperty("worst", std::to_string(worst));
}

TEST_P(Golden, TheGreedyContinuationIsTheSame) {
  const GoldenCase golden = ReadGoldenCase(GetParam().family);
  const auto begin = golden.ids.begin() + golden.prompt;
  WorkItem item;
  item.prompt.assign(golden.ids.begin(), begin);
  item.max_new_tokens = static_cast<uint32_t>(golden.ids.end() - begin);
  const auto runtime = Load(GetParam(), Float());
  EXPECT_EQ(RunWorkload(*runtime, {item}).front().tokens,
            std::vector<TokenId>(begin, golden.ids.end()));
}

// Law I5 for each family, in the encodings that people run: alone, and in a crowd that is cut
// differently.
TEST_P(Golden, ARequestGetsTheSameAloneAndInACrowd) {
  const GoldenCase golden = ReadGoldenCase(GetParam().family);
  std::vector<WorkItem> watched(2);
  watched[0].prompt.assign(golden.ids.begin(), golden.ids.begin() + 50);
  watched[1].prompt.assign(golden.ids.begin() + 10, golden.ids.begin() + 21);
  for (WorkItem& item : watched) item.max_new_tokens = 40;
  RuntimeOptions options;
  options.num_threads = 1;
  std::vector<Recording> solo;
  for (const WorkItem& item : watched) {
    solo.push_back(RunWorkload(*Load(GetParam(), options), {item}).front());
  }
  std::mt19937_64 random(5);
  std::vector<WorkItem> crowd = watched;
  while (crowd.size() < 12) crowd.push_back(RandomItem(random, golden.vocab(), 80, 30, 10));
  for (const uint32_t chunk : {1u, 7u, 64u, 0u}) {
    options.num_threads = 2;
    options.chunk_rows = chunk;
    const std::vector<Recording> together = RunWorkload(*Load(GetParam(), options), crowd);
    for (size_t i = 0; i < solo.size(); ++i) ExpectSame(solo[i], together[i], "crowd");
  }
}

std::string CaseName(const ::testing::TestParamInfo<Case>& param) {
  const bool gguf = std::string(param.param.file).ends_with(".gguf");
  return std::string(param.param.family) + (gguf ? "_gguf" : "_safetensors");
}

INSTANTIATE_TEST_SUITE_P(Families, Golden,
                         ::testing::Values(Case{"llama", "model.gguf"}, Case{"llama", ""},
                                           Case{"llama_linear", "model.gguf"},
                                           Case{"llama_linear", ""}, Case{"mistral", "model.gguf"},
                                           Case{"mistral", ""}, Case{"qwen2", "model.gguf"},
                                           Case{"qwen2", ""}, Case{"qwen2_yarn", "model.gguf"},
                                           Case{"qwen2_yarn", ""}, Case{"qwen3", "model.gguf"},
                                           Case{"qwen3", ""}, Case{"smollm3", "model.gguf"},
                                           Case{"smollm3", ""}, Case{"gemma2", "model.gguf"},
                                           Case{"gemma2", ""}, Case{"gemma3", "model.gguf"},
                                           Case{"gemma3", ""}),
                         CaseName);

}  // namespace
}  // namespace kvrm::testing
