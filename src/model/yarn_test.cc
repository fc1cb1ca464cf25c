// Long-context files of Qwen and others: both spellings reach the rotation as YaRN has it (B065).
// What a model computes with it is held to PyPI transformers in tests/golden (qwen2_yarn).
#include "model/yarn.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/config.h"
#include "model/hub_config.h"
#include "model/model_test_support.h"

namespace kvrm {
namespace {

using testing::EditedModel;
using testing::MemoryFile;

// 4 layers, heads of 16, a context of 256.
EditedModel YarnModel() {
  return EditedModel(RandomModelSpec{})
      .Set("llama.rope.scaling.type", std::string("yarn"))
      .Set("llama.rope.scaling.factor", 4.0)
      .Set("llama.rope.scaling.original_context_length", uint64_t{32});
}

Result<ModelConfig> ConfigOf(const EditedModel& model) {
  const MemoryFile memory = model.Open();
  EXPECT_TRUE(memory.file) << memory.error;
  return ReadConfig(*memory.file);
}

void ExpectRefused(const EditedModel& model, const std::string& part) {
  const auto config = ConfigOf(model);
  ASSERT_FALSE(config.ok()) << "accepted, not: " << part;
  EXPECT_NE(config.error().message.find(part), std::string::npos) << config.error().message;
}

// Qwen 2.5: 128 dimensions, base 10^6, 32,768 tokens times 4. Pair 23 turns 32 times, pair 40 once.
TEST(Yarn, FastPairsStayAndSlowOnesAreDividedByTheFactor) {
  const auto divisors = YarnDivisors({.factor = 4, .original_context = 32'768}, 1e6, 128);
  ASSERT_EQ(divisors.size(), 64u);
  for (size_t pair = 0; pair <= 23; ++pair) EXPECT_EQ(divisors[pair], 1.0f) << pair;
  for (size_t pair = 40; pair < 64; ++pair) EXPECT_EQ(divisors[pair], 4.0f) << pair;
  for (size_t pair = 24; pair <= 40; ++pair) EXPECT_GT(divisors[pair], divisors[pair - 1]) << pair;
  EXPECT_FLOAT_EQ(divisors[30], 1.4468085f);  // 1 / (7/17 / 4 + 10/17)
}

TEST(Yarn, CosinesGrowWithTheLogarithmOfTheFactor) {
  EXPECT_EQ(YarnAmplitude(1), 1.0);
  EXPECT_EQ(YarnAmplitude(0.5), 1.0);
  EXPECT_DOUBLE_EQ(YarnAmplitude(4), 1.1386294361119891);
  EXPECT_DOUBLE_EQ(YarnAmplitude(4, 0.5), 1.0693147180559945);
}

TEST(B065, YarnReachesTheRotationAndTheContextGrowsWithIt) {
  const auto config = ConfigOf(YarnModel());
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->rope.factors, (std::vector<float>{1, 1.6f, 4, 4, 4, 4, 4, 4}));
  EXPECT_DOUBLE_EQ(config->rope.amplitude, 1.1386294361119891);
  EXPECT_EQ(config->max_context, 256u) << "4 * 32 is less";
  const auto longer =
      ConfigOf(YarnModel().Set("llama.rope.scaling.original_context_length", uint64_t{256}));
  EXPECT_EQ(longer->max_context, 1024u);
  // A file that does not say what it was trained with means context_length, and grows no further.
  const auto trained = ConfigOf(YarnModel().Remove("llama.rope.scaling.original_context_length"));
  EXPECT_EQ(trained->max_context, 256u);
  EXPECT_EQ(trained->rope.factors, longer->rope.factors);
  const auto scaled = ConfigOf(YarnModel().Set("llama.rope.scaling.attn_factor", 0.5));
  EXPECT_DOUBLE_EQ(scaled->rope.amplitude, 0.5 * 1.1386294361119891);
}

TEST(B065, YarnThatWouldBeReadWrongIsRefusedByKey) {
  const auto with = [](const char* key, auto value) { return YarnModel().Set(key, value); };
  ExpectRefused(YarnModel().Remove("llama.rope.scaling.factor"), "rope.scaling.factor");
  ExpectRefused(with("llama.rope.scaling.factor", 0.0), "rope.scaling.factor");
  ExpectRefused(with("llama.rope.scaling.original_context_length", uint64_t{0}),
                "original_context_length' is 0");
  ExpectRefused(with("llama.rope.scaling.yarn_beta_fast", 1.0), "must be above");
  ExpectRefused(with("llama.rope.scaling.yarn_beta_slow", -1.0), "yarn_beta_slow");
  ExpectRefused(with("llama.rope.freq_base", 1.0), "must be above 1 for yarn");
  ExpectRefused(with("llama.rope.scaling.yarn_ext_factor", 0.5), "yarn_ext_factor");
  ExpectRefused(with("llama.rope.scaling.yarn_log_multiplier", 0.1), "yarn_log_multiplier");
  EXPECT_TRUE(ConfigOf(with("llama.rope.scaling.yarn_ext_factor", -1.0)).ok());
}

// What a config.json with this RoPE scaling says in GGUF's keys.
std::string SaidOf(const std::string& scaling) {
  const auto config = ReadHubConfig(R"({"model_type": "qwen2", "rope_theta": 1e6,
      "max_position_embeddings": 32768, "rope_scaling": )" +
                                        scaling + "}",
                                    "m");
  if (!config.ok()) return "error: " + config.error().message;
  std::string said;
  for (const auto& [key, value] : config->metadata) {
    if (!key.starts_with("qwen2.rope.scaling.")) continue;
    said += (said.empty() ? "" : " ") + key.substr(19) + "=";
    if (const auto* text = std::get_if<std::string>(&value.data)) said += *text;
    if (const auto* number = std::get_if<double>(&value.data)) said += std::to_string(*number);
    if (const auto* count = std::get_if<uint64_t>(&value.data)) said += std::to_string(*count);
  }
  return said;
}

TEST(B065, BothSpellingsOfAConfigJsonMeanTheSame) {
  const std::string plain = "type=yarn factor=4.000000 original_context_length=32768";
  const std::string rest = R"("factor": 4.0, "original_max_position_embeddings": 32768})";
  EXPECT_EQ(SaidOf(R"({"type": "yarn", )" + rest), plain);
  EXPECT_EQ(SaidOf(R"({"rope_type": "yarn", "beta_fast": null, "truncate": true, )" + rest), plain);
  EXPECT_EQ(SaidOf(R"({"rope_type": "yarn", "beta_fast": 16, "beta_slow": 2.0, )" + rest),
            plain + " yarn_beta_fast=16.000000 yarn_beta_slow=2.000000");
  // In GGUF's keys over and above 0.1 ln 4 + 1.
  EXPECT_EQ(SaidOf(R"({"rope_type": "yarn", "attention_factor": 1.0, )" + rest),
            plain + " attn_factor=0.878249");
  EXPECT_EQ(SaidOf(R"({"rope_type": "yarn", "mscale": 1.0, "mscale_all_dim": 1.0, )" + rest),
            plain + " attn_factor=0.878249");
  EXPECT_EQ(SaidOf(R"({"rope_type": "yarn", "factor": 4.0})"), "type=yarn factor=4.000000");
}

}  // namespace
}  // namespace kvrm
