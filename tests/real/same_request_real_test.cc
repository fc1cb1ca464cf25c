// Law I5 on the default model in its default encodings.
#include <gtest/gtest.h>

#include "base/test_data.h"
#include "tests/invariance/workload.h"

namespace kvrm::testing {
namespace {

constexpr uint32_t kVocab = 49'152;

class RealSameRequest : public ::testing::Test {
 protected:
  static RuntimeOptions Options() {
    RuntimeOptions options;
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
    static const std::vector<Recording>* const solo = [] {
      RuntimeOptions options = Options();
      options.num_threads = 1;
      auto* recordings = new std::vector<Recording>;  // lives as long as the tests
      for (const WorkItem& item : Watched()) recordings->push_back(Run(options, {item}).front());
      return recordings;
    }();
    for (size_t i = 0; i < solo->size(); ++i) ExpectSame((*solo)[i], got[i], "real model");
  }
};

TEST_F(RealSameRequest, AloneAndAmong31Others) {
  KVRM_REQUIRE_DATA(DefaultModelPath());
  Recorder::Seen seen;
  ExpectSolo(Run(Options(), Crowd(32), &seen));
  EXPECT_GE(seen.most_slots, 8u);
}

TEST_F(RealSameRequest, WhateverTheChunk) {
  KVRM_REQUIRE_DATA(DefaultModelPath());
  for (const uint32_t chunk : {1u, 7u, 64u}) {
    RuntimeOptions options = Options();
    options.chunk_rows = chunk;
    ExpectSolo(Run(options, Watched()));
  }
}

TEST_F(RealSameRequest, AfterTwoHundredOthersAndWithNoTwoAdjacentPages) {
  KVRM_REQUIRE_DATA(DefaultModelPath());
  RuntimeOptions options = Options();
  options.kv_bytes = uint64_t{64} << 20;
  options.scatter_seed = 9;
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

}  // namespace
}  // namespace kvrm::testing
