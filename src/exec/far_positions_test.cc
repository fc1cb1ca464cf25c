// B065: what position scaling does near the beginning of a text it does far out as well (that it
// does the right thing near the beginning is tests/golden), and from far out to the beginning.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/largest_difference.h"
#include "exec/test_stack.h"
#include "model/gguf.h"
#include "model/yarn.h"

namespace kvrm::testing {
namespace {

constexpr uint32_t kTail = 64;  // more than two layers with a window of 16 see

std::vector<TokenId> RandomTokens(std::mt19937& random, uint32_t count, uint32_t vocab) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % vocab);
  return tokens;
}

struct Scaling {
  const char* name;
  std::vector<float> factors;
};

// Rotation counts distances alone: the same last tokens give the same logits wherever they stand.
TEST(B065, TheSameWindowGivesTheSameLogitsAtAnyPosition) {
  const Scaling kinds[] = {
      {"none", {}},
      {"linear", std::vector<float>(8, 4.0f)},
      {"llama3", {1, 1, 1, 1.5f, 2.3f, 8, 8, 8}},
      {"yarn", YarnDivisors({.factor = 4, .original_context = 8192}, 500'000, 16)},
  };
  for (const Scaling& kind : kinds) {
    SCOPED_TRACE(kind.name);
    TestStackConfig config;
    config.spec.hidden = config.spec.ffn = 32;
    config.spec.heads = 2;
    config.spec.kv_heads = 1;
    config.spec.context = 32'768;
    config.spec.window = 16;
    config.spec.rope_base = 500'000;
    config.spec.rope_factors = kind.factors;
    config.spec.linear_type = config.spec.embedding_type = DType::kF32;
    config.load.weights = WeightChoice::kF32;
    config.kv_format = KvFormat::kF32;
    TestStack stack(config);
    std::mt19937 random(7);
    const uint32_t vocab = stack.model().config().vocab;
    const std::vector<TokenId> tail = RandomTokens(random, kTail, vocab);
    const SeqId seq = stack.Open();
    const std::vector<float> near = stack.Logits(stack.Step({{seq, tail}}), 0);
    const double greatest = LargestNumber(near);
    ASSERT_LT(greatest, 1e6);
    uint32_t position = kTail;
    for (const uint32_t last : {127u, 5'000u, 9'000u, 20'000u}) {
      while (position < last + 1 - kTail) {
        const uint32_t count = std::min(kTail, last + 1 - kTail - position);
        stack.Step({{seq, RandomTokens(random, count, vocab)}});
        position += count;
      }
      const std::vector<float> far = stack.Logits(stack.Step({{seq, tail}}), 0);
      position += kTail;
      EXPECT_LE(LargestDifference(far, near), 1e-5 * greatest)
          << "the last token at " << position - 1;
    }
  }
}

// ---- against a computation of the test's own, in double

using Numbers = std::vector<double>;

// The logits of the last token of a text, of a model with one layer that sees everything: what the
// model's file says, read as it stands. Angles come from `angle_of(position, pair)`.
class DoubleOracle {
 public:
  using AngleOf = std::function<double(uint32_t position, uint32_t pair)>;

  DoubleOracle(const GgufFile& file, const RandomModelSpec& spec) : spec_(spec) {
    for (const GgufTensor& tensor : file.tensors()) {
      KVRM_CHECK(tensor.type == DType::kF32, "the test's model holds float32");
      Numbers& numbers = tensors_[tensor.name];
      numbers.resize(tensor.num_values);
      for (size_t i = 0; i < numbers.size(); ++i) {
        float number;
        std::memcpy(&number, tensor.data.data() + i * sizeof number, sizeof number);
        numbers[i] = number;
      }
    }
  }

  Numbers Logits(const std::vector<TokenId>& tokens, const AngleOf& angle_of) const {
    const uint32_t dim = spec_.head_dim;
    const auto last = static_cast<uint32_t>(tokens.size() - 1);
    std::vector<Numbers> keys, values;
    for (uint32_t position = 0; position <= last; ++position) {
      const Numbers x = Normed(Embedded(tokens[position]), "blk.0.attn_norm.weight");
      keys.push_back(Rotated(Linear("blk.0.attn_k.weight", x), position, angle_of));
      values.push_back(Linear("blk.0.attn_v.weight", x));
    }
    Numbers hidden = Embedded(tokens[last]);
    const Numbers queries = Rotated(
        Linear("blk.0.attn_q.weight", Normed(hidden, "blk.0.attn_norm.weight")), last, angle_of);
    Numbers seen;
    for (uint32_t head = 0; head < spec_.heads; ++head) {
      const uint32_t kv_head = head / (spec_.heads / spec_.kv_heads);
      const Numbers one =
          Attended({queries.begin() + head * dim, queries.begin() + (head + 1) * dim}, keys, values,
                   kv_head);
      seen.insert(seen.end(), one.begin(), one.end());
    }
    Add(&hidden, Linear("blk.0.attn_output.weight", seen));
    const Numbers x = Normed(hidden, "blk.0.ffn_norm.weight");
    Numbers gated = Linear("blk.0.ffn_gate.weight", x);
    const Numbers up = Linear("blk.0.ffn_up.weight", x);
    for (size_t i = 0; i < gated.size(); ++i) gated[i] *= up[i] / (1 + std::exp(-gated[i]));
    Add(&hidden, Linear("blk.0.ffn_down.weight", gated));
    return Linear("token_embd.weight", Normed(hidden, "output_norm.weight"));
  }

 private:
  static void Add(Numbers* to, const Numbers& what) {
    for (size_t i = 0; i < to->size(); ++i) (*to)[i] += what[i];
  }
  Numbers Embedded(TokenId token) const {
    const Numbers& table = tensors_.at("token_embd.weight");
    const auto row = table.begin() + static_cast<ptrdiff_t>(token) * spec_.hidden;
    return {row, row + spec_.hidden};
  }
  Numbers Linear(const std::string& name, const Numbers& x) const {
    const Numbers& weights = tensors_.at(name);
    Numbers y(weights.size() / x.size());
    for (size_t i = 0; i < weights.size(); ++i) y[i / x.size()] += weights[i] * x[i % x.size()];
    return y;
  }
  Numbers Normed(Numbers x, const std::string& name) const {
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + 1e-5);
    for (size_t i = 0; i < x.size(); ++i) x[i] *= scale * tensors_.at(name)[i];
    return x;
  }
  // Pairs (2i, 2i + 1) of each head.
  Numbers Rotated(Numbers x, uint32_t position, const AngleOf& angle_of) const {
    for (size_t at = 0; at < x.size(); at += 2) {
      const auto pair = static_cast<uint32_t>(at % spec_.head_dim / 2);
      const double angle = angle_of(position, pair), even = x[at], odd = x[at + 1];
      x[at] = even * std::cos(angle) - odd * std::sin(angle);
      x[at + 1] = even * std::sin(angle) + odd * std::cos(angle);
    }
    return x;
  }
  Numbers Attended(const Numbers& query, const std::vector<Numbers>& keys,
                   const std::vector<Numbers>& values, uint32_t kv_head) const {
    const size_t first = size_t{kv_head} * query.size();
    Numbers scores;
    for (const Numbers& key : keys) {
      double score = 0;
      for (size_t i = 0; i < query.size(); ++i) score += query[i] * key[first + i];
      scores.push_back(score / std::sqrt(static_cast<double>(query.size())));
    }
    const double most = *std::ranges::max_element(scores);
    Numbers sum(query.size());
    double total = 0;
    for (size_t p = 0; p < keys.size(); ++p) {
      const double weight = std::exp(scores[p] - most);
      total += weight;
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += weight * values[p][first + i];
    }
    for (double& value : sum) value /= total;
    return sum;
  }

  RandomModelSpec spec_;
  std::map<std::string, Numbers> tensors_;
};

// The other end of the text is up to 20,000 tokens away.
TEST(B065, ARowFarOutSeesTheWholeTextAsItsAnglesInDoubleSay) {
  const Scaling kinds[] = {
      {"none", {}},
      {"linear", std::vector<float>(8, 4.0f)},
      {"llama3", {1, 1, 1, 1.5f, 2.3f, 8, 8, 8}},
      {"yarn", YarnDivisors({.factor = 4, .original_context = 8192}, 500'000, 16)},
  };
  constexpr double kFarTolerance = 2e-6;  // of the greatest logit
  for (const Scaling& kind : kinds) {
    SCOPED_TRACE(kind.name);
    TestStackConfig config;
    config.spec.layers = 1;
    config.spec.hidden = config.spec.ffn = 32;
    config.spec.heads = 2;
    config.spec.kv_heads = 1;
    config.spec.context = 32'768;
    config.spec.rope_base = 500'000;
    config.spec.rope_factors = kind.factors;
    config.spec.linear_type = config.spec.embedding_type = DType::kF32;
    config.load.weights = WeightChoice::kF32;
    config.kv_format = KvFormat::kF32;
    TestStack stack(config);
    const auto file = GgufFile::Parse(stack.file_bytes(), "model");
    ASSERT_TRUE(file.ok());
    const DoubleOracle oracle(**file, config.spec);
    const auto exact = [&](uint32_t position, uint32_t pair) {
      const double frequency = std::pow(500'000.0, -2.0 * pair / 16);
      return position * frequency / (kind.factors.empty() ? 1.0 : kind.factors[pair]);
    };
    // Two faults that the comparison must see.
    const auto no_farther = [&](uint32_t position, uint32_t pair) {
      return exact(std::min(position, 8'191u), pair);
    };
    const auto without_scaling = [&](uint32_t position, uint32_t pair) {
      return position * std::pow(500'000.0, -2.0 * pair / 16);
    };
    std::mt19937 random(11);
    std::vector<TokenId> text;
    const SeqId seq = stack.Open();
    for (const uint32_t length : {64u, 8'256u, 20'032u}) {
      std::vector<float> logits;
      while (text.size() < length) {
        const auto tokens = RandomTokens(random, kTail, stack.model().config().vocab);
        text.insert(text.end(), tokens.begin(), tokens.end());
        logits = stack.Logits(stack.Step({{seq, tokens}}), 0);
      }
      const Numbers wanted = oracle.Logits(text, exact);
      const double bound = kFarTolerance * LargestNumber(wanted);
      const auto distance = [&](const Numbers& other) { return LargestDifference(other, wanted); };
      EXPECT_LE(LargestDifference(logits, wanted), bound);
      if (length > 8'192) {
        EXPECT_GT(distance(oracle.Logits(text, no_farther)), bound) << length;
      }
      if (!kind.factors.empty()) {
        EXPECT_GT(distance(oracle.Logits(text, without_scaling)), bound) << length;
      }
    }
  }
}

}  // namespace
}  // namespace kvrm::testing
