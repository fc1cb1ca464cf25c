#include "model/describe.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>

#include "base/test_data.h"
#include "model/model_test_support.h"

namespace kvrm {
namespace {

using testing::EditedModel;
using testing::MemoryFile;
using testing::OpenRandom;

boost::json::object JsonOf(const GgufFile& file) {
  const std::string text = DescribeJson(file);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  return boost::json::parse(text).as_object();
}

void ExpectTextHolds(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
}

TEST(Describe, JsonHoldsTheNumbersOfARunnableModel) {
  RandomModelSpec spec;
  spec.seed = 5;
  const MemoryFile memory = OpenRandom(spec);
  const boost::json::object json = JsonOf(*memory.file);
  EXPECT_EQ(json.at("file_bytes").to_number<uint64_t>(), memory.bytes.size());
  EXPECT_EQ(json.at("metadata").at("general.name").as_string(), "random-5");
  EXPECT_EQ(json.at("metadata").at("tokenizer.ggml.tokens").at("length").as_int64(), 320);
  EXPECT_EQ(json.at("config").at("layers").as_int64(), 2);
  EXPECT_TRUE(json.at("missing").as_array().empty());
  uint64_t tensors = 0, bytes = 0;
  for (const auto& type : json.at("tensor_types").as_array()) {
    tensors += type.at("tensors").to_number<uint64_t>();
    bytes += type.at("bytes").to_number<uint64_t>();
    EXPECT_TRUE(type.at("readable").as_bool());
  }
  EXPECT_EQ(tensors, memory.file->tensors().size());
  EXPECT_LE(bytes, memory.bytes.size());
  // f16: 2 heads x 16 x 16 tokens x 2 planes x 2 bytes; 64 pages of 2 layers in a superblock.
  const auto& f16 = json.at("kv").at(0).at("groups").at(0);
  EXPECT_EQ(f16.at("kind").as_string(), "full");
  EXPECT_EQ(f16.at("part_page_bytes").as_int64(), 2'048);
  EXPECT_EQ(f16.at("superblock_bytes").as_int64(), 64 * 2 * 2'048);
  // int8: half of it, and a line of scales per head.
  EXPECT_EQ(json.at("kv").at(1).at("format").as_string(), "int8");
  EXPECT_EQ(json.at("kv").at(1).at("groups").at(0).at("part_page_bytes").as_int64(),
            1'024 + 2 * 64);
  // 256 tokens are 16 pages a sequence; with the null page 17, 129 and 513 pages.
  const auto& memory_table = json.at("memory").as_array();
  ASSERT_EQ(memory_table.size(), 9u);
  const int64_t superblocks[] = {1, 3, 9};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(memory_table[i].at("sequences").as_int64(), kDescribedSequences[i]);
    EXPECT_EQ(memory_table[i].at("kv_bytes").as_int64(), superblocks[i] * 262'144);
  }
}

TEST(Describe, WeightBytesAreThoseOfALoad) {
  const MemoryFile memory = OpenRandom({});
  for (const auto& weights : Describe(*memory.file).weights) {
    const auto model = Model::Load(*memory.file, {.weights = weights.choice});
    ASSERT_TRUE(model.ok());
    EXPECT_EQ(weights.bytes, (*model)->weight_bytes());
    EXPECT_EQ(weights.encodings, (*model)->encoding_summary());
  }
}

TEST(Describe, ModelsThatCannotBeRunSayWhatIsMissing) {
  const MemoryFile other = EditedModel({}).Set("general.architecture", std::string("gpt9")).Open();
  ExpectTextHolds(DescribeText(*other.file), "'gpt9', known: llama");
  EXPECT_TRUE(JsonOf(*other.file).at("config").is_null());
  ASSERT_EQ(JsonOf(*other.file).at("missing").as_array().size(), 1u);

  const MemoryFile type =
      EditedModel({}).Put("blk.0.ffn_up.weight", DType::kMXFP4, {64, 96}).Open();
  ExpectTextHolds(DescribeText(*type.file), "(not readable)");
  ExpectTextHolds(DescribeText(*type.file), "'blk.0.ffn_up.weight' has type MXFP4");

  const MemoryFile no_tokens = EditedModel({}).Remove("tokenizer.ggml.tokens").Open();
  ExpectTextHolds(DescribeText(*no_tokens.file), "'tokenizer.ggml.tokens' is missing");
  EXPECT_FALSE(JsonOf(*no_tokens.file).at("config").is_null());

  const MemoryFile empty = testing::OpenBytes(GgufWriter().Finish());
  ExpectTextHolds(DescribeText(*empty.file), "'general.architecture' is missing");
  EXPECT_TRUE(JsonOf(*empty.file).at("memory").as_array().empty());
}

TEST(Describe, JsonIsValidWhateverTheFileHolds) {
  const std::string bad =
      "\"\\\n\x01\x7f \xC3\xA9 \xFF\xC0\x80\xED\xA0\x80\xF4\x90\x80\x80\xE2\x82";
  const MemoryFile memory = EditedModel({})
                                .Set("general.name", bad)
                                .Set("key " + bad, std::string("v"))
                                .Set("nan", std::numeric_limits<double>::quiet_NaN())
                                .Open();
  ASSERT_TRUE(memory.file) << memory.error;
  const boost::json::object json = JsonOf(*memory.file);
  const std::string name(json.at("metadata").at("general.name").as_string());
  EXPECT_EQ(name.substr(0, 9), "\"\\\n\x01\x7f \xC3\xA9 ");
  EXPECT_EQ(name.find('\xFF'), std::string::npos);
  EXPECT_TRUE(json.at("metadata").at("nan").is_null());
  for (const char c : DescribeText(*memory.file)) {
    EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7F));
  }
}

TEST(Describe, EachGroupOfLayersIsShown) {
  RandomModelSpec spec;
  spec.layers = 4;
  spec.window = 40;
  spec.full_every = 4;
  const MemoryFile memory = OpenRandom(spec);
  const boost::json::object json = JsonOf(*memory.file);
  const auto& groups = json.at("kv").at(0).at("groups").as_array();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].at("parts").as_int64(), 1);
  EXPECT_EQ(groups[1].at("kind").as_string(), "sliding");
  EXPECT_EQ(groups[1].at("window_tokens").as_int64(), 40);
  EXPECT_EQ(groups[1].at("parts").as_int64(), 3);
  ExpectTextHolds(DescribeText(*memory.file), "family llama, 4 layers; KV cache in 2 groups");
  ExpectTextHolds(DescribeText(*memory.file), "3 parts of 2048 bytes");
  ExpectTextHolds(DescribeText(*memory.file), "sees a window of 40 tokens");
}

TEST(Describe, DefaultModelShowsTheGeometryOfTheArchitecture) {
  const std::string path = testing::DefaultModelPath();
  KVRM_REQUIRE_DATA(path);
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const std::string text = DescribeText(**file);
  ExpectTextHolds(text, "30 parts of 12288 bytes; superblock 6 MiB, 17 pages");
  ExpectTextHolds(text, "30 parts of 6336 bytes; superblock 4 MiB, 22 pages");
  ExpectTextHolds(text, "q4 (210 linears), q8 (head)");
  EXPECT_EQ(text.find("cannot be run"), std::string::npos);
}

}  // namespace
}  // namespace kvrm
