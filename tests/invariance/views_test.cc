// Layers with windows, the model's own and a view's: law I5 in all modes, and what `--view
// sliding:W` is: the model that asks for that window.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/invariance/mode_model.h"

namespace kvrm::testing {
namespace {

constexpr uint32_t kWindow = 64;

std::vector<std::byte> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  const std::vector<char> chars(std::istreambuf_iterator<char>(file), {});
  const auto* bytes = reinterpret_cast<const std::byte*>(chars.data());
  return {bytes, bytes + chars.size()};
}

class WindowedModes : public ::testing::TestWithParam<KvFormat> {};

// Of a Gemma: most layers have a window, some see everything. Of a Mistral: all have one.
TEST_P(WindowedModes, SameTokensLogitsAndPageBytesOverRandomSchedules) {
  for (const uint32_t full_every : {3u, 0u}) {
    const ModeModel model(GetParam(), kWindow + 8, full_every);
    ExpectSameInAllModes(model, ModeSchedule(model, 7 + full_every));
    if (HasFailure()) return;
  }
}

TEST_P(WindowedModes, SameUnderAView) {
  const ModeModel model(GetParam());
  const std::vector<WorkItem> items = ModeSchedule(model, 11);
  const std::vector<Recording> viewed = ExpectSameInAllModes(model, items, "sliding:64");
  const std::vector<Recording> dense = RunWorkload(*model.Load(model.Options(Mode::kKvrm)), items);
  uint32_t others = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].cancel_step >= 0) continue;
    const bool outgrows = items[i].prompt.size() + items[i].max_new_tokens > kWindow + 1;
    const bool same = dense[i].logits.size() == viewed[i].logits.size() &&
                      std::memcmp(dense[i].logits.data(), viewed[i].logits.data(),
                                  dense[i].logits.size() * sizeof(float)) == 0;
    EXPECT_EQ(same, !outgrows) << "request " << i;  // exact until something left the window
    others += same ? 0 : 1;
  }
  EXPECT_GE(others, 3u);
}

INSTANTIATE_TEST_SUITE_P(Formats, WindowedModes, ::testing::Values(KvFormat::kF16, KvFormat::kInt8),
                         [](const auto& kv) {
                           return kv.param == KvFormat::kF16 ? "f16" : "int8";
                         });

class GoldenModes : public ::testing::TestWithParam<const char*> {};

// The families that have windows, as they are, soft caps and norms and local frequencies included.
TEST_P(GoldenModes, SameTokensLogitsAndPageBytesOverRandomSchedules) {
  const std::string folder = std::string(KVRM_SOURCE_DIR) + "/tests/data/golden/" + GetParam();
  const ModeModel model(ReadFile(folder + "/model.gguf"), KvFormat::kF16);
  ExpectSameInAllModes(model, ModeSchedule(model, 3));
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenModes, ::testing::Values("mistral", "gemma2", "gemma3"),
                         [](const auto& family) { return std::string(family.param); });

TEST(Views, AreTheModelThatAsksForThatWindow) {
  for (const KvFormat kv : {KvFormat::kF32, KvFormat::kInt8}) {
    const ModeModel asks(kv, kWindow), has_all(kv, ModeModel::kRandomContext);
    const std::vector<WorkItem> items = ModeSchedule(asks, 5);
    RuntimeOptions options = has_all.Options(Mode::kKvrm);
    options.view = "sliding:64";
    const auto viewed = has_all.Load(options), asked = asks.Load(asks.Options(Mode::kKvrm));
    EXPECT_EQ(viewed->engine->config().lossy_view, "sliding:64");
    EXPECT_EQ(asked->engine->config().lossy_view, "");
    const auto a = RunWorkload(*asked, items), b = RunWorkload(*viewed, items);
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i].cancel_step < 0) ExpectSame(a[i], b[i], "view");
    }
    EXPECT_EQ(viewed->engine->Metrics().pager.slid_pages,
              asked->engine->Metrics().pager.slid_pages);
    EXPECT_GT(viewed->engine->Metrics().pager.slid_pages, 0u);
  }
}

TEST(Views, OfAModelThatAsksForThemAreExact) {
  const ModeModel model(KvFormat::kF16, kWindow);
  RuntimeOptions options = model.Options(Mode::kKvrm);
  options.view = "sliding:64";
  EXPECT_EQ(model.Load(options)->engine->config().lossy_view, "");
  options.view = "sliding:80";
  EXPECT_EQ(model.Load(options)->engine->config().lossy_view, "");
}

TEST(Views, AreRefusedWithTheLimit) {
  const ModeModel model(KvFormat::kF16);
  RuntimeOptions options = model.Options(Mode::kKvrm);
  options.view = "sliding:100";
  const auto refused = model.TryLoad(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "view 'sliding:100': a window of 100 tokens, must be a multiple of a page, 16");
}

// What the view is for: the pages of a sequence are those of its window, however long it is, and so
// a pool holds more of them.
TEST(Views, WhatIsOlderThanTheWindowLeavesMemory) {
  const ModeModel model(KvFormat::kF16);
  std::mt19937_64 random(9);
  const std::vector<WorkItem> items = {
      {.prompt = RandomPrompt(random, model.vocab(), 500), .max_new_tokens = 60}};
  uint64_t most[2] = {};
  for (const bool sliding : {false, true}) {
    RuntimeOptions options = model.Options(Mode::kKvrm);
    options.chunk_rows = 16;
    if (sliding) options.view = "sliding:64";
    const auto runtime = model.Load(options);
    Recorder::Seen seen;
    RunWorkload(*runtime, items, &seen);
    most[sliding ? 1 : 0] = seen.most_pages;
  }
  EXPECT_EQ(most[0], 35u);  // 559 places
  EXPECT_LE(most[1], 6u);   // 64 places and a chunk, wherever they begin within a page
}

}  // namespace
}  // namespace kvrm::testing
