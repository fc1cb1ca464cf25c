// Gemma 3 270M as people have it (Q4_K_M; tools/get-model gemma3-270m): two KV groups, two RoPE
// bases, types of five kinds in one file. Opt-in, because of its terms: absent, it is skipped in CI
// too.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "base/test_data.h"
#include "exec/test_stack.h"
#include "model/config.h"
#include "model/gguf.h"
#include "text/tokenizer.h"

namespace kvrm::testing {
namespace {

std::string GemmaPath() {
  return std::filesystem::path(DefaultModelPath()).parent_path() / "gemma-3-270m-q4_k_m.gguf";
}

// "The capital of France is", with the beginning of a text before it.
const std::vector<TokenId> kIds = {2, 818, 5279, 529, 7001, 563};
// The three likeliest ids after it, as an independent f32 implementation gives them.
struct Likely {
  TokenId id;
  float logit;
};
constexpr Likely kTop[] = {{506, 19.0915f}, {496, 18.5476f}, {9079, 18.2686f}};

std::vector<float> LogitsAfterIds(WeightChoice weights, KvFormat kv) {
  TestStackConfig config;
  config.model_path = GemmaPath();
  config.spec.context = 1024;
  config.load.weights = weights;
  config.load.num_threads = 2;
  config.kv_format = kv;
  config.kv_bytes = uint64_t{64} << 20;
  TestStack stack(config);
  EXPECT_EQ(stack.geometry().groups.size(), 2u);
  const SeqId seq = stack.Open();
  return stack.Logits(stack.Step({{seq, kIds}}), 0);
}

std::vector<TokenId> TopThree(const std::vector<float>& logits) {
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::partial_sort(ids.begin(), ids.begin() + 3, ids.end(), [&](TokenId a, TokenId b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  ids.resize(3);
  return ids;
}

// The first `ordered` in their order, all three near.
void ExpectTop(const std::vector<float>& logits, size_t ordered, float tolerance) {
  const std::vector<TokenId> top = TopThree(logits);
  for (size_t i = 0; i < 3; ++i) {
    if (i < ordered) {
      EXPECT_EQ(top[i], kTop[i].id);
    }
    EXPECT_NEAR(logits[static_cast<size_t>(kTop[i].id)], kTop[i].logit, tolerance);
  }
}

TEST(RealGemma3, ItsTokenizerGivesTheIdsOfItsMakers) {
  if (!Exists(GemmaPath())) GTEST_SKIP() << "not installed: " << GemmaPath();
  const auto file = GgufFile::Open(GemmaPath());
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto tokenizer = Tokenizer::Create(ReadTokenizerSpec(**file).value());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  std::vector<TokenId> ids =
      (*tokenizer)->Encode("The capital of France is", SpecialTokens::kAsText);
  AddStartToken(**tokenizer, ids);
  EXPECT_EQ(ids, kIds);
}

TEST(RealGemma3, TopLogitsAreThoseOfTheF32Reference) {
  if (!Exists(GemmaPath())) GTEST_SKIP() << "not installed: " << GemmaPath();
  ExpectTop(LogitsAfterIds(WeightChoice::kF32, KvFormat::kF32), 3, 2e-3f);
}

// What --weights auto holds of it, q8. The fourth lies 0.1 behind the third.
TEST(RealGemma3, TopLogitsOfTheDefaultEncodingAreNear) {
  if (!Exists(GemmaPath())) GTEST_SKIP() << "not installed: " << GemmaPath();
  ExpectTop(LogitsAfterIds(WeightChoice::kAuto, KvFormat::kF16), 2, 0.25f);
}

}  // namespace
}  // namespace kvrm::testing
