// What a config.json says by a field that is null, and by one that is not there: as transformers
// 5.24.0 has it for the family (its configuration_*.py and modeling_rope_utils.py).
#include "model/hub_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/test_data.h"
#include "model/config.h"

namespace kvrm {
namespace {

std::string ShownValue(const GgufValue& value) {
  if (const auto* text = std::get_if<std::string>(&value.data)) return *text;
  if (const auto* number = std::get_if<double>(&value.data)) return std::to_string(*number);
  if (const auto* count = std::get_if<uint64_t>(&value.data)) return std::to_string(*count);
  if (const auto* flag = std::get_if<bool>(&value.data)) return *flag ? "true" : "false";
  std::string text;
  for (const int64_t entry : std::get<IntegerList>(value.data).ToVector()) {
    text += (text.empty() ? "" : " ") + std::to_string(entry);
  }
  return text;
}

// What stands under `key` of the family for a config.json of these fields; "" = nothing; "tied",
// "own" and "" for the key "head".
std::string SaidOfKey(const std::string& model_type, const std::string& fields,
                      const std::string& key) {
  const std::string text =
      R"({"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "model_type": ")" +
      model_type + "\"" + (fields.empty() ? "" : ", " + fields) + "}";
  const auto config = ReadHubConfig(text, "m");
  if (!config.ok()) return "error: " + config.error().message;
  if (key == "head") return config->tied_head ? "tied" : config->own_head ? "own" : "";
  for (const auto& [name, value] : config->metadata) {
    if (name.substr(name.find('.') + 1) == key) return ShownValue(value);
  }
  return "";
}

struct NullCase {
  const char* model_type;
  const char* field;
  const char* key;
  const char* absent;
  const char* null;
  const char* beside = "";  // other fields
};

constexpr NullCase kNullCases[] = {
    {"gemma2", "attn_logit_softcapping", "attn_logit_softcapping", "", "false"},
    {"gemma2", "final_logit_softcapping", "final_logit_softcapping", "", "false"},
    {"gemma3_text", "final_logit_softcapping", "final_logit_softcapping", "", "false"},
    {"gemma2", "sliding_window", "attention.sliding_window", "4096",
     "error: field 'sliding_window' is null, family gemma2 needs a number"},
    {"gemma3_text", "sliding_window", "attention.sliding_window", "4096",
     "error: field 'sliding_window' is null, family gemma3 needs a number"},
    {"mistral", "sliding_window", "attention.sliding_window", "4096", "0"},
    {"llama", "sliding_window", "attention.sliding_window", "", "0"},
    {"qwen2", "sliding_window", "attention.sliding_window", "0", "0"},
    {"qwen2", "sliding_window", "attention.sliding_window", "4096", "0",
     R"("use_sliding_window": true, "max_window_layers": 2)"},
    {"qwen3", "sliding_window", "attention.sliding_window", "4096", "0",
     R"("use_sliding_window": true, "max_window_layers": 2)"},
    {"smollm3", "sliding_window", "attention.sliding_window", "0", "0",
     R"("use_sliding_window": true)"},
    {"qwen2", "use_sliding_window", "attention.sliding_window", "0", "0",
     R"("sliding_window": 24)"},
    {"mistral", "use_sliding_window", "attention.sliding_window", "24", "24",
     R"("sliding_window": 24)"},
    {"gemma3_text", "layer_types", "attention.sliding_window_pattern", "", ""},
    {"gemma3_text", "sliding_window_pattern", "attention.sliding_window_pattern", "", ""},
    {"smollm3", "no_rope_layers", "rope.rotated_layers", "", ""},
    {"smollm3", "no_rope_layers", "rope.rotated_layers", "1 0 1 0", "1 0 1 0",
     R"("no_rope_layer_interval": 2)"},
    {"llama", "num_key_value_heads", "attention.head_count_kv", "", ""},
    {"mistral", "num_key_value_heads", "attention.head_count_kv", "8", ""},
    {"qwen2", "num_key_value_heads", "attention.head_count_kv", "32", ""},
    {"smollm3", "num_key_value_heads", "attention.head_count_kv", "4", ""},
    {"llama", "head_dim", "attention.key_length", "", ""},
    {"mistral", "head_dim", "attention.value_length", "", ""},
    {"qwen3", "head_dim", "attention.key_length", "128", "128"},
    {"gemma2", "head_dim", "attention.value_length", "256", "256"},
    {"llama", "rope_theta", "rope.freq_base", "10000.000000", "10000.000000"},
    {"smollm3", "rope_theta", "rope.freq_base", "2000000.000000", "2000000.000000"},
    {"gemma3_text", "rope_theta", "rope.freq_base", "1000000.000000", "1000000.000000"},
    {"gemma3_text", "rope_local_base_freq", "rope.freq_base_swa", "", ""},
    {"llama", "rope_scaling", "rope.scaling.type", "", ""},
    {"llama", "rope_parameters", "rope.scaling.type", "", ""},
    {"gemma2", "query_pre_attn_scalar", "attention.scale", "0.062500", "0.062500"},
    {"llama", "query_pre_attn_scalar", "attention.scale", "", ""},
    {"llama", "tie_word_embeddings", "head", "", ""},
    {"smollm3", "tie_word_embeddings", "head", "tied", "tied"},
    {"gemma2", "use_bidirectional_attention", "attn_logit_softcapping", "", ""},
};

TEST(HubConfig, NullAndAbsentFieldsMeanWhatTheyMeanToTransformers) {
  for (const NullCase& c : kNullCases) {
    const std::string beside = c.beside;
    const std::string null = "\"" + std::string(c.field) + "\": null";
    EXPECT_EQ(SaidOfKey(c.model_type, beside, c.key), c.absent) << c.model_type << " " << c.field;
    EXPECT_EQ(SaidOfKey(c.model_type, beside.empty() ? null : beside + ", " + null, c.key), c.null)
        << c.model_type << " " << c.field;
  }
}

struct HubRopeCase {
  const char* fields;
  const char* base;
  const char* local_base;
  const char* kind;
};

// Of gemma3_text: the part of a kind of layer, else what stands beside it, else 10^6 and none.
constexpr HubRopeCase kHubRopeCases[] = {
    {R"("rope_parameters": {"full_attention": null, "sliding_attention": null})", "1000000.000000",
     "", ""},
    {R"("rope_theta": 7.0, "rope_parameters": {"full_attention": null})", "7.000000", "", ""},
    {R"("rope_theta": 7.0, "rope_parameters": {"full_attention": {"rope_theta": 5.0}})", "5.000000",
     "", ""},
    {R"("rope_local_base_freq": 3.0, "rope_parameters": {"sliding_attention": {"rope_theta": 2.0}})",
     "1000000.000000", "2.000000", ""},
    {R"("rope_local_base_freq": 3.0, "rope_parameters": {"sliding_attention": {}})",
     "1000000.000000", "3.000000", ""},
    {R"("rope_scaling": {"rope_type": "linear", "factor": 8.0}, "rope_local_base_freq": 3.0)",
     "1000000.000000", "3.000000", "linear"},
    {R"("rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "rope_parameters": {"rope_type": "default"})",
     "1000000.000000", "", "linear"},
    {R"("rope_scaling": {}, "rope_parameters": {"rope_type": "linear", "factor": 8.0})",
     "1000000.000000", "", "linear"},
    {R"("rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0}})",
     "1000000.000000", "", "linear"},
};

TEST(HubConfig, RopeIsReadFromThePartOfItsLayers) {
  for (const HubRopeCase& c : kHubRopeCases) {
    EXPECT_EQ(SaidOfKey("gemma3_text", c.fields, "rope.freq_base"), c.base) << c.fields;
    EXPECT_EQ(SaidOfKey("gemma3_text", c.fields, "rope.freq_base_swa"), c.local_base) << c.fields;
    EXPECT_EQ(SaidOfKey("gemma3_text", c.fields, "rope.scaling.type"), c.kind) << c.fields;
  }
}

TEST(HubConfig, WhatCannotBeReadIsNamedAndNeverDropped) {
  const auto refused = [](const char* model_type, const std::string& fields) {
    return SaidOfKey(model_type, fields, "rope.freq_base");
  };
  for (const char* part : {"full_attention", "sliding_attention"}) {
    for (const char* value : {"3", "[]", "\"yarn\"", "true"}) {
      const std::string field = std::string("\"") + part + "\": " + value;
      EXPECT_EQ(refused("gemma3_text", "\"rope_parameters\": {" + field + "}"),
                "error: field 'rope_parameters." + std::string(part) + "' is no object");
      EXPECT_EQ(refused("gemma3_text", "\"rope_scaling\": {" + field + "}"),
                "error: field 'rope_scaling." + std::string(part) + "' is no object");
    }
  }
  EXPECT_EQ(refused("gemma3_text", R"("rope_parameters": [])"),
            "error: field 'rope_parameters' is no object");
  EXPECT_EQ(refused("gemma3_text", R"("use_bidirectional_attention": true)"),
            "error: field 'use_bidirectional_attention' is true, must be false");
  EXPECT_EQ(refused("smollm3", R"("no_rope_layer_interval": 0)"),
            "error: field 'no_rope_layer_interval' is 0");
  EXPECT_EQ(refused("llama", R"("rope_scaling": {"rope_type": "yarn", "factor": 2.0,
                                 "truncate": null})"),
            "error: field 'truncate' of RoPE scaling yarn must be true");
}

// The folder of a golden model with another config.json: what its numbers become for the graph.
class EditedFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / "kvrm_edited_gemma2";
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(testing::ProjectDataDir() + "/golden/gemma2", folder_);
    std::ifstream in(folder_ / "config.json");
    text_ = {std::istreambuf_iterator<char>(in), {}};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Each replacement must be there to be replaced.
  ModelConfig With(std::initializer_list<std::pair<std::string, std::string>> replacements) const {
    std::string text = text_;
    for (const auto& [from, to] : replacements) {
      const size_t at = text.find(from);
      EXPECT_NE(at, std::string::npos) << from;
      text.replace(at, from.size(), to);
    }
    std::filesystem::remove(folder_ / "config.json");
    std::ofstream(folder_ / "config.json") << text;
    const auto file = GgufFile::Open(folder_);
    EXPECT_TRUE(file.ok()) << file.error().message;
    if (!file.ok()) return {};
    const auto config = ReadConfig(**file);
    EXPECT_TRUE(config.ok()) << config.error().message;
    return config.ok() ? *config : ModelConfig{};
  }

  std::filesystem::path folder_;
  std::string text_;
};

TEST_F(EditedFolder, ACapThatIsNullIsNoneAndOneThatIsAbsentIsTheFamilys) {
  const std::string scores = R"("attn_logit_softcapping": 2.0,)";
  const std::string logits = R"("final_logit_softcapping": 1.5,)";
  const ModelConfig said = With({});
  EXPECT_EQ(said.attention_soft_cap, 2.0f);
  EXPECT_EQ(said.logit_soft_cap, 1.5f);
  const ModelConfig none = With({{scores, R"("attn_logit_softcapping": null,)"},
                                 {logits, R"("final_logit_softcapping": null,)"}});
  EXPECT_EQ(none.attention_soft_cap, 0.0f);
  EXPECT_EQ(none.logit_soft_cap, 0.0f);
  const ModelConfig absent = With({{scores, ""}, {logits, ""}});
  EXPECT_EQ(absent.attention_soft_cap, 50.0f);
  EXPECT_EQ(absent.logit_soft_cap, 30.0f);
}

}  // namespace
}  // namespace kvrm
