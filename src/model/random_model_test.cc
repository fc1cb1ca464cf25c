#include "model/random_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/model_test_support.h"

namespace kvrm {
namespace {

using testing::MemoryFile;
using testing::OpenRandom;

uint64_t Fnv1a(const std::vector<std::byte>& bytes) {
  uint64_t hash = 0xCBF2'9CE4'8422'2325u;
  for (const std::byte b : bytes) {
    hash = (hash ^ std::to_integer<uint64_t>(b)) * 0x0000'0100'0000'01B3u;
  }
  return hash;
}

TEST(RandomModel, BytesDependOnTheSpecAlone) {
  // The same on every compiler and machine: a seed in a bug report means one model.
  EXPECT_EQ(Fnv1a(WriteRandomModel({})), 0x56B7'C920'2D55'3B4Cu);
  EXPECT_EQ(WriteRandomModel({}), WriteRandomModel({}));
  RandomModelSpec other;
  other.seed = 2;
  EXPECT_NE(WriteRandomModel(other), WriteRandomModel({}));
}

TEST(RandomModel, EveryTypeGivesAModelOfModestFiniteValues) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0,
                           DType::kQ4_1, DType::kQ6_K}) {
    RandomModelSpec spec;
    spec.hidden = spec.ffn = 256;
    spec.heads = 16;
    spec.linear_type = spec.embedding_type = type;
    spec.tied = false;
    const MemoryFile memory = OpenRandom(spec);
    ASSERT_TRUE(memory.file) << memory.error;
    ASSERT_TRUE(ReadConfig(*memory.file).ok());
    ASSERT_TRUE(ReadTokenizerSpec(*memory.file).ok());
    for (const GgufTensor& tensor : memory.file->tensors()) {
      if (tensor.dims.size() < 2) continue;
      std::vector<float> values(tensor.num_values);
      Dequantize(tensor.type, tensor.data.data(), values.size(), values.data());
      double sum = 0, squares = 0;
      for (const float v : values) {
        ASSERT_TRUE(std::isfinite(v));
        sum += v;
        squares += double{v} * v;
      }
      const double n = static_cast<double>(values.size());
      const double unit = 1.0 / std::sqrt(static_cast<double>(tensor.dims[0]));
      const bool outer = tensor.name == "token_embd.weight" || tensor.name == "output.weight";
      const double want = outer ? 3 * unit : unit;
      EXPECT_NEAR(std::sqrt(squares / n) / want, 1.0, 0.15) << tensor.name << " " << int(type);
      EXPECT_NEAR(sum / n / want, 0.0, 0.1) << tensor.name;
    }
  }
}

TEST(RandomModel, VocabularyHoldsEveryByteAndJoinsOnlyWhatItHolds) {
  for (const uint32_t vocab : {kMinRandomVocab, 300u, 1'000u}) {
    RandomModelSpec spec;
    spec.vocab = vocab;
    const MemoryFile memory = OpenRandom(spec);
    const auto tokenizer = ReadTokenizerSpec(*memory.file);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    EXPECT_EQ(tokenizer->tokens.size(), vocab);
    const std::set<std::string_view> tokens(tokenizer->tokens.begin(), tokenizer->tokens.end());
    EXPECT_EQ(tokens.size(), vocab) << "a token stands twice";
    EXPECT_TRUE(tokens.contains("a"));
    EXPECT_TRUE(tokens.contains("\xC4\xA0")) << "the blank, as U+0120";
    EXPECT_TRUE(tokens.contains("\xC4\x8A")) << "the newline, as U+010A";
    EXPECT_TRUE(tokens.contains("\xC5\x83")) << "byte 0xAD, the last of all, as U+0143";
    EXPECT_EQ(tokenizer->tokens[3 + 'z'], "z");
    std::set<std::string> known;
    for (size_t i = 3; i < 259; ++i) known.emplace(tokenizer->tokens[i]);
    for (const std::string_view merge : tokenizer->merges) {
      const size_t blank = merge.find(' ');
      const std::string left(merge.substr(0, blank)), right(merge.substr(blank + 1));
      EXPECT_TRUE(known.contains(left) && known.contains(right)) << merge;
      EXPECT_TRUE(tokens.contains(left + right)) << merge;
      known.insert(left + right);
    }
    const auto unused =
        std::count(tokenizer->types.begin(), tokenizer->types.end(), TokenType::kUnused);
    EXPECT_EQ(static_cast<size_t>(unused) + 259 + tokenizer->merges.size(), vocab);
  }
}

TEST(RandomModel, NaNIsPlantedInOneBlockOnly) {
  for (const char* name : {"blk.1.ffn_down.weight", "token_embd.weight", "output_norm.weight"}) {
    RandomModelSpec spec;
    spec.nan_tensor = name;
    spec.nan_row = std::string(name) == "output_norm.weight" ? 0 : 5;
    const MemoryFile memory = OpenRandom(spec);
    for (const GgufTensor& tensor : memory.file->tensors()) {
      std::vector<float> values(tensor.num_values);
      Dequantize(tensor.type, tensor.data.data(), values.size(), values.data());
      const auto nans =
          std::count_if(values.begin(), values.end(), [](float v) { return std::isnan(v); });
      const auto block = static_cast<ptrdiff_t>(GetDType(tensor.type).block_values);
      EXPECT_EQ(nans, tensor.name == name ? block : 0) << tensor.name;
      if (tensor.name == name) {
        EXPECT_TRUE(std::isnan(values[spec.nan_row * tensor.dims[0]]));
      }
    }
  }
}

TEST(RandomModel, ChatTemplateIsLeftOutOnRequest) {
  RandomModelSpec spec;
  spec.chat_template.clear();
  const MemoryFile memory = OpenRandom(spec);
  EXPECT_EQ(memory.file->Find("tokenizer.chat_template"), nullptr);
  EXPECT_TRUE(ReadTokenizerSpec(*memory.file)->chat_template.empty());
}

}  // namespace
}  // namespace kvrm
