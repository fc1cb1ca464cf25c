// Law I5 on the default model in its default encodings, with keys and values in fp16 and in int8.
#include <gtest/gtest.h>

#include <map>

#include "base/test_data.h"
#include "tests/invariance/workload.h"

namespace kvrm::testing {
namespace {

constexpr uint32_t kVocab = 49'152;

class RealSameRequest : public ::testing::TestWithParam<KvFormat> {
 protected:
  static RuntimeOptions Options() {
    RuntimeOptions options;
    options.kv_format = GetParam();
    options.model_path = DefaultModelPath();
    options.kv_bytes = uint64_t{512} << 20;
    options.num_threads = 2;
    options.validate_each_step = true;
    return options;
  }

  static std::vector<Recording> Run(const RuntimeOptions& options,
                                    const std::vector<WorkItem>& items,
                                    Recorder::Seen* seen = nullptr) {
    const auto runtime = LoadRuntime(options);
    EXPECT_TRUE(runtime.ok()) << (runtime.ok() ? "" : runtime.error().message);
    return RunWorkload(**runtime, items, seen);
  }

  static std::vector<WorkItem> Watched() {
    std::mt19937_64 random(17);
    WorkItem item;
    item.prompt = RandomPrompt(random, kVocab, 270);
    item.max_new_tokens = 12;
    WorkItem sampled = item;
    sampled.prompt.resize(19);
    sampled.temperature = 1.0f;
    sampled.seed = 3;
    return {item, sampled};
  }

  static std::vector<WorkItem> Crowd(size_t size) {
    std::mt19937_64 random(23);
    std::vector<WorkItem> items = Watched();
    items[0].arrival_step = 3;
    items[1].arrival_step = 5;
    while (items.size() < size) items.push_back(RandomItem(random, kVocab, 120, 12, 10));
    return items;
  }

  static void ExpectSolo(const std::vector<Recording>& got) {
    static auto* const all = new std::map<KvFormat, std::vector<Recording>>;  // lives as the tests
    std::vector<Recording>& solo = (*all)[GetParam()];
    if (solo.empty()) {
      RuntimeOptions options = Options();
      options.num_threads = 1;
      for (const WorkItem& item : Watched()) solo.push_back(Run(options, {item}).front());
    }
    for (size_t i = 0; i < solo.size(); ++i) ExpectSame(solo[i], got[i], "real model");
  }
};

TEST_P(RealSameRequest, AloneAndAmong31Others) {
  KVRM_REQUIRE_DATA(DefaultModelPath());
  Recorder::Seen seen;
  ExpectSolo(Run(Options(), Crowd(32), &seen));
  EXPECT_GE(seen.most_slots, 8u);
}

TEST_P(RealSameRequest, WhateverTheChunk) {
  KVRM_REQUIRE_DATA(DefaultModelPath());
  for (const uint32_t chunk : {1u, 7u, 64u}) {
    RuntimeOptions options = Options();
    options.chunk_rows = chunk;
    ExpectSolo(Run(options, Watched()));
  }
}

TEST_P(RealSameRequest, AfterTwoHundredOthersAndWithNoTwoAdjacentPages) {
  KVRM_REQUIRE_DATA(DefaultModelPath());
  RuntimeOptions options = Options();
  options.kv_bytes = uint64_t{GetParam() == KvFormat::kInt8 ? 24u : 48u} << 20;
  options.scatter_seed = 9;
  options.prefix_cache = false;  // so that pages are recycled
  const auto runtime = LoadRuntime(options);
  ASSERT_TRUE(runtime.ok());
  std::mt19937_64 random(31);
  std::vector<WorkItem> others;
  while (others.size() < 200) others.push_back(RandomItem(random, kVocab, 40, 4, 60));
  RunWorkload(**runtime, others);
  const Pager& pager = (*runtime)->engine->pager();
  EXPECT_GT(pager.counters().pages_returned, pager.books(0).total);
  Recorder::Seen seen;
  ExpectSolo(RunWorkload(**runtime, Watched(), &seen));
  EXPECT_EQ(seen.most_runs, seen.pages_of_most_runs);
  EXPECT_EQ(seen.most_runs, 18u);  // 270 + 12 - 1 tokens
}

TEST_P(RealSameRequest, WhateverOfItWasCached) {
  KVRM_REQUIRE_DATA(DefaultModelPath());
  const auto runtime = LoadRuntime(Options());
  ASSERT_TRUE(runtime.ok());
  RunWorkload(**runtime, Crowd(12));  // the watched prompts among them
  const uint64_t before = (*runtime)->engine->Metrics().sched.cached_tokens;
  ExpectSolo(RunWorkload(**runtime, Watched()));
  EXPECT_EQ((*runtime)->engine->Metrics().sched.cached_tokens - before, 269u + 18u);
}

INSTANTIATE_TEST_SUITE_P(KvFormats, RealSameRequest,
                         ::testing::Values(KvFormat::kF16, KvFormat::kInt8),
                         [](const ::testing::TestParamInfo<KvFormat>& param) {
                           return param.param == KvFormat::kInt8 ? "int8" : "f16";
                         });

}  // namespace
}  // namespace kvrm::testing
