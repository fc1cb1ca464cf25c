#include "model/random_model.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "model/family.h"
#include "model/gguf_writer.h"
#include "model/model_tensors.h"

namespace kvrm {

const char kRandomModelChatTemplate[] =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

namespace {

constexpr uint32_t kNumControl = 3;
constexpr uint16_t kHalfNaN = 0x7E00;

// splitmix64: the standard library's distributions differ between implementations.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    state_ += 0x9E37'79B9'7F4A'7C15u;
    uint64_t z = state_;
    z = (z ^ z >> 30) * 0xBF58'476D'1CE4'E5B9u;
    z = (z ^ z >> 27) * 0x94D0'49BB'1331'11EBu;
    return z ^ z >> 31;
  }
  // Uniform in [low, high), on a grid of 2^-24 of the width.
  float Uniform(float low, float high) {
    return low + (high - low) * (static_cast<float>(Next() >> 40) * 0x1p-24f);
  }

 private:
  uint64_t state_;
};

void PutHalfAt(size_t at, uint16_t bits, std::vector<std::byte>* blocks) {
  std::memcpy(blocks->data() + at, &bits, sizeof bits);
}

// Where the fp16 scale lies in a block of a quantised type.
size_t ScaleOffset(DType type) { return type == DType::kQ6_K ? 208 : 0; }

// One block of a quantised type whose values are spread evenly over about [-a, a].
void FillQuantBlock(DType type, float a, size_t at, Random* random,
                    std::vector<std::byte>* blocks) {
  // Codes reach one step further down than up: scales of both signs even that out.
  const float sign = (random->Next() & 1) != 0 ? 1.0f : -1.0f;
  const float width = sign * a * random->Uniform(0.75f, 1.25f);
  const size_t block_bytes = GetDType(type).block_bytes;
  for (size_t i = 0; i < block_bytes; ++i) {
    (*blocks)[at + i] = static_cast<std::byte>(random->Next() & 0xFF);
  }
  switch (type) {
    case DType::kQ4_0:
      return PutHalfAt(at, FloatToHalf(width / 8), blocks);
    case DType::kQ4_1:
      PutHalfAt(at, FloatToHalf(width / 7.5f), blocks);
      return PutHalfAt(at + 2, FloatToHalf(-width), blocks);
    case DType::kQ8_0:
      return PutHalfAt(at, FloatToHalf(width / 127), blocks);
    case DType::kQ6_K:
      for (size_t i = 0; i < 16; ++i) {  // scales 48..79: none so small that its values vanish
        (*blocks)[at + 192 + i] = static_cast<std::byte>(48 + random->Next() % 32);
      }
      return PutHalfAt(at + 208, FloatToHalf(width / (32 * 64)), blocks);
    default:
      KVRM_CHECK(false, "random models have types F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q6_K");
  }
}

void PutFloatAt(DType type, float value, size_t at, std::vector<std::byte>* blocks) {
  if (type == DType::kF32) {
    std::memcpy(blocks->data() + at, &value, sizeof value);
  } else if (type == DType::kF16) {
    PutHalfAt(at, FloatToHalf(value), blocks);
  } else {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    PutHalfAt(at, static_cast<uint16_t>(bits >> 16), blocks);
  }
}

// GPT-2's printable stand-in for a byte: itself where it is visible Latin-1, else a character from
// U+0100 on, in byte order.
std::string ByteCharacter(uint32_t byte) {
  const auto visible = [](uint32_t b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
  };
  uint32_t code = byte;
  if (!visible(byte)) {
    code = 0x100;
    for (uint32_t b = 0; b < byte; ++b) code += visible(b) ? 0 : 1;
  }
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

class RandomModelWriter {
 public:
  explicit RandomModelWriter(const RandomModelSpec& spec)
      : spec_(spec), family_(FindFamily(spec.family)), random_(spec.seed) {
    KVRM_CHECK(family_ != nullptr, "a random model is of a known family");
    KVRM_CHECK(spec.vocab >= kMinRandomVocab, "a random vocabulary holds every byte");
  }

  std::vector<std::byte> Run() {
    WriteModelKeys();
    WriteTokenizer();
    WriteTensors();
    return file_.Finish();
  }

 private:
  std::string Key(const char* name) const { return spec_.family + "." + name; }

  void WriteModelKeys() {
    file_.AddString("general.architecture", spec_.family);
    file_.AddString("general.name", "random-" + std::to_string(spec_.seed));
    file_.AddUint32(Key("block_count"), spec_.layers);
    file_.AddUint32(Key("context_length"), spec_.context);
    file_.AddUint32(Key("embedding_length"), spec_.hidden);
    file_.AddUint32(Key("feed_forward_length"), spec_.ffn);
    file_.AddUint32(Key("attention.head_count"), spec_.heads);
    file_.AddUint32(Key("attention.head_count_kv"), spec_.kv_heads);
    file_.AddUint32(Key("attention.key_length"), spec_.head_dim);
    file_.AddUint32(Key("attention.value_length"), spec_.head_dim);
    file_.AddUint32(Key("rope.dimension_count"), spec_.head_dim);
    file_.AddFloat32(Key("rope.freq_base"), spec_.rope_base);
    file_.AddFloat32(Key("attention.layer_norm_rms_epsilon"), 1e-5f);
    file_.AddUint32(Key("vocab_size"), spec_.vocab);
    if (spec_.window == 0) return;
    file_.AddUint32(Key("attention.sliding_window"), spec_.window);
    file_.AddUint32(Key("attention.sliding_window_pattern"), spec_.full_every);
  }

  void WriteTokenizer() {
    StringList tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    std::vector<int32_t> types(kNumControl, /*control*/ 3);
    for (uint32_t byte = 0; byte < 256; ++byte) tokens.push_back(ByteCharacter(byte));
    StringList merges;
    AddMerges(&tokens, &merges);
    types.resize(tokens.size(), /*normal*/ 1);
    while (tokens.size() < spec_.vocab) {
      tokens.push_back("<unused" + std::to_string(tokens.size()) + ">");
      types.push_back(/*unused*/ 5);
    }
    file_.AddString("tokenizer.ggml.model", "gpt2");
    file_.AddString("tokenizer.ggml.pre", "smollm");
    file_.AddStrings("tokenizer.ggml.tokens", tokens);
    file_.AddInt32s("tokenizer.ggml.token_type", types);
    file_.AddStrings("tokenizer.ggml.merges", merges);
    file_.AddUint32("tokenizer.ggml.bos_token_id", 1);
    file_.AddUint32("tokenizer.ggml.eos_token_id", 2);
    file_.AddUint32("tokenizer.ggml.unknown_token_id", 0);
    file_.AddUint32("tokenizer.ggml.padding_token_id", 2);
    file_.AddBool("tokenizer.ggml.add_bos_token", false);
    if (!spec_.chat_template.empty()) {
      file_.AddString("tokenizer.chat_template", spec_.chat_template);
    }
  }

  // Some frequent beginnings, then every pair of small letters, as far as the vocabulary has room.
  // Each merge joins two tokens that are there already.
  void AddMerges(StringList* tokens, StringList* merges) const {
    const std::string space = ByteCharacter(' ');
    const auto add = [&](const std::string& left, const std::string& right) {
      if (tokens->size() >= spec_.vocab) return;
      tokens->push_back(left + right);
      merges->push_back(left + " " + right);
    };
    add(space, "t");
    add("h", "e");
    add(space, "a");
    add(space + "t", "he");
    add("i", "n");
    for (char left = 'a'; left <= 'z'; ++left) {
      for (char right = 'a'; right <= 'z'; ++right) {
        const std::string pair = {left, right};
        if (pair != "he" && pair != "in") add({left}, {right});
      }
    }
  }

  std::vector<std::byte> RandomBlocks(const std::string& name, DType type, uint64_t k, uint64_t n,
                                      float a) {
    const DTypeInfo& info = GetDType(type);
    KVRM_CHECK(k % info.block_values == 0, "a random model's rows are whole blocks of their type");
    const size_t row_bytes = k / info.block_values * info.block_bytes;
    std::vector<std::byte> blocks(n * row_bytes);
    for (size_t at = 0; at < blocks.size(); at += info.block_bytes) {
      if (info.block_values > 1) {
        FillQuantBlock(type, a, at, &random_, &blocks);
      } else {
        PutFloatAt(type, random_.Uniform(-a, a), at, &blocks);
      }
    }
    if (name == spec_.nan_tensor) PlantNaN(type, spec_.nan_row * row_bytes, &blocks);
    return blocks;
  }

  static void PlantNaN(DType type, size_t at, std::vector<std::byte>* blocks) {
    KVRM_CHECK(at < blocks->size(), "the row of a planted NaN exists");
    if (GetDType(type).block_values > 1) {
      PutHalfAt(at + ScaleOffset(type), kHalfNaN, blocks);
    } else {
      PutFloatAt(type, std::numeric_limits<float>::quiet_NaN(), at, blocks);
    }
  }

  void AddMatrix(const std::string& name, DType type, const std::vector<uint64_t>& dims, float a) {
    file_.AddTensor(name, type, dims, RandomBlocks(name, type, dims[0], dims[1], a));
  }

  void AddVector(const std::string& name, uint64_t k, float low, float high) {
    std::vector<std::byte> blocks(k * sizeof(float));
    for (size_t i = 0; i < k; ++i) {
      PutFloatAt(DType::kF32, random_.Uniform(low, high), i * sizeof(float), &blocks);
    }
    if (name == spec_.nan_tensor) PlantNaN(DType::kF32, 0, &blocks);
    file_.AddTensor(name, DType::kF32, {k}, std::move(blocks));
  }

  void WriteTensors() {
    ModelConfig config;
    config.num_layers = spec_.layers;
    config.hidden = spec_.hidden;
    config.ffn = spec_.ffn;
    config.num_heads = spec_.heads;
    config.num_kv_heads = spec_.kv_heads;
    config.head_dim = config.rope_dims = spec_.head_dim;
    config.vocab = spec_.vocab;
    const Status known = ApplyFamily(*family_, {}, &config);
    KVRM_CHECK(known.ok(), "a family's own facts agree");
    for (const TensorShape& shape : ModelTensors(config)) {
      // Even spread over [-a, a] has deviation a / sqrt(3): linears keep the deviation of a normed
      // input, the head makes logits some units wide.
      const float unit = std::sqrt(3.0f / static_cast<float>(shape.dims[0]));
      if (shape.name == kRopeFactorsTensor) {
        WriteRopeFactors(shape);
      } else if (shape.dims.size() == 1) {
        AddVector(shape.name, shape.dims[0], 0.75f, 1.25f);
      } else if (shape.name == kEmbeddingTensor) {
        AddMatrix(shape.name, spec_.embedding_type, shape.dims, 3 * unit);
      } else if (shape.name != kOutputTensor) {
        AddMatrix(shape.name, spec_.linear_type, shape.dims, unit);
      } else if (!spec_.tied) {
        AddMatrix(shape.name, spec_.embedding_type, shape.dims, 3 * unit);
      }
    }
  }

  void WriteRopeFactors(const TensorShape& shape) {
    if (spec_.rope_factors.empty()) return;
    KVRM_CHECK(spec_.rope_factors.size() == shape.dims[0], "one RoPE factor per pair of a head");
    std::vector<std::byte> blocks(spec_.rope_factors.size() * sizeof(float));
    std::memcpy(blocks.data(), spec_.rope_factors.data(), blocks.size());
    file_.AddTensor(shape.name, DType::kF32, shape.dims, std::move(blocks));
  }

  const RandomModelSpec& spec_;
  const Family* family_;
  Random random_;
  GgufWriter file_;
};

}  // namespace

std::vector<std::byte> WriteRandomModel(const RandomModelSpec& spec) {
  return RandomModelWriter(spec).Run();
}

}  // namespace kvrm
