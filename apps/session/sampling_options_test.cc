#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "session/session.h"

namespace kvrm::cli {
namespace {

OptionValues Parse(CommandBit command, const std::vector<std::string>& args) {
  auto values = ParseOptions(command, args, [](const std::string&) { return nullptr; });
  EXPECT_TRUE(values.ok()) << values.error().message;
  return std::move(values).value();
}

// `kvrm help` prints the table's defaults, requests get the struct's.
TEST(SamplingOptions, TheTablesDefaultsAreThoseOfTheStruct) {
  const SamplingParams defaults;
  for (const CommandBit command : {kChat, kGenerate, kServe, kBatch}) {
    const OptionValues values = Parse(command, {});
    EXPECT_EQ(static_cast<float>(values.Float("temp")), defaults.temperature);
    EXPECT_EQ(static_cast<uint32_t>(values.Int("top-k")), defaults.top_k);
    EXPECT_EQ(static_cast<float>(values.Float("top-p")), defaults.top_p);
    EXPECT_EQ(static_cast<float>(values.Float("min-p")), defaults.min_p);
    EXPECT_EQ(static_cast<float>(values.Float("typical")), defaults.typical_p);
    EXPECT_EQ(static_cast<float>(values.Float("repeat-penalty")), defaults.repetition_penalty);
    EXPECT_EQ(static_cast<uint32_t>(values.Int("repeat-last-n")), defaults.repetition_last_n);
    EXPECT_EQ(static_cast<float>(values.Float("presence-penalty")), defaults.presence_penalty);
    EXPECT_EQ(static_cast<float>(values.Float("frequency-penalty")), defaults.frequency_penalty);
  }
}

TEST(SamplingOptions, OnlyWhatTheUserSetChangesTheBase) {
  SamplingParams base;
  base.temperature = 0.25f;
  base.top_k = 7;
  base.repetition_last_n = 11;
  const auto sampling =
      SamplingOf(Parse(kServe, {"--top-k", "40", "--repeat-last-n", "-1", "-l", "5-1.5"}), base);
  ASSERT_TRUE(sampling.ok()) << sampling.error().message;
  EXPECT_EQ(sampling->temperature, 0.25f);
  EXPECT_EQ(sampling->top_k, 40u) << "the table's default, and yet the user said it";
  EXPECT_EQ(sampling->repetition_last_n, 4294967295u);
  ASSERT_EQ(sampling->logit_bias.size(), 1u);
  EXPECT_EQ(sampling->logit_bias[0].bias, -1.5f);
}

}  // namespace
}  // namespace kvrm::cli
