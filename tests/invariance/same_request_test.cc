// Law I5 on seeded random models: the same request gives the same tokens, logits and page bytes,
// whatever shares its batch, however its prompt was chunked, on any number of threads, wherever its
// pages lie.
#include <gtest/gtest.h>

#include <string>

#include "model/random_model.h"
#include "tests/invariance/workload.h"

namespace kvrm::testing {
namespace {

struct Case {
  DType linear_type = DType::kQ4_1;
  WeightChoice weights = WeightChoice::kAuto;
  KvFormat kv = KvFormat::kF16;
  uint32_t kv_heads = 2;
  uint32_t window = 0;  // of every other layer
};

class TestModel {
 public:
  explicit TestModel(const Case& c) : case_(c) {
    RandomModelSpec spec;
    spec.seed = 7 + static_cast<uint64_t>(c.linear_type);
    spec.hidden = 128;
    spec.heads = 4;
    spec.kv_heads = c.kv_heads;
    spec.head_dim = 32;
    spec.ffn = 160;
    spec.vocab = kVocab;
    spec.context = 1024;
    spec.linear_type = c.linear_type;
    spec.layers = c.window > 0 ? 4 : spec.layers;
    spec.window = c.window;
    spec.full_every = 2;
    bytes_ = WriteRandomModel(spec);
    auto file = GgufFile::Parse(bytes_, "random");
    EXPECT_TRUE(file.ok());
    file_ = std::move(file).value();
  }

  RuntimeOptions Options() const {
    RuntimeOptions options;
    options.weights = case_.weights;
    options.kv_format = case_.kv;
    options.kv_bytes = uint64_t{64} << 20;
    options.num_threads = 2;
    options.validate_each_step = true;
    options.poison_freed = true;
    options.protect_program = true;
    return options;
  }

  const GgufFile& file() const { return *file_; }

  std::unique_ptr<Runtime> Load(const RuntimeOptions& options) const {
    auto runtime = LoadRuntime(*file_, options);
    EXPECT_TRUE(runtime.ok()) << (runtime.ok() ? "" : runtime.error().message);
    return std::move(runtime).value();
  }

 private:
  Case case_;
  std::vector<std::byte> bytes_;
  std::unique_ptr<const GgufFile> file_;
};

// Three requests that are watched: one token, a page border, more than a chunk of 256.
std::vector<WorkItem> Watched() {
  std::mt19937_64 random(99);
  std::vector<WorkItem> items;
  for (const uint32_t length : {1u, 33u, 300u}) {
    WorkItem item;
    item.prompt = RandomPrompt(random, kVocab, length);
    item.max_new_tokens = 20;
    item.temperature = length == 33 ? 1.0f : 0.0f;
    item.seed = length;
    items.push_back(item);
  }
  return items;
}

std::vector<Recording> Solo(const TestModel& model) {
  std::vector<Recording> solo;
  for (const WorkItem& item : Watched()) {
    RuntimeOptions options = model.Options();
    options.num_threads = 1;
    const auto runtime = model.Load(options);
    solo.push_back(RunWorkload(*runtime, {item}).front());
  }
  return solo;
}

std::vector<WorkItem> Crowd(uint64_t seed, size_t size) {
  std::mt19937_64 random(seed);
  std::vector<WorkItem> items = Watched();
  for (WorkItem& item : items) item.arrival_step = static_cast<uint32_t>(random() % 10);
  while (items.size() < size) items.push_back(RandomItem(random, kVocab, 200, 30, 25));
  return items;
}

// A pool that a few requests fill, with a group for each kind of layer.
uint64_t SmallPoolBytes(const Case& c) {
  const uint64_t kib = c.kv == KvFormat::kInt8 ? 512 : 1024;
  return (c.window > 0 ? 2 * kib + kib / 2 : kib) << 10;
}

class SameRequest : public ::testing::TestWithParam<Case> {};

TEST_P(SameRequest, AloneAndAmong31Others) {
  const TestModel model(GetParam());
  const std::vector<Recording> solo = Solo(model);
  for (const uint32_t threads : {1u, 2u}) {
    RuntimeOptions options = model.Options();
    options.num_threads = threads;
    const auto runtime = model.Load(options);
    Recorder::Seen seen;
    const std::vector<Recording> crowd = RunWorkload(*runtime, Crowd(threads, 32), &seen);
    EXPECT_GE(seen.most_slots, 8u);
    EXPECT_GE(seen.mixed_steps, 5u);
    for (size_t i = 0; i < solo.size(); ++i) ExpectSame(solo[i], crowd[i], "crowd");
  }
}

TEST_P(SameRequest, WhateverTheChunk) {
  const TestModel model(GetParam());
  const std::vector<Recording> solo = Solo(model);
  for (const uint32_t chunk : {1u, 7u, 64u}) {
    RuntimeOptions options = model.Options();
    options.chunk_rows = chunk;
    const auto runtime = model.Load(options);
    const std::vector<Recording> chunked = RunWorkload(*runtime, Crowd(chunk, 8));
    for (size_t i = 0; i < solo.size(); ++i) ExpectSame(solo[i], chunked[i], "chunk");
  }
}

TEST_P(SameRequest, AfterTwoHundredOthersRecycledThePages) {
  const TestModel model(GetParam());
  const std::vector<Recording> solo = Solo(model);
  RuntimeOptions options = model.Options();
  options.kv_bytes = SmallPoolBytes(GetParam());
  const auto runtime = model.Load(options);
  std::mt19937_64 random(5);
  std::vector<WorkItem> others;
  while (others.size() < 200) others.push_back(RandomItem(random, kVocab, 100, 10, 300));
  RunWorkload(*runtime, others);
  // Every page of the pool has had an owner, most of them many.
  const PagerCounters counters = runtime->engine->pager().counters();
  EXPECT_GT(counters.pages_returned, 3 * runtime->engine->pager().books(0).total);
  const std::vector<Recording> after = RunWorkload(*runtime, Watched());
  for (size_t i = 0; i < solo.size(); ++i) ExpectSame(solo[i], after[i], "recycled");
}

TEST_P(SameRequest, WhateverOfItWasCached) {
  const TestModel model(GetParam());
  const std::vector<Recording> solo = Solo(model);
  const auto runtime = model.Load(model.Options());
  RunWorkload(*runtime, Crowd(3, 8));  // the watched prompts among them
  const std::vector<Recording> cached = RunWorkload(*runtime, Watched());
  EXPECT_GT(runtime->engine->Metrics().sched.cached_tokens, 0u);
  for (size_t i = 0; i < solo.size(); ++i) ExpectSame(solo[i], cached[i], "cached");
}

TEST_P(SameRequest, WithNoTwoAdjacentPages) {
  const TestModel model(GetParam());
  const std::vector<Recording> solo = Solo(model);
  RuntimeOptions options = model.Options();
  options.scatter_seed = 11;
  const auto runtime = model.Load(options);
  const std::vector<Recording> scattered = RunWorkload(*runtime, Watched());
  for (size_t i = 0; i < solo.size(); ++i) ExpectSame(solo[i], scattered[i], "scattered");
}

// A pool that holds a fraction of what runs: the watched requests are preempted, or those beside
// them, and computed again.
TEST_P(SameRequest, WhetherItWasPreempted) {
  const TestModel model(GetParam());
  const std::vector<Recording> solo = Solo(model);
  RuntimeOptions options = model.Options();
  options.kv_bytes = SmallPoolBytes(GetParam()) / 4 * 3;
  options.ctx = 330;
  const auto runtime = model.Load(options);
  std::vector<WorkItem> items = Watched();
  std::mt19937_64 random(41);
  for (uint32_t i = 0; i < 12; ++i) {
    WorkItem item;
    item.prompt = RandomPrompt(random, kVocab, 20);
    item.max_new_tokens = 200;
    items.push_back(item);
  }
  Recorder::Seen seen;
  const std::vector<Recording> crowded = RunWorkload(*runtime, items, &seen);
  EXPECT_GT(seen.preempted, 0u);
  for (size_t i = 0; i < solo.size(); ++i) ExpectSame(solo[i], crowded[i], "preempted");
}

TEST_P(SameRequest, OnEveryMachine) {
  const TestModel model(GetParam());
  const std::vector<Recording> solo = Solo(model);
  for (const SimdLevel level :
       {SimdLevel::kPortable, SimdLevel::kAvx2, SimdLevel::kAvx512, SimdLevel::kAmx}) {
    RuntimeOptions options = model.Options();
    options.simd = level;
    auto loaded = LoadRuntime(model.file(), options);
    if (!loaded.ok()) continue;  // this CPU does not offer it; the portable level always loads
    const std::vector<Recording> other = RunWorkload(**loaded, Watched());
    for (size_t i = 0; i < solo.size(); ++i) ExpectSame(solo[i], other[i], "simd level");
  }
}

std::string CaseName(const ::testing::TestParamInfo<Case>& param) {
  static const char* const kNames[] = {"Q4_1_f16",     "Q8_0_f16",         "Q4_0_f32",
                                       "F16_as_f32",   "Q4_1_int8",        "Q8_0_int8",
                                       "Q4_1_windows", "Q8_0_int8_windows"};
  return kNames[param.index];
}

INSTANTIATE_TEST_SUITE_P(
    Encodings, SameRequest,
    ::testing::Values(Case{DType::kQ4_1, WeightChoice::kAuto, KvFormat::kF16, 2},
                      Case{DType::kQ8_0, WeightChoice::kAuto, KvFormat::kF16, 4},
                      Case{DType::kQ4_0, WeightChoice::kAuto, KvFormat::kF32, 1},
                      Case{DType::kF16, WeightChoice::kF32, KvFormat::kF32, 2},
                      Case{DType::kQ4_1, WeightChoice::kAuto, KvFormat::kInt8, 2},
                      Case{DType::kQ8_0, WeightChoice::kAuto, KvFormat::kInt8, 4},
                      Case{DType::kQ4_1, WeightChoice::kAuto, KvFormat::kF16, 2, 40},
                      Case{DType::kQ8_0, WeightChoice::kAuto, KvFormat::kInt8, 4, 24}),
    CaseName);

// The scatter hook does what it says: as many read runs as pages.
TEST(ScatterHook, EveryPageIsARunOfItsOwn) {
  const TestModel model(Case{});
  RuntimeOptions options = model.Options();
  options.scatter_seed = 3;
  const auto runtime = model.Load(options);
  std::mt19937_64 random(1);
  WorkItem item;
  item.prompt = RandomPrompt(random, kVocab, 200);
  item.max_new_tokens = 40;
  Recorder::Seen seen;
  RunWorkload(*runtime, {item}, &seen);
  EXPECT_EQ(seen.most_runs, 15u);
  EXPECT_EQ(seen.pages_of_most_runs, 15u);
}

}  // namespace
}  // namespace kvrm::testing
