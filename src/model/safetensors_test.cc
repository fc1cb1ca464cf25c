#include "model/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "model/gguf.h"
#include "model/hub_config.h"
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

// One file a check, each refused in words that name what is wrong.
TEST(Safetensors, BrokenFilesAreRefusedByName) {
  const auto one = [](const std::string& dtype, const std::string& shape,
                      const std::string& offsets) {
    return R"({"t":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
           offsets + "}}";
  };
  struct Broken {
    const char* name;
    std::vector<std::byte> bytes;
    std::string says;
  };
  const std::vector<Broken> files = {
      {"empty", {}, "no header"},
      {"cut in the length", std::vector<std::byte>(7), "no header"},
      {"header past the end", FileOf("{}", 0, 3), "header has 3 bytes"},
      {"header of 2^63", FileOf("{}", 0, uint64_t{1} << 63), "header has 9223372036854775808"},
      {"no JSON", FileOf("{\"t\":", 0), "no JSON object"},
      {"nested too deep", FileOf("{\"t\":" + std::string(200, '['), 0), "no JSON object"},
      {"a list", FileOf("[]", 0), "no JSON object"},
      {"tensor is no object", FileOf(R"({"t":1})", 0), "'t' is no JSON object"},
      {"no dtype", FileOf(R"({"t":{"shape":[1],"data_offsets":[0,4]}})", 4), "has no dtype"},
      {"dtype I8", FileOf(one("I8", "[4]", "[0,4]"), 4), "dtype 'I8'"},
      {"no shape", FileOf(R"({"t":{"dtype":"F32","data_offsets":[0,4]}})", 4), "has no shape"},
      {"no dimensions", FileOf(one("F32", "[]", "[0,4]"), 4), "has 0 dimensions"},
      {"5 dimensions", FileOf(one("F32", "[1,1,1,1,1]", "[0,4]"), 4), "has 5 dimensions"},
      {"dimension 0", FileOf(one("F32", "[4,0]", "[0,0]"), 0), "dimension of 0"},
      {"dimension -1", FileOf(one("F32", "[-1]", "[0,4]"), 4), "no whole number"},
      {"dimension 1.5", FileOf(one("F32", "[1.5]", "[0,4]"), 4), "no whole number"},
      {"2^64 values", FileOf(one("F32", "[4294967296,4294967296]", "[0,4]"), 4), "2^64"},
      {"2^64 bytes", FileOf(one("F32", "[4611686018427387905]", "[0,4]"), 4), "has 4 bytes"},
      {"no offsets", FileOf(R"({"t":{"dtype":"F32","shape":[1]}})", 4), "no data_offsets"},
      {"one offset", FileOf(one("F32", "[1]", "[0]"), 4), "no data_offsets"},
      {"backwards", FileOf(one("F32", "[1]", "[4,0]"), 4), "lies at 4 to 0"},
      {"one byte short", FileOf(one("F32", "[1]", "[0,4]"), 3), "has 3 bytes"},
      {"one byte more", FileOf(one("F32", "[1]", "[0,4]"), 5), "fill 4 of 5"},
      {"too few bytes", FileOf(one("F32", "[2]", "[0,4]"), 4), "2 values of F32"},
      {"overlap",
       FileOf(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
         "b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
              12),
       "'b' begins at 4"},
      {"hole", FileOf(one("F32", "[1]", "[4,8]"), 8), "begins at 4"},
  };
  for (const Broken& file : files) {
    const auto tensors = ParseSafetensors(file.bytes);
    ASSERT_FALSE(tensors.ok()) << file.name;
    EXPECT_NE(tensors.error().message.find(file.says), std::string::npos)
        << file.name << ": " << tensors.error().message;
  }
}

std::string ConfigError(const std::string& text) {
  const auto config = ReadHubConfig(text, "m");
  EXPECT_FALSE(config.ok()) << text;
  return config.ok() ? "" : config.error().message;
}

TEST(HubConfig, WhatIsNotOfferedIsRefusedByName) {
  EXPECT_EQ(ConfigError("{"), "is no JSON object");
  EXPECT_NE(ConfigError(R"({"model_type":"gpt9"})").find("'gpt9', known: llama"),
            std::string::npos);
  EXPECT_NE(ConfigError("{}").find("model_type is ''"), std::string::npos);
  EXPECT_NE(ConfigError(R"({"model_type":"llama","hidden_act":"relu"})").find("'relu'"),
            std::string::npos);
  EXPECT_NE(ConfigError(R"({"model_type":"llama","hidden_size":"64"})").find("'hidden_size'"),
            std::string::npos);
  EXPECT_NE(ConfigError(R"({"model_type":"llama","rope_scaling":{"rope_type":"yarn","factor":4}})")
                .find("'yarn'"),
            std::string::npos);
  EXPECT_NE(ConfigError(R"({"model_type":"llama","rope_scaling":{"type":"llama3","factor":8}})")
                .find("low_freq_factor"),
            std::string::npos);
  EXPECT_NE(ConfigError(R"({"model_type":"qwen3","layer_types":["linear_attention"]})")
                .find("linear_attention"),
            std::string::npos);
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
