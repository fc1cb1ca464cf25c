#include "model/model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/test_data.h"
#include "model/available_memory.h"
#include "model/model_tensors.h"
#include "model/model_test_support.h"

namespace kvrm {
namespace {

using testing::EditedModel;
using testing::MemoryFile;
using testing::OpenRandom;

std::unique_ptr<const Model> LoadOrDie(const GgufFile& file, const LoadOptions& options) {
  auto model = Model::Load(file, options);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return model.ok() ? std::move(model).value() : nullptr;
}

std::vector<float> TensorValues(const GgufFile& file, const std::string& name) {
  const GgufTensor* tensor = file.FindTensor(name);
  EXPECT_NE(tensor, nullptr) << name;
  std::vector<float> values(tensor->num_values);
  Dequantize(tensor->type, tensor->data.data(), values.size(), values.data());
  return values;
}

// Output `first` + i of the linear equals row i of the tensor, all rows, exactly.
void ExpectRows(const LinearWeights& linear, const std::vector<float>& rows, uint32_t first) {
  const size_t n = rows.size() / linear.k;
  for (uint32_t i = 0; i < n; ++i) {
    for (uint32_t k = 0; k < linear.k; ++k) {
      ASSERT_EQ(EncodedValue(linear.encoding, linear.panels, linear.k, first + i, k),
                rows[size_t{i} * linear.k + k])
          << "output " << first + i << ", input " << k;
    }
  }
}

// A spec with every fused part of another size: 6 query heads, 2 KV heads, ffn 160.
RandomModelSpec UnevenSpec() {
  RandomModelSpec spec;
  spec.hidden = 96;
  spec.heads = 6;
  spec.kv_heads = 2;
  spec.head_dim = 16;
  spec.ffn = 160;
  spec.vocab = 331;  // not a multiple of a panel
  return spec;
}

void ExpectWeightsOfFile(const GgufFile& file, const Model& model) {
  const ModelConfig& config = model.config();
  const uint32_t q = config.num_heads * config.head_dim;
  const uint32_t kv = config.num_kv_heads * config.head_dim;
  for (uint32_t l = 0; l < config.num_layers; ++l) {
    const LayerWeights& layer = model.layers()[l];
    const auto values = [&](std::string_view part) {
      return TensorValues(file, LayerTensorName(l, part));
    };
    EXPECT_EQ(layer.qkv.n, q + 2 * kv);
    ExpectRows(layer.qkv, values("attn_q"), 0);
    ExpectRows(layer.qkv, values("attn_k"), q);
    ExpectRows(layer.qkv, values("attn_v"), q + kv);
    ExpectRows(layer.attn_out, values("attn_output"), 0);
    ExpectRows(layer.down, values("ffn_down"), 0);
    const auto gate = values("ffn_gate"), up = values("ffn_up");
    ASSERT_EQ(layer.gate_up.n, 2 * config.ffn);
    for (uint32_t i = 0; i < config.ffn / 16; ++i) {
      const auto begin = static_cast<ptrdiff_t>(size_t{16} * i * config.hidden);
      const auto end = begin + 16 * static_cast<ptrdiff_t>(config.hidden);
      ExpectRows(layer.gate_up, {gate.begin() + begin, gate.begin() + end}, 32 * i);
      ExpectRows(layer.gate_up, {up.begin() + begin, up.begin() + end}, 32 * i + 16);
    }
    const auto norm = values("attn_norm");
    EXPECT_EQ(std::memcmp(layer.attn_norm, norm.data(), norm.size() * sizeof(float)), 0);
  }
  const auto norm = TensorValues(file, "output_norm.weight");
  EXPECT_EQ(std::memcmp(model.output_norm(), norm.data(), norm.size() * sizeof(float)), 0);
  ExpectRows(model.embedding(), TensorValues(file, "token_embd.weight"), 0);
}

TEST(Model, AutoHoldsFourAndEightBitFilesExactlyInFusedOrder) {
  for (const DType type : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    RandomModelSpec spec = UnevenSpec();
    spec.linear_type = type;
    const MemoryFile memory = OpenRandom(spec);
    const auto model = LoadOrDie(*memory.file, {.num_threads = 2});
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(model->layers()[0].qkv.encoding, NearestEncoding(type));
    ExpectWeightsOfFile(*memory.file, *model);
  }
}

TEST(Model, F32HoldsEveryTypeExactly) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_1, DType::kQ8_0}) {
    RandomModelSpec spec = UnevenSpec();
    spec.linear_type = spec.embedding_type = type;
    const MemoryFile memory = OpenRandom(spec);
    const auto model = LoadOrDie(*memory.file, {.weights = WeightChoice::kF32});
    ASSERT_NE(model, nullptr);
    ExpectWeightsOfFile(*memory.file, *model);
  }
  RandomModelSpec spec;
  spec.hidden = spec.ffn = 256;
  spec.heads = 16;
  spec.linear_type = spec.embedding_type = DType::kQ6_K;
  const MemoryFile memory = OpenRandom(spec);
  const auto model = LoadOrDie(*memory.file, {.weights = WeightChoice::kF32});
  ASSERT_NE(model, nullptr);
  ExpectWeightsOfFile(*memory.file, *model);
}

TEST(Model, OutputsPastTheVocabularyAreZeroRows) {
  const MemoryFile memory = OpenRandom(UnevenSpec());
  for (const auto choice : {WeightChoice::kAuto, WeightChoice::kQ4, WeightChoice::kF32}) {
    const auto model = LoadOrDie(*memory.file, {.weights = choice});
    ASSERT_NE(model, nullptr);
    const LinearWeights& head = model->head();
    EXPECT_EQ(head.n_live, 331u);
    ASSERT_EQ(head.n, 336u);
    for (uint32_t o = head.n_live; o < head.n; ++o) {
      for (uint32_t k = 0; k < head.k; ++k) {
        ASSERT_EQ(EncodedValue(head.encoding, head.panels, head.k, o, k), 0.0f);
      }
    }
  }
}

TEST(Model, BytesDoNotDependOnThreads) {
  const MemoryFile memory = OpenRandom(UnevenSpec());
  const auto one = LoadOrDie(*memory.file, {.num_threads = 1});
  const auto four = LoadOrDie(*memory.file, {.num_threads = 4});
  ASSERT_TRUE(one && four);
  for (size_t l = 0; l < one->layers().size(); ++l) {
    const LinearWeights& a = one->layers()[l].gate_up;
    const LinearWeights& b = four->layers()[l].gate_up;
    EXPECT_EQ(std::memcmp(a.panels, b.panels, EncodedBytes(a.encoding, a.n, a.k)), 0);
  }
  EXPECT_EQ(one->weight_bytes(), four->weight_bytes());
}

// A fused linear has one encoding: exact where all of its tensors are four-bit, else q8.
TEST(Model, FusedTensorsShareOneEncoding) {
  for (const DType value_type : {DType::kQ4_0, DType::kQ8_0}) {
    const MemoryFile mixed =
        EditedModel({}).Put("blk.1.attn_v.weight", value_type, {64, 32}).Open();
    ASSERT_TRUE(mixed.file) << mixed.error;
    const auto model = LoadOrDie(*mixed.file, {});
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(model->layers()[0].qkv.encoding, Encoding::kQ4);
    EXPECT_EQ(model->layers()[1].qkv.encoding,
              value_type == DType::kQ4_0 ? Encoding::kQ4 : Encoding::kQ8);
    EXPECT_EQ(model->layers()[1].down.encoding, Encoding::kQ4);
  }
}

TEST(Model, ProgressRisesToOneOnTheCallingThread) {
  const MemoryFile memory = OpenRandom(UnevenSpec());
  std::vector<double> shares;
  const auto model = LoadOrDie(
      *memory.file, {.num_threads = 2, .progress = [&](double share) { shares.push_back(share); }});
  ASSERT_NE(model, nullptr);
  ASSERT_FALSE(shares.empty());
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_EQ(shares.back(), 1.0);
}

TEST(Model, TooLittleMemoryIsRefusedWithBothNumbers) {
  const MemoryFile memory = OpenRandom({});
  const auto model = Model::Load(*memory.file, {.memory_limit_bytes = 10'000});
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().kind, ErrorKind::kNoRoom);
  EXPECT_NE(model.error().message.find("available are 10000"), std::string::npos)
      << model.error().message;
}

// Hubs pad embeddings (Qwen 2.5: 151,665 tokens, 151,936 rows), and a model may choose any row.
TEST(Model, RowsWithoutATokenAreUnusedTokens) {
  const MemoryFile memory = OpenRandom({});
  LoadOptions options;
  options.tokenizer = ReadTokenizerSpec(*memory.file).value();
  const size_t rows = options.tokenizer->tokens.size();
  const auto drop = [&](auto& entries) { entries.resize(std::min(entries.size(), rows - 3)); };
  drop(options.tokenizer->tokens);
  drop(options.tokenizer->types);
  drop(options.tokenizer->scores);
  const auto model = LoadOrDie(*memory.file, options);
  ASSERT_NE(model, nullptr);
  const TokenizerSpec& spec = model->tokenizer_spec();
  EXPECT_EQ(spec.tokens.size(), model->config().vocab);
  EXPECT_EQ(spec.types.size(), model->config().vocab);
  EXPECT_EQ(spec.types.back(), TokenType::kUnused);
  EXPECT_NE(spec.types[rows - 4], TokenType::kUnused);
}

// B063, for folders, whose tokenizer is a file of its own.
TEST(B063, ATokenizerWithMoreTokensThanTheEmbeddingHasRowsIsRefused) {
  const MemoryFile memory = OpenRandom({});
  LoadOptions options;
  options.tokenizer = ReadTokenizerSpec(*memory.file).value();
  const std::string rows = std::to_string(options.tokenizer->tokens.size());
  for (int i = 0; i < 50; ++i) options.tokenizer->tokens.push_back("<extra>");
  const auto model = Model::Load(*memory.file, options);
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.error().message.find("tokens, must be at most the " + rows +
                                       " rows of tensor 'token_embd.weight'"),
            std::string::npos)
      << model.error().message;
}

TEST(Model, AvailableMemoryIsBelowThePhysical) {
  const auto physical =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  EXPECT_GT(AvailableMemoryBytes(), 0u);
  EXPECT_LE(AvailableMemoryBytes(), physical);
}

TEST(Model, IntegerEncodingsRefuseRowsThatAreNoWholeGroupsByTensorName) {
  RandomModelSpec spec;
  spec.ffn = 48;
  spec.linear_type = DType::kF16;
  const MemoryFile memory = OpenRandom(spec);
  const auto model = Model::Load(*memory.file, {});
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.error().message.find("'blk.0.ffn_down.weight' has row length 48"),
            std::string::npos)
      << model.error().message;
  EXPECT_TRUE(Model::Load(*memory.file, {.weights = WeightChoice::kF32}).ok());
}

TEST(Model, ScalesThatTheEncodingCannotHoldAreRefusedByTensorName) {
  RandomModelSpec spec;
  spec.linear_type = DType::kQ4_0;
  std::vector<std::byte> bytes = WriteRandomModel(spec);
  const auto file = GgufFile::Parse(bytes, "random.gguf");
  ASSERT_TRUE(file.ok());
  const GgufTensor* up = (*file)->FindTensor("blk.1.ffn_up.weight");
  ASSERT_NE(up, nullptr);
  const uint16_t huge = FloatToHalf(60'000.0f);  // -8 d is past fp16
  std::memcpy(bytes.data() + (up->data.data() - bytes.data()), &huge, sizeof huge);
  const auto model = Model::Load(**file, {});
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.error().message.find("blk.1.ffn_up.weight"), std::string::npos)
      << model.error().message;
  EXPECT_NE(model.error().message.find("65504"), std::string::npos);
}

TEST(Model, PlantedNaNReachesTheWeightsAndNoOtherRow) {
  RandomModelSpec spec = UnevenSpec();
  spec.nan_tensor = "token_embd.weight";
  spec.nan_row = 17;
  const MemoryFile memory = OpenRandom(spec);
  const auto model = LoadOrDie(*memory.file, {});
  ASSERT_NE(model, nullptr);
  const LinearWeights& e = model->embedding();
  for (uint32_t o = 0; o < e.n; ++o) {
    for (uint32_t k = 0; k < e.k; ++k) {
      const float value = EncodedValue(e.encoding, e.panels, e.k, o, k);
      ASSERT_EQ(std::isnan(value), o == 17 && k < 32) << o << ", " << k;
    }
  }
}

// B064: a tied head is one copy of the embedding, a separate one is its own, never mistaken.
TEST(B064, HeadIsTheEmbeddingOnlyWhenTheFileHasNoOther) {
  RandomModelSpec spec = UnevenSpec();
  for (const DType embedding : {DType::kQ8_0, DType::kQ4_0, DType::kF16}) {
    spec.embedding_type = embedding;
    spec.tied = true;
    const MemoryFile tied_file = OpenRandom(spec);
    const auto tied = LoadOrDie(*tied_file.file, {.weights = WeightChoice::kF32});
    spec.tied = false;
    const MemoryFile apart_file = OpenRandom(spec);
    const auto apart = LoadOrDie(*apart_file.file, {.weights = WeightChoice::kF32});
    ASSERT_TRUE(tied && apart);
    EXPECT_TRUE(tied->config().tied_head);
    EXPECT_EQ(tied->head().panels, tied->embedding().panels);
    EXPECT_FALSE(apart->config().tied_head);
    EXPECT_NE(apart->head().panels, apart->embedding().panels);
    ExpectRows(apart->head(), TensorValues(*apart_file.file, "output.weight"), 0);
    ExpectRows(apart->embedding(), TensorValues(*apart_file.file, "token_embd.weight"), 0);
  }
}

TEST(ModelDeathTest, WeightsAreReadOnlyAfterLoad) {
  const MemoryFile memory = OpenRandom({});
  const auto model = LoadOrDie(*memory.file, {});
  ASSERT_NE(model, nullptr);
  auto* panels = const_cast<std::byte*>(model->head().panels);
  EXPECT_DEATH(*panels = std::byte{1}, "");
}

TEST(Model, DefaultModelLoadsExactlyAsItsFileSays) {
  const std::string path = testing::DefaultModelPath();
  KVRM_REQUIRE_DATA(path);
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto model = LoadOrDie(**file, {.num_threads = 2});
  ASSERT_NE(model, nullptr);
  const ModelConfig& config = model->config();
  EXPECT_EQ(config.num_layers, 30u);
  EXPECT_EQ(config.hidden, 576u);
  EXPECT_EQ(config.num_heads, 9u);
  EXPECT_EQ(config.num_kv_heads, 3u);
  EXPECT_EQ(config.head_dim, 64u);
  EXPECT_EQ(config.vocab, 49'152u);
  EXPECT_TRUE(config.tied_head);
  EXPECT_EQ(model->encoding_summary(), "q4 (210 linears), q8 (head)");
  EXPECT_EQ(model->tokenizer_spec().tokens.size(), 49'152u);
  for (const uint32_t l : {0u, 29u}) {
    ExpectRows(model->layers()[l].down, TensorValues(**file, LayerTensorName(l, "ffn_down")), 0);
    ExpectRows(model->layers()[l].qkv, TensorValues(**file, LayerTensorName(l, "attn_v")), 768);
  }
}

}  // namespace
}  // namespace kvrm
