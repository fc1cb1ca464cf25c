#include "model/config.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "base/test_data.h"
#include "model/model_test_support.h"

namespace kvrm {
namespace {

using testing::EditedModel;
using testing::MemoryFile;
using testing::OpenRandom;

// 4 layers; 8 query heads, 4 KV heads of 16; hidden 128, ffn 96.
RandomModelSpec Spec() {
  RandomModelSpec spec;
  spec.layers = 4;
  spec.hidden = 128;
  spec.heads = 8;
  spec.kv_heads = 4;
  return spec;
}

std::string ConfigError(const EditedModel& model) {
  const MemoryFile memory = model.Open();
  EXPECT_TRUE(memory.file) << memory.error;
  if (!memory.file) return "";
  const auto config = ReadConfig(*memory.file);
  EXPECT_FALSE(config.ok()) << "accepted";
  return config.ok() ? "" : config.error().message;
}

ModelConfig ConfigOf(const EditedModel& model) {
  const MemoryFile memory = model.Open();
  EXPECT_TRUE(memory.file) << memory.error;
  const auto config = ReadConfig(*memory.file);
  EXPECT_TRUE(config.ok()) << config.error().message;
  return config.ok() ? *config : ModelConfig{};
}

void ExpectHolds(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(Config, RandomModelReadsBackAsItsSpec) {
  const ModelConfig config = ConfigOf(EditedModel(Spec()));
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.name, "random-1");
  EXPECT_EQ(config.num_layers, 4u);
  EXPECT_EQ(config.hidden, 128u);
  EXPECT_EQ(config.ffn, 96u);
  EXPECT_EQ(config.num_heads, 8u);
  EXPECT_EQ(config.num_kv_heads, 4u);
  EXPECT_EQ(config.head_dim, 16u);
  EXPECT_EQ(config.rope_dims, 16u);
  EXPECT_EQ(config.rope_layout, RopeLayout::kInterleaved);
  EXPECT_EQ(config.vocab, 320u);
  EXPECT_EQ(config.max_context, 256u);
  EXPECT_FLOAT_EQ(config.norm_eps, 1e-5f);
  EXPECT_EQ(config.rope.base, 10'000.0);
  EXPECT_EQ(config.attention_scale, 0.25f);
  EXPECT_TRUE(config.rope.factors.empty());
}

TEST(Config, UnknownArchitecturesAreNamedWithThoseKnown) {
  const std::string message =
      ConfigError(EditedModel(Spec()).Set("general.architecture", std::string("mam\nba")));
  ExpectHolds(message, "'mam\\x0aba'");
  ExpectHolds(message, "known: llama");
  ExpectHolds(ConfigError(EditedModel(Spec()).Remove("general.architecture")),
              "'general.architecture' is missing");
}

TEST(Config, FeaturesThatWouldBeWrongToIgnoreAreRefused) {
  const auto set = [](const char* key, auto value) {
    return ConfigError(EditedModel(Spec()).Set(key, value));
  };
  ExpectHolds(set("llama.expert_count", uint64_t{8}), "expert_count");
  ExpectHolds(set("llama.embedding_length", uint64_t{100}), "embedding_length' is 100");
  ExpectHolds(set("llama.attention.value_length", uint64_t{8}), "value_length");
  ExpectHolds(ConfigError(EditedModel(Spec()).Put("blk.0.attn_q.bias", DType::kF32, {128})),
              "'blk.0.attn_q.bias'");
  const std::string message =
      ConfigError(EditedModel(Spec()).Put("blk.2.attn_q.weight", DType::kMXFP4, {128, 128}));
  ExpectHolds(message, "'blk.2.attn_q.weight' has type MXFP4");
}

// ---- B063: keys against each other and against the tensors

TEST(B063, HeadCountsThatDoNotFitAreRefused) {
  const auto set = [](const char* key, uint64_t value) {
    return ConfigError(EditedModel(Spec()).Set(key, value));
  };
  ExpectHolds(set("llama.attention.head_count", 0), "head_count' is 0");
  ExpectHolds(set("llama.attention.head_count_kv", 0), "head_count_kv' is 0");
  ExpectHolds(set("llama.attention.head_count_kv", 3), "multiple of llama.attention.head_count_kv");
  ExpectHolds(set("llama.attention.head_count_kv", 2), "'blk.0.attn_k.weight' has shape [128, 64]");
  ExpectHolds(set("llama.attention.key_length", 0), "key_length' is 0");
  ExpectHolds(ConfigError(EditedModel(Spec())
                              .Remove("llama.attention.key_length")
                              .Set("llama.attention.head_count", uint64_t{12})),
              "embedding_length' is 128");
  ExpectHolds(set("llama.rope.dimension_count", 17), "rope.dimension_count' is 17");
  ExpectHolds(set("llama.rope.dimension_count", 15), "must be even");
}

TEST(B063, LayerCountsThatDoNotFitTheTensorsAreRefused) {
  const auto set = [](uint64_t value) {
    return ConfigError(EditedModel(Spec()).Set("llama.block_count", value));
  };
  ExpectHolds(set(0), "block_count' is 0");
  ExpectHolds(set(3), "'blk.3.attn_norm.weight' is not one of family llama");
  ExpectHolds(set(5), "'blk.4.attn_norm.weight' is missing");
  ExpectHolds(set(uint64_t{1} << 31), "block_count' is 2147483648, must be 1 to");
}

TEST(B063, VocabulariesThatDoNotFitTheEmbeddingAreRefused) {
  ExpectHolds(ConfigError(EditedModel(Spec()).Set("llama.vocab_size", uint64_t{370})),
              "vocab_size' is 370, must equal the 320 rows");
  EditedModel model(Spec());
  model.Remove("llama.vocab_size").Put("token_embd.weight", DType::kQ8_0, {128, 270});
  ExpectHolds(ConfigError(model), "'tokenizer.ggml.tokens' has 320 entries, must equal the 270");
  const MemoryFile memory = model.Open();
  const auto spec = ReadTokenizerSpec(*memory.file);
  ASSERT_FALSE(spec.ok());
  ExpectHolds(spec.error().message, "320 entries, must be at most the 270 rows");
}

// A file of half a GiB, of which nothing but its beginning is ever touched.
TEST(B063, AnEmbeddingOfMoreRowsThanThereAreIdsIsRefused) {
  constexpr uint64_t kRows = (uint64_t{1} << 24) + 1, kRowBytes = 34;  // 32 values of Q8_0
  std::ifstream file(
      std::string(KVRM_SOURCE_DIR) + "/tests/fuzz/gguf/broken/tokens_of_another_size.config.gguf",
      std::ios::binary);
  std::string header{std::istreambuf_iterator<char>(file), {}};  // its only tensor: [32, 1]
  const std::string name = "token_embd.weight";
  const size_t at = header.find(name);
  ASSERT_NE(at, std::string::npos);
  std::memcpy(header.data() + at + name.size() + sizeof(uint32_t) + sizeof(uint64_t), &kRows,
              sizeof kRows);
  const size_t bytes = header.size() + kRows * kRowBytes;
  void* const map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(map, MAP_FAILED);
  std::memcpy(map, header.data(), header.size());
  const auto parsed = GgufFile::Parse({static_cast<const std::byte*>(map), bytes}, "large");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const auto config = ReadConfig(**parsed);
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().message,
            "large: tensor 'token_embd.weight' has 16777217 rows, must be at most 16777216");
  munmap(map, bytes);
}

TEST(B063, MissingKeysAreNamedAndOptionalOnesHaveTheirDefaults) {
  for (const char* key :
       {"llama.attention.layer_norm_rms_epsilon", "llama.context_length", "llama.block_count",
        "llama.embedding_length", "llama.feed_forward_length", "llama.attention.head_count"}) {
    ExpectHolds(ConfigError(EditedModel(Spec()).Remove(key)),
                "key '" + std::string(key) + "' is missing");
  }
  const ModelConfig config = ConfigOf(EditedModel(Spec())
                                          .Remove("llama.rope.freq_base")
                                          .Remove("llama.rope.dimension_count")
                                          .Remove("llama.attention.key_length")
                                          .Remove("llama.attention.value_length")
                                          .Remove("llama.vocab_size")
                                          .Remove("general.name"));
  EXPECT_EQ(config.rope.base, 10'000.0);
  EXPECT_EQ(config.rope_dims, 16u);
  EXPECT_EQ(config.head_dim, 16u);
  EXPECT_EQ(config.vocab, 320u);
  RandomModelSpec all_heads = Spec();
  all_heads.kv_heads = 8;
  EXPECT_EQ(ConfigOf(EditedModel(all_heads).Remove("llama.attention.head_count_kv")).num_kv_heads,
            8u);
}

TEST(B063, NumbersThatAreNoneAreRefused) {
  const auto set = [](const char* key, double value) {
    return ConfigError(EditedModel(Spec()).Set(key, value));
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  ExpectHolds(set("llama.attention.layer_norm_rms_epsilon", 0.0), "layer_norm_rms_epsilon");
  ExpectHolds(set("llama.attention.layer_norm_rms_epsilon", nan), "layer_norm_rms_epsilon");
  ExpectHolds(set("llama.rope.freq_base", -1.0), "rope.freq_base");
  ExpectHolds(set("llama.rope.freq_base", HUGE_VAL), "rope.freq_base");
  ExpectHolds(set("llama.attention.scale", nan), "attention.scale");
  ExpectHolds(ConfigError(EditedModel(Spec()).Set("llama.context_length", std::string("many"))),
              "context_length' has another type");
  ExpectHolds(ConfigError(EditedModel(Spec()).Set("llama.context_length", uint64_t{0})),
              "context_length' is 0");
}

TEST(B063, EveryTensorIsNeededInItsShape) {
  const MemoryFile whole = OpenRandom(Spec());
  for (const GgufTensor& tensor : whole.file->tensors()) {
    ExpectHolds(ConfigError(EditedModel(Spec()).Drop(tensor.name)),
                "tensor '" + tensor.name + "' is missing");
    // Another first dimension, still whole blocks; the vocabulary's rows stay what keys say.
    std::vector<uint64_t> dims = tensor.dims;
    dims[0] += 32;
    ExpectHolds(ConfigError(EditedModel(Spec()).Put(tensor.name, tensor.type, dims)),
                "tensor '" + tensor.name + "' has shape");
    dims = tensor.dims;
    dims.push_back(1);
    ExpectHolds(ConfigError(EditedModel(Spec()).Put(tensor.name, tensor.type, dims)),
                "tensor '" + tensor.name + "' has shape");
  }
}

// ---- B064: tied or separate head, by what the file holds (values: model_test.cc)

TEST(B064, HeadIsTiedExactlyWhenOutputWeightIsAbsent) {
  RandomModelSpec spec = Spec();
  EXPECT_TRUE(ConfigOf(EditedModel(spec)).tied_head);
  spec.tied = false;
  EXPECT_FALSE(ConfigOf(EditedModel(spec)).tied_head);
  ExpectHolds(ConfigError(EditedModel(spec).Put("output.weight", DType::kQ8_0, {128, 319})),
              "'output.weight' has shape [128, 319], must be [128, 320]");
}

// ---- B065: position scaling reaches the rotation, or is refused by name

TEST(B065, LinearScalingDividesEveryFrequency) {
  EditedModel model(Spec());
  model.Set("llama.rope.scaling.type", std::string("linear"));
  model.Set("llama.rope.scaling.factor", 4.0);
  EXPECT_EQ(ConfigOf(model).rope.factors, std::vector<float>(8, 4.0f));
  // Absent type means linear; an older key says the factor too.
  model.Remove("llama.rope.scaling.type");
  EXPECT_EQ(ConfigOf(model).rope.factors, std::vector<float>(8, 4.0f));
  model.Remove("llama.rope.scaling.factor").Set("llama.rope.scale_linear", 2.0);
  EXPECT_EQ(ConfigOf(model).rope.factors, std::vector<float>(8, 2.0f));
  model.Set("llama.rope.scaling.type", std::string("none"));
  EXPECT_TRUE(ConfigOf(model).rope.factors.empty());
}

TEST(B065, FactorsTensorIsHandedOver) {
  RandomModelSpec spec = Spec();
  spec.rope_base = 500'000.0f;
  spec.rope_factors = {1, 1, 1.5f, 2, 4, 8, 8, 8};
  const ModelConfig config = ConfigOf(EditedModel(spec));
  EXPECT_EQ(config.rope.factors, spec.rope_factors);
  EXPECT_EQ(config.rope.base, 500'000.0);
  EditedModel both(spec);
  both.Set("llama.rope.scaling.factor", 2.0);
  EXPECT_EQ(ConfigOf(both).rope.factors, (std::vector<float>{2, 2, 3, 4, 8, 16, 16, 16}));
  spec.rope_factors[5] = 0;
  ExpectHolds(ConfigError(EditedModel(spec)), "'rope_freqs.weight' holds 0.000000 at 5");
  spec.rope_factors[5] = std::numeric_limits<float>::quiet_NaN();
  ExpectHolds(ConfigError(EditedModel(spec)), "'rope_freqs.weight' holds");
}

TEST(B065, ScalingKindsThatAreNotBuiltAreRefusedByName) {
  for (const char* kind : {"longrope", "llama3", ""}) {
    ExpectHolds(ConfigError(EditedModel(Spec()).Set("llama.rope.scaling.type", std::string(kind))),
                "'llama.rope.scaling.type' is '" + std::string(kind) + "'");
  }
  ExpectHolds(ConfigError(EditedModel(Spec()).Set("llama.rope.scaling.factor", 0.0)),
              "rope.scaling.factor");
  ExpectHolds(ConfigError(EditedModel(Spec()).Set("llama.rope.scaling.attn_factor", 0.5)),
              "attn_factor");
  ExpectHolds(ConfigError(EditedModel(Spec()).Put("rope_factors_long.weight", DType::kF32, {8})),
              "rope_factors_long.weight");
}

// ---- windows

std::vector<uint32_t> WindowsOf(const EditedModel& model) {
  const MemoryFile memory = model.Open();
  const auto config = ReadConfig(*memory.file);
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  std::vector<uint32_t> windows;
  for (const LayerConfig& layer : config->layers) windows.push_back(layer.window);
  return windows;
}

TEST(Windows, ThePatternSaysWhichLayersSlide) {
  RandomModelSpec spec;
  spec.layers = 4;
  const auto model = [&] {
    return EditedModel(spec).Set("llama.attention.sliding_window", uint64_t{24});
  };
  const std::string pattern = "llama.attention.sliding_window_pattern";
  using List = std::vector<uint32_t>;
  EXPECT_EQ(WindowsOf(EditedModel(spec)), List(4, 0));
  EXPECT_EQ(WindowsOf(model()), List(4, 24));
  EXPECT_EQ(WindowsOf(model().Set(pattern, uint64_t{2})), (List{24, 0, 24, 0}));
  EXPECT_EQ(WindowsOf(model().Set(pattern, uint64_t{1})), List(4, 0));
  EXPECT_EQ(WindowsOf(model().Set(pattern, std::vector<int64_t>{0, 1, 1, 0})),
            (List{0, 24, 24, 0}));
  // The context is 256: a window of as many tokens hides nothing.
  EXPECT_EQ(WindowsOf(model().Set("llama.attention.sliding_window", uint64_t{256})), List(4, 0));
  EXPECT_EQ(WindowsOf(model().Set("llama.attention.sliding_window", uint64_t{0})), List(4, 0));
}

TEST(Windows, WhatMakesNoSenseIsRefused) {
  RandomModelSpec spec;
  ExpectHolds(ConfigError(EditedModel(spec).Set("llama.attention.sliding_window", uint64_t{1})),
              "sliding window is 1");
  ExpectHolds(ConfigError(EditedModel(spec).Set("llama.attention.sliding_window_pattern",
                                                std::vector<int64_t>{1})),
              "has 1 entries");
}

// ---- KV geometry

TEST(KvGeometryOf, DefaultModelHasTheGeometryOfTheArchitecture) {
  ModelConfig config;
  config.num_layers = 30;
  config.layers.resize(30);
  config.num_kv_heads = 3;
  config.head_dim = 64;
  const auto geometry = KvGeometryOf(config, KvFormat::kF16);
  ASSERT_TRUE(geometry.ok());
  ASSERT_EQ(geometry->groups.size(), 1u);
  const KvGroupGeometry& group = geometry->groups[0];
  EXPECT_EQ(group.kind, KvGroupKind::kFull);
  EXPECT_EQ(group.part_page_bytes, 12'288u);
  EXPECT_EQ(group.num_parts, 30u);
  EXPECT_EQ(group.superblock_bytes, 6u << 20);
  EXPECT_EQ(group.pages_per_superblock, 17u);
  EXPECT_EQ(geometry->bytes_per_token(), 23'040u);
  EXPECT_EQ(geometry->layer_group, std::vector<uint8_t>(30, 0));
  EXPECT_EQ(geometry->layer_part.size(), 30u);
  EXPECT_EQ(geometry->layer_part[29], 29u);
  EXPECT_EQ(KvGeometryOf(config, KvFormat::kF32)->groups[0].part_page_bytes, 24'576u);
  const auto int8 = KvGeometryOf(config, KvFormat::kInt8);
  ASSERT_TRUE(int8.ok());
  EXPECT_EQ(int8->groups[0].format, KvFormat::kInt8);
  EXPECT_EQ(int8->groups[0].part_page_bytes, 6'336u);
  EXPECT_EQ(int8->groups[0].superblock_bytes, 4u << 20);
  EXPECT_EQ(int8->groups[0].pages_per_superblock, 22u);
  EXPECT_EQ(int8->bytes_per_token(), 11'880u);
}

TEST(KvGeometryOf, EachWindowIsAGroupOfItsLayers) {
  ModelConfig config;
  config.num_layers = 6;
  config.num_kv_heads = 2;
  config.head_dim = 64;
  config.layers = {{512}, {512}, {0}, {512}, {512}, {0}};
  const auto geometry = KvGeometryOf(config, KvFormat::kF16);
  ASSERT_TRUE(geometry.ok());
  ASSERT_EQ(geometry->groups.size(), 2u);
  EXPECT_EQ(geometry->groups[0].kind, KvGroupKind::kFull);
  EXPECT_EQ(geometry->groups[0].num_parts, 2u);
  EXPECT_EQ(geometry->groups[1].kind, KvGroupKind::kSliding);
  EXPECT_EQ(geometry->groups[1].window_tokens, 512u);
  EXPECT_EQ(geometry->groups[1].num_parts, 4u);
  EXPECT_EQ(geometry->layer_group, (std::vector<uint8_t>{1, 1, 0, 1, 1, 0}));
  EXPECT_EQ(geometry->layer_part, (std::vector<uint16_t>{0, 1, 0, 2, 3, 1}));
  config.layers = {{512}, {512}, {512}, {512}, {512}, {512}};
  EXPECT_EQ(KvGeometryOf(config, KvFormat::kF16)->groups.size(), 1u);
  config.layers = {{1}, {2}, {3}, {4}, {5}, {6}};
  const auto many = KvGeometryOf(config, KvFormat::kF16);
  ASSERT_FALSE(many.ok());
  ExpectHolds(many.error().message, "6 different windows");
}

TEST(KvGeometryOf, WhatIsNotBuiltIsRefused) {
  ModelConfig config;
  config.num_layers = 2;
  config.layers.resize(2);
  config.num_kv_heads = 2;
  config.head_dim = 64;
  config.head_dim = 40;
  for (const KvFormat format : {KvFormat::kF32, KvFormat::kF16, KvFormat::kInt8}) {
    const auto geometry = KvGeometryOf(config, format);
    ASSERT_FALSE(geometry.ok());
    ExpectHolds(geometry.error().message, "head length 40");
  }
}

// ---- tokenizer

std::string SpecError(const EditedModel& model) {
  const MemoryFile memory = model.Open();
  const auto spec = ReadTokenizerSpec(*memory.file);
  EXPECT_FALSE(spec.ok()) << "accepted";
  return spec.ok() ? "" : spec.error().message;
}

TEST(TokenizerSpec, ReadsWhatTheFileSays) {
  const MemoryFile memory = OpenRandom(Spec());
  const auto spec = ReadTokenizerSpec(*memory.file);
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->model, "gpt2");
  EXPECT_EQ(spec->pre, "smollm");
  ASSERT_EQ(spec->tokens.size(), 320u);
  EXPECT_EQ(spec->tokens[1], "<|im_start|>");
  EXPECT_EQ(spec->types[1], TokenType::kControl);
  EXPECT_EQ(spec->types[3], TokenType::kNormal);
  EXPECT_EQ(spec->bos, 1);
  EXPECT_EQ(spec->eos, 2);
  EXPECT_EQ(spec->eot, -1);
  EXPECT_EQ(spec->unknown, 0);
  EXPECT_FALSE(spec->add_bos);
  EXPECT_EQ(spec->chat_template, kRandomModelChatTemplate);
  EXPECT_FALSE(spec->merges.empty());
}

TEST(TokenizerSpec, AStartTokenThatTheFileSaysNothingAboutIsLeftToThePreTokenizersName) {
  const std::string key = "tokenizer.ggml.add_bos_token";
  const MemoryFile silent = EditedModel(Spec()).Remove(key).Open();
  EXPECT_TRUE(ReadTokenizerSpec(*silent.file)->add_bos_unsaid);
  for (const bool said : {false, true}) {
    const MemoryFile file = EditedModel(Spec()).Set(key, said).Open();
    const auto spec = ReadTokenizerSpec(*file.file);
    EXPECT_FALSE(spec->add_bos_unsaid);
    EXPECT_EQ(spec->add_bos, said);
  }
}

TEST(TokenizerSpec, ContradictionsAreRefusedByKey) {
  EditedModel model(Spec());
  ExpectHolds(SpecError(EditedModel(Spec()).Remove("tokenizer.ggml.model")), "ggml.model");
  ExpectHolds(SpecError(EditedModel(Spec()).Remove("tokenizer.ggml.tokens")), "ggml.tokens");
  ExpectHolds(SpecError(EditedModel(Spec()).Set("tokenizer.ggml.tokens", uint64_t{3})),
              "an array of strings");
  ExpectHolds(
      SpecError(EditedModel(Spec()).Set("tokenizer.ggml.token_type", std::vector<int64_t>(319, 1))),
      "token_type' has 319 entries, must have 320");
  std::vector<int64_t> types(320, 1);
  types[7] = 9;
  ExpectHolds(SpecError(EditedModel(Spec()).Set("tokenizer.ggml.token_type", types)),
              "entry 7 is 9, must be 1 to 6");
  ExpectHolds(SpecError(EditedModel(Spec()).Set("tokenizer.ggml.eos_token_id", uint64_t{320})),
              "eos_token_id' is 320, must be below 320");
  const MemoryFile none =
      EditedModel(Spec()).Set("tokenizer.ggml.eos_token_id", uint64_t{0xFFFF'FFFF}).Open();
  const auto spec = ReadTokenizerSpec(*none.file);
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->eos, -1);
}

}  // namespace
}  // namespace kvrm
