#include "model/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "model/gguf.h"
#include "model/hub_config.h"
#include "model/model.h"
#include "model/model_test_support.h"

namespace kvrm {
namespace {

std::vector<std::byte> FileOf(const std::string& header, size_t data_bytes,
                              uint64_t claimed = ~uint64_t{0}) {
  const uint64_t length = claimed == ~uint64_t{0} ? header.size() : claimed;
  std::vector<std::byte> bytes(8 + header.size() + data_bytes);
  std::memcpy(bytes.data(), &length, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  return bytes;
}

TEST(Safetensors, ShapesAreReadInnermostFirst) {
  const auto bytes = FileOf(R"({"__metadata__":{"format":"pt"},
    "b":{"dtype":"BF16","shape":[3,5],"data_offsets":[8,38]},
    "a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                            38);
  const auto tensors = ParseSafetensors(bytes);
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[0].name, "b");
  EXPECT_EQ((*tensors)[0].type, DType::kBF16);
  EXPECT_EQ((*tensors)[0].dims, (std::vector<uint64_t>{5, 3}));
  EXPECT_EQ((*tensors)[0].num_values, 15u);
  EXPECT_EQ((*tensors)[1].data.data(), bytes.data() + bytes.size() - 38);
}

TEST(HubConfig, TensorNamesAreThoseOfGgufFiles) {
  EXPECT_EQ(GgufTensorName("model.layers.12.self_attn.q_proj.weight", false),
            "blk.12.attn_q.weight");
  EXPECT_EQ(GgufTensorName("model.layers.3.post_attention_layernorm.weight", false),
            "blk.3.ffn_norm.weight");
  EXPECT_EQ(GgufTensorName("model.layers.3.post_attention_layernorm.weight", true),
            "blk.3.post_attention_norm.weight");
  for (const char* unknown : {"model.layers.x.mlp.up_proj.weight", "model.layers.3",
                              "model.layers.3.mlp.experts.0.weight", "visual.patch"}) {
    EXPECT_EQ(GgufTensorName(unknown, false), unknown);
  }
}

// Which layers slide by a config.json of these fields: "0 1 1", "none", or "all".
std::string SlidingBy(const std::string& fields) {
  const auto config = ReadHubConfig(R"({"num_hidden_layers": 3, )" + fields + "}", "m");
  if (!config.ok()) return "error: " + config.error().message;
  const GgufValue *window = nullptr, *pattern = nullptr;
  for (const auto& [key, value] : config->metadata) {
    if (key.ends_with(".attention.sliding_window")) window = &value;
    if (key.ends_with(".attention.sliding_window_pattern")) pattern = &value;
  }
  if (window == nullptr) return "by family";
  if (std::get<uint64_t>(window->data) == 0) return "none";
  if (pattern == nullptr) return "all";
  std::string text;
  for (const int64_t slides : std::get<IntegerList>(pattern->data).ToVector()) {
    text += (text.empty() ? "" : " ") + std::to_string(slides);
  }
  return text;
}

TEST(HubConfig, WindowsHoldForTheLayersThatTransformersGivesThem) {
  const std::string qwen = R"("model_type": "qwen2", "sliding_window": 24)";
  EXPECT_EQ(SlidingBy(qwen), "none") << "they are off unless use_sliding_window says so";
  EXPECT_EQ(SlidingBy(qwen + R"(, "use_sliding_window": false, "max_window_layers": 1)"), "none");
  EXPECT_EQ(SlidingBy(qwen + R"(, "use_sliding_window": true, "max_window_layers": 1)"), "0 1 1");
  EXPECT_EQ(SlidingBy(qwen + R"(, "use_sliding_window": true, "layer_types":
                      ["sliding_attention", "full_attention", "full_attention"])"),
            "1 0 0");
  EXPECT_EQ(SlidingBy(R"("model_type": "mistral", "sliding_window": 24)"), "all");
  EXPECT_EQ(SlidingBy(R"("model_type": "mistral", "sliding_window": null)"), "none");
  EXPECT_EQ(SlidingBy(R"("model_type": "mistral")"), "all");
}

// ---- split GGUF files

class SplitModel : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string PathOf(uint32_t part) const {
    return folder_ / ("m-0000" + std::to_string(part + 1) + "-of-00002.gguf");
  }
  // The tensors of a random model in two files: norms in one, matrices in the other.
  void Write(uint32_t part, uint64_t says_no, uint64_t says_count, uint64_t says_tensors) const {
    const auto memory = testing::OpenRandom({});
    GgufWriter writer;
    if (part == 0) AddModelKeys(*memory.file, &writer);
    writer.AddUint32("split.no", static_cast<uint32_t>(says_no));
    writer.AddUint32("split.count", static_cast<uint32_t>(says_count));
    writer.AddUint32("split.tensors.count", static_cast<uint32_t>(says_tensors));
    for (const GgufTensor& tensor : memory.file->tensors()) {
      if ((tensor.dims.size() == 1) != (part == 1)) continue;
      writer.AddTensor(tensor.name, tensor.type, tensor.dims,
                       {tensor.data.begin(), tensor.data.end()});
    }
    const std::vector<std::byte> bytes = writer.Finish();
    std::ofstream(PathOf(part), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  static void AddModelKeys(const GgufFile& file, GgufWriter* writer) {
    for (const auto& [key, value] : file.metadata()) {
      if (const auto* count = std::get_if<uint64_t>(&value.data)) {
        writer->AddUint32(key, static_cast<uint32_t>(*count));
      } else if (const auto* number = std::get_if<double>(&value.data)) {
        writer->AddFloat32(key, static_cast<float>(*number));
      } else if (const auto* text = std::get_if<std::string>(&value.data)) {
        writer->AddString(key, *text);
      } else if (const auto* list = std::get_if<GgufValue::Strings>(&value.data)) {
        writer->AddStrings(key, *list);
      }
    }
  }
  std::string Refused(uint32_t part = 0) const {
    const auto file = GgufFile::Open(PathOf(part));
    EXPECT_FALSE(file.ok());
    return file.ok() ? "" : file.error().message;
  }

  std::filesystem::path folder_;
};

TEST_F(SplitModel, TheFirstFileBringsTheTensorsOfAll) {
  const auto whole = testing::OpenRandom({});
  const uint64_t count = whole.file->tensors().size();
  Write(0, 0, 2, count);
  Write(1, 1, 2, count);
  const auto file = GgufFile::Open(PathOf(0));
  ASSERT_TRUE(file.ok()) << file.error().message;
  for (const GgufTensor& tensor : whole.file->tensors()) {
    const GgufTensor* found = (*file)->FindTensor(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->dims, tensor.dims);
    ASSERT_EQ(found->data.size(), tensor.data.size());
    EXPECT_EQ(std::memcmp(found->data.data(), tensor.data.data(), tensor.data.size()), 0);
  }
}

TEST_F(SplitModel, ItsWeightsAreThoseOfTheWholeFile) {
  const auto whole = testing::OpenRandom({});
  const uint64_t count = whole.file->tensors().size();
  Write(0, 0, 2, count);
  Write(1, 1, 2, count);
  const auto file = GgufFile::Open(PathOf(0));
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto split = Model::Load(**file, {.num_threads = 2});
  ASSERT_TRUE(split.ok()) << split.error().message;
  const auto model = Model::Load(*whole.file, {.num_threads = 1});
  ASSERT_TRUE(model.ok()) << model.error().message;
  ASSERT_EQ((*split)->weight_bytes(), (*model)->weight_bytes());
  for (uint32_t layer = 0; layer < (*model)->config().num_layers; ++layer) {
    const LinearWeights& wanted = (*model)->layers()[layer].qkv;
    const LinearWeights& got = (*split)->layers()[layer].qkv;
    ASSERT_EQ(
        std::memcmp(got.panels, wanted.panels, EncodedBytes(wanted.encoding, wanted.n, wanted.k)),
        0);
  }
  EXPECT_EQ((*split)->tokenizer_spec().tokens, (*model)->tokenizer_spec().tokens);
}

TEST_F(SplitModel, WhatDoesNotFitTogetherIsRefused) {
  const uint64_t count = testing::OpenRandom({}).file->tensors().size();
  Write(0, 0, 2, count);
  EXPECT_NE(Refused().find("m-00002-of-00002.gguf"), std::string::npos);  // absent
  Write(1, 1, 3, count);
  EXPECT_NE(Refused().find("file 2 of 3"), std::string::npos);
  Write(1, 0, 2, count);
  EXPECT_NE(Refused().find("file 1 of 2"), std::string::npos);
  Write(1, 1, 2, count);
  EXPECT_NE(Refused(1).find("the first is named"), std::string::npos);
  Write(0, 0, 2, count + 1);
  EXPECT_NE(Refused().find("split.tensors.count"), std::string::npos);
  Write(0, 0, 999'999, count);
  EXPECT_NE(Refused().find("in 999999"), std::string::npos);
}

}  // namespace
}  // namespace kvrm
