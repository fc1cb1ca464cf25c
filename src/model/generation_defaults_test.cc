#include "model/generation_defaults.h"

#include <gtest/gtest.h>

#include "model/model_test_support.h"

namespace kvrm::testing {
namespace {

Result<GenerationDefaults> DefaultsOf(const EditedModel& model) {
  const MemoryFile memory = model.Open();
  return ReadGenerationDefaults(*memory.file);
}

TEST(GenerationDefaults, KeysOfAFileAreReadAndWhatItLeavesOutStaysEmpty) {
  const auto none = DefaultsOf(EditedModel({}));
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->temperature || none->top_k || none->top_p || none->min_p ||
               none->repetition_penalty);
  EditedModel model({});
  model.Set("general.sampling.temp", 0.5).Set("general.sampling.top_k", uint64_t{20});
  model.Set("general.sampling.top_p", 0.25).Set("general.sampling.penalty_repeat", 2.0);
  const auto defaults = DefaultsOf(model);
  ASSERT_TRUE(defaults.ok()) << defaults.error().message;
  EXPECT_EQ(defaults->temperature, 0.5f);
  EXPECT_EQ(defaults->top_k, 20u);
  EXPECT_EQ(defaults->top_p, 0.25f);
  EXPECT_EQ(defaults->repetition_penalty, 2.0f);
  EXPECT_FALSE(defaults->min_p);
}

TEST(GenerationDefaults, AKeyOfAnotherTypeIsNamed) {
  for (const char* key : {"general.sampling.temp", "general.sampling.top_k"}) {
    const auto defaults = DefaultsOf(EditedModel({}).Set(key, std::string("high")));
    ASSERT_FALSE(defaults.ok()) << key;
    EXPECT_NE(defaults.error().message.find(key), std::string::npos) << defaults.error().message;
  }
}

TEST(GenerationDefaults, AHubsFieldsBecomeTheKeysOfFiles) {
  const auto keys = ReadHubGeneration(
      R"({"temperature": 1, "top_k": -1, "min_p": 0.5, "top_p": null, "eos_token_id": [2, 5]})");
  ASSERT_TRUE(keys.ok()) << keys.error().message;
  ASSERT_EQ(keys->size(), 4u);
  EXPECT_EQ((*keys)[0].first, "general.sampling.temp");
  EXPECT_EQ(std::get<double>((*keys)[0].second.data), 1.0);
  EXPECT_EQ((*keys)[1].first, "general.sampling.min_p");
  EXPECT_EQ(std::get<int64_t>((*keys)[2].second.data), -1) << "off";
  EXPECT_EQ(std::get<IntegerList>((*keys)[3].second.data).ToVector(), (std::vector<int64_t>{2, 5}));
}

}  // namespace
}  // namespace kvrm::testing
