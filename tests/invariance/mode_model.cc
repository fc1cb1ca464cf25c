#include "tests/invariance/mode_model.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/check.h"
#include "model/config.h"

namespace kvrm::testing {

ModeModel::ModeModel(std::vector<std::byte> bytes, KvFormat kv)
    : kv_(kv), bytes_(std::move(bytes)) {
  auto file = GgufFile::Parse(bytes_, "model");
  KVRM_CHECK(file.ok(), "a test's model is a model");
  file_ = std::move(file).value();
  const auto config = ReadConfig(*file_);
  KVRM_CHECK(config.ok(), "a test's model is one that is offered");
  vocab_ = config->vocab;
  context_ = config->max_context;
}

std::vector<std::byte> ModeModel::RandomBytes(uint32_t window, uint32_t full_every) {
  RandomModelSpec spec;
  spec.seed = 21;
  spec.layers = window == 0 ? 2 : 3;
  spec.hidden = 64;
  spec.heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = 16;
  spec.ffn = 96;
  spec.vocab = 320;
  spec.context = kRandomContext;
  spec.window = window;
  spec.full_every = full_every;
  spec.linear_type = DType::kQ8_0;
  return WriteRandomModel(spec);
}

RuntimeOptions ModeModel::Options(Mode mode) const {
  RuntimeOptions options;
  options.mode = mode;
  options.kv_format = kv_;
  options.kv_bytes = uint64_t{16} << 20;
  options.max_slots = kSlots;
  options.ctx = context_;
  options.num_threads = 2;
  options.max_itl_us = 0;
  options.prefix_cache = false;
  options.validate_each_step = true;
  options.poison_freed = true;
  options.protect_program = true;
  return options;
}

std::unique_ptr<Runtime> ModeModel::Load(const RuntimeOptions& options) const {
  auto runtime = TryLoad(options);
  KVRM_CHECK(runtime.ok(), runtime.ok() ? "" : runtime.error().message.c_str());
  return std::move(runtime).value();
}

std::vector<WorkItem> ModeSchedule(const ModeModel& model, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<WorkItem> items;
  const uint32_t context = model.context();
  for (uint32_t i = 0; i < 14; ++i) {
    const uint32_t longest = i % 5 == 0 ? context * 9 / 10 : context * 15 / 100;
    items.push_back(RandomItem(random, model.vocab(), longest, context / 25, 30));
  }
  return items;
}

namespace {

struct Variant {
  std::string name;
  Mode mode = Mode::kKvrm;
  bool strict_shape = false;
};

std::vector<Variant> AllVariants() {
  std::vector<Variant> runs;
  for (const ModeTraits& mode : AllModes()) {
    runs.push_back({std::string(mode.name), mode.mode, false});
    if (!mode.exact_shapes) runs.push_back({std::string(mode.name) + ", strict", mode.mode, true});
  }
  return runs;
}

}  // namespace

std::vector<Recording> ExpectSameInAllModes(const ModeModel& model,
                                            const std::vector<WorkItem>& items,
                                            const std::string& view) {
  std::vector<Recording> first;
  for (const Variant& run : AllVariants()) {
    RuntimeOptions options = model.Options(run.mode);
    options.strict_shape = run.strict_shape;
    options.view = view;
    const auto runtime = model.Load(options);
    const std::vector<Recording> seen = RunWorkload(*runtime, items);
    const EngineMetrics metrics = runtime->engine->Metrics();
    EXPECT_EQ(metrics.exec.hash_mismatches, 0u) << run.name;
    EXPECT_EQ(metrics.exec.programs_planned > 0, run.mode == Mode::kDynamic) << run.name;
    EXPECT_EQ(metrics.exec.rows_computed > metrics.exec.rows, run.strict_shape) << run.name;
    if (first.empty()) first = seen;
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i].cancel_step >= 0) continue;  // it ends where its cancel finds it
      ExpectSame(first[i], seen[i], run.name.c_str());
    }
    if (::testing::Test::HasFailure()) return first;
  }
  return first;
}

}  // namespace kvrm::testing
