// Law I5 across the modes: the same schedule gives the same tokens, logits and page bytes however
// keys and values lie in memory, whatever of them a step reads beside what rows see, and however
// many rows it computes beside the live ones.
#include <gtest/gtest.h>

#include <string>

#include "tests/invariance/mode_model.h"

namespace kvrm::testing {
namespace {

constexpr uint32_t kCtx = ModeModel::kRandomContext, kSlots = ModeModel::kSlots;

class Modes : public ::testing::TestWithParam<KvFormat> {};

TEST_P(Modes, SameTokensLogitsAndPageBytesOverRandomSchedules) {
  const ModeModel model(GetParam());
  for (const uint64_t seed : {1u, 2u}) ExpectSameInAllModes(model, ModeSchedule(model, seed));
}

INSTANTIATE_TEST_SUITE_P(Formats, Modes,
                         ::testing::Values(KvFormat::kF32, KvFormat::kF16, KvFormat::kInt8),
                         [](const auto& kv) {
                           return kv.param == KvFormat::kF32   ? "f32"
                                  : kv.param == KvFormat::kF16 ? "f16"
                                                               : "int8";
                         });

uint64_t PagesOf(uint64_t tokens) { return (tokens + 15) / 16; }

TEST(SlotRuns, AllPagesAreReservedOnceAndNoneMovesAfterwards) {
  const ModeModel model(KvFormat::kF16);
  for (const Mode mode :
       {Mode::kStaticLazy, Mode::kStaticLive, Mode::kStaticBucket, Mode::kStaticFull}) {
    const auto runtime = model.Load(model.Options(mode));
    Engine& engine = *runtime->engine;
    const uint64_t reserved = kSlots * PagesOf(kCtx) + 1;  // and the null page
    EXPECT_EQ(engine.Metrics().books.in_use, reserved);
    const PagerCounters before = engine.Metrics().pager;
    RunWorkload(*runtime, ModeSchedule(model, 3));
    const PagerCounters after = engine.Metrics().pager;
    EXPECT_EQ(engine.Metrics().books.in_use, reserved);
    EXPECT_EQ(after.pages_taken, before.pages_taken);
    EXPECT_EQ(after.pages_returned, 0u);
    EXPECT_EQ(after.superblocks_populated, before.superblocks_populated);
    EXPECT_EQ(engine.Metrics().sched.deferred, 0u);
    EXPECT_EQ(engine.Metrics().sched.preempted, 0u);
  }
}

TEST(SlotRuns, ASlotsPagesAreOneRun) {
  const ModeModel model(KvFormat::kF16);
  const auto runtime = model.Load(model.Options(Mode::kStaticLive));
  const PagerSnapshot snapshot = runtime->engine->pager().Snapshot();
  ASSERT_EQ(snapshot.groups[0].sequences.size(), kSlots);
  for (const auto& sequence : snapshot.groups[0].sequences) {
    ASSERT_EQ(sequence.pages.size(), PagesOf(kCtx));
    for (size_t i = 1; i < sequence.pages.size(); ++i) {
      ASSERT_EQ(sequence.pages[i], sequence.pages[i - 1] + 1) << "slot " << sequence.slot;
    }
  }
}

// The pages of mode `pager` are taken one by one: sequences that grow in turns share superblocks
// page by page, where placement keeps them apart.
TEST(PagerMode, PagesAreTakenOneByOne) {
  const ModeModel model(KvFormat::kF16);
  std::vector<WorkItem> items;
  std::mt19937_64 random(5);
  for (uint32_t i = 0; i < kSlots; ++i) {
    items.push_back({.prompt = RandomPrompt(random, kVocab, 17), .max_new_tokens = 120});
  }
  uint32_t runs[2];
  for (const Mode mode : {Mode::kKvrm, Mode::kPager}) {
    Recorder::Seen seen;
    RunWorkload(*model.Load(model.Options(mode)), items, &seen);
    runs[mode == Mode::kPager ? 1 : 0] = seen.most_runs;
  }
  EXPECT_LE(runs[0], 4u);
  EXPECT_GE(runs[1], 8u);
}

TEST(SlotRuns, MemoryOfAnEndedRequestReadsAsZerosInLazyModeAlone) {
  const ModeModel model(KvFormat::kF16);
  std::mt19937_64 random(6);
  const std::vector<WorkItem> items = {
      {.prompt = RandomPrompt(random, kVocab, 500), .max_new_tokens = 2}};
  for (const Mode mode : {Mode::kStaticLazy, Mode::kStaticLive}) {
    const auto runtime = model.Load(model.Options(mode));
    RunWorkload(*runtime, items);
    Pager& pager = runtime->engine->pager();
    uint64_t written = 0;  // bytes that are not zero, of the pages that the request had
    const PagerSnapshot snapshot = pager.Snapshot();
    const KvGroupGeometry& group = pager.geometry().groups[0];
    const auto& pages = snapshot.groups[0].sequences.back().pages;  // the run that is taken first
    for (size_t i = 8; i < 30; ++i) {  // not those that share an OS page with a neighbour's
      const std::byte* at = pager.base(0) + group.PageOffset(PageId{pages[i]});
      for (uint64_t b = 0; b < group.part_page_bytes; ++b) written += at[b] != std::byte{0};
    }
    EXPECT_EQ(written > 0, mode == Mode::kStaticLive) << TraitsOf(mode).name;
  }
}

TEST(ModeOptions, WhatUndoesAModeIsRefusedWithTheArithmetic) {
  const ModeModel model(KvFormat::kF16);
  const auto message = [&](const RuntimeOptions& options) {
    const auto runtime = model.TryLoad(options);
    return runtime.ok() ? std::string("loaded") : runtime.error().message;
  };
  RuntimeOptions options = model.Options(Mode::kStaticFull);
  options.prefix_cache = true;
  EXPECT_NE(message(options).find("each of its 6 slots keeps pages of its own"), std::string::npos);

  options = model.Options(Mode::kPager);
  options.scatter_seed = 4;
  EXPECT_NE(message(options).find("scatter_seed 4"), std::string::npos);

  options = model.Options(Mode::kDynamic);
  options.strict_shape = true;
  EXPECT_NE(message(options).find("strict_shape"), std::string::npos);

  // 6 x 600 tokens do not fit what holds one such sequence in the default mode.
  options = model.Options(Mode::kStaticLive);
  options.kv_bytes = 512 << 10;
  const std::string refused = message(options);
  EXPECT_NE(refused.find("slots x ctx: 6 x 600 tokens"), std::string::npos) << refused;
  EXPECT_NE(refused.find("are reserved at start"), std::string::npos) << refused;
  options.mode = Mode::kKvrm;
  EXPECT_EQ(message(options), "loaded");
  // Without a ctx of its own a slot gets its share.
  options.mode = Mode::kStaticLive;
  options.ctx = 0;
  const auto runtime = model.TryLoad(options);
  ASSERT_TRUE(runtime.ok()) << runtime.error().message;
  EXPECT_EQ((*runtime)->ctx % 16, 0u);
  EXPECT_LE(uint64_t{kSlots} * (*runtime)->ctx, (*runtime)->engine->kv_tokens());
  EXPECT_GT(uint64_t{kSlots} * ((*runtime)->ctx + 32), (*runtime)->engine->kv_tokens());
}

}  // namespace
}  // namespace kvrm::testing
