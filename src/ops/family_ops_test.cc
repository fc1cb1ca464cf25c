// What some families ask of the ops beside llama's: scaled embeddings, norms of heads, norms that
// add, biases, capped logits, GELU, layers that do not rotate.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "ops/kernel_test_support.h"
#include "ops/op_args.h"
#include "ops/reference.h"
#include "ops/rope_test_case.h"
#include "tensor/encoding.h"

namespace kvrm::ops {
namespace {

using testing::AllMachines;
using testing::kInf;
using testing::kNaN;
using testing::RandomFloats;
using testing::SameBytes;
using testing::VectorMachines;

// One row of ten outputs more than a panel, in float32: w = [32 outputs, k].
struct FloatLinear {
  explicit FloatLinear(uint32_t width) : k(width) {
    std::mt19937 rng(width);
    file = RandomFloats(size_t{kOutputs} * k, -0.5f, 0.5f, rng);
    panels.resize(EncodedBytes(Encoding::kF32, kOutputs, k));
    EXPECT_TRUE(
        EncodeRows(Encoding::kF32, DType::kF32, file.data(), kOutputs, k, 0, panels.data()).ok());
    x = RandomFloats(size_t{kRows} * k, -3.0f, 3.0f, rng);
    bias = RandomFloats(kOutputs, -1.0f, 1.0f, rng);
    residual = RandomFloats(size_t{kRows} * kOutputs, -1.0f, 1.0f, rng);
  }
  struct Wanted {
    bool bias = false, add = false;
    float soft_cap = 0;
    float* panel_max = nullptr;
  };
  std::vector<float> Run(const KernelTable& machine, const Wanted& wanted) const {
    std::vector<float> out(size_t{kRows} * kOutputs, -7.0f);
    LinearArgs args{};
    args.in = reinterpret_cast<const std::byte*>(x.data());
    args.in_stride = k * sizeof(float);
    args.panels = panels.data();
    args.encoding = Encoding::kF32;
    args.k = k;
    args.n = args.n_live = kOutputs;
    args.num_rows = kRows;
    args.add = wanted.add ? residual.data() : nullptr;
    args.bias = wanted.bias ? bias.data() : nullptr;
    args.soft_cap = wanted.soft_cap;
    args.panel_max = wanted.panel_max;
    args.panel_max_stride = 1;
    args.out = out.data();
    args.out_stride = kOutputs;
    testing::TestScratch scratch(1, 1, 64);
    machine.linear(args, 0, kOutputs / kPanel, scratch.get());
    return out;
  }
  double Value(uint32_t row, uint32_t n) const {
    double sum = 0;
    for (uint32_t i = 0; i < k; ++i) sum += double{x[row * k + i]} * file[n * k + i];
    return sum;
  }

  static constexpr uint32_t kOutputs = 32;
  static constexpr uint32_t kRows = 11;
  uint32_t k;
  std::vector<float> file, x, bias, residual;
  std::vector<std::byte> panels;
};

TEST(FamilyLinear, BiasThenResidualThenCapOnEveryMachine) {
  const FloatLinear test(48);
  for (const bool bias : {false, true}) {
    for (const bool add : {false, true}) {
      for (const float cap : {0.0f, 3.0f}) {
        const FloatLinear::Wanted wanted{.bias = bias, .add = add, .soft_cap = cap};
        const auto want = test.Run(ReferenceKernels(), wanted);
        for (const KernelTable* machine : VectorMachines()) {
          EXPECT_TRUE(SameBytes(test.Run(*machine, wanted), want)) << machine->name;
        }
        for (uint32_t row = 0; row < FloatLinear::kRows; ++row) {
          for (uint32_t n = 0; n < FloatLinear::kOutputs; ++n) {
            const size_t at = row * FloatLinear::kOutputs + n;
            double value = test.Value(row, n);
            if (bias) value += test.bias[n];
            if (add) value += test.residual[at];
            if (cap > 0) value = cap * std::tanh(value / cap);
            EXPECT_NEAR(want[at], value, 3e-6);
          }
        }
      }
    }
  }
}

// The maxima are those of the capped outputs; what is not finite stays visible behind the cap.
TEST(FamilyLinear, PanelMaximaAreOfCappedOutputsAndNaNWhereOneIsNotFinite) {
  for (const KernelTable* machine : AllMachines()) {
    for (const float bad : {0.0f, kInf, -kInf, kNaN}) {
      FloatLinear test(16);
      if (bad != 0.0f) test.x[3 * 16] = bad;
      std::vector<float> maxima(FloatLinear::kRows);
      const auto out = test.Run(*machine, {.soft_cap = 2.0f, .panel_max = maxima.data()});
      for (uint32_t row = 0; row < FloatLinear::kRows; ++row) {
        const float* y = out.data() + row * FloatLinear::kOutputs;
        if (bad != 0.0f && row == 3) {
          EXPECT_TRUE(std::isnan(maxima[row])) << machine->name << " " << bad;
        } else {
          EXPECT_EQ(maxima[row], *std::max_element(y, y + FloatLinear::kOutputs));
          EXPECT_LT(maxima[row], 2.0f);
        }
      }
    }
  }
}

TEST(FamilyNorm, AddsToTheResidualInPlace) {
  constexpr uint32_t kWidth = 80;
  std::mt19937 rng(4);
  const auto x = RandomFloats(2 * kWidth, -4.0f, 4.0f, rng);
  const auto weight = RandomFloats(kWidth, 0.1f, 2.0f, rng);
  const auto residual = RandomFloats(2 * kWidth, -1.0f, 1.0f, rng);
  const auto run = [&](const KernelTable& machine) {
    std::vector<float> out = residual;
    NormArgs args{};
    args.in = x.data();
    args.in_stride = kWidth;
    args.weight = weight.data();
    args.eps = 1e-6f;
    args.k = kWidth;
    args.num_rows = 2;
    args.kind = ActivationKind::kFloat;
    args.out = reinterpret_cast<std::byte*>(out.data());
    args.out_stride = kWidth * sizeof(float);
    args.add = out.data();
    for (uint32_t row = 0; row < 2; ++row) machine.norm(args, row);
    return out;
  };
  const auto want = run(ReferenceKernels());
  for (const KernelTable* machine : VectorMachines()) {
    EXPECT_TRUE(SameBytes(run(*machine), want)) << machine->name;
  }
  for (uint32_t row = 0; row < 2; ++row) {
    double squares = 0;
    for (uint32_t i = 0; i < kWidth; ++i)
      squares += double{x[row * kWidth + i]} * x[row * kWidth + i];
    const double r = 1 / std::sqrt(squares / kWidth + 1e-6);
    for (uint32_t i = 0; i < kWidth; ++i) {
      const size_t at = row * kWidth + i;
      EXPECT_NEAR(want[at], residual[at] + x[at] * r * weight[i], 2e-6);
    }
  }
}

TEST(FamilyNorm, FindsTheResidualByItsIndex) {
  constexpr uint32_t kWidth = 32;
  std::mt19937 rng(5);
  const auto x = RandomFloats(2 * kWidth, -4.0f, 4.0f, rng);
  const auto weight = RandomFloats(kWidth, 0.1f, 2.0f, rng);
  const auto residual = RandomFloats(4 * kWidth, -1.0f, 1.0f, rng);
  const uint32_t index[] = {3, 1};
  for (const KernelTable* machine : AllMachines()) {
    const auto run = [&](const float* add, const uint32_t* add_index, uint32_t row) {
      std::vector<float> out(2 * kWidth);
      NormArgs args{};
      args.in = x.data();
      args.in_stride = kWidth;
      args.weight = weight.data();
      args.eps = 1e-6f;
      args.k = kWidth;
      args.num_rows = 2;
      args.kind = ActivationKind::kFloat;
      args.out = reinterpret_cast<std::byte*>(out.data());
      args.out_stride = kWidth * sizeof(float);
      args.add = add;
      args.add_index = add_index;
      machine->norm(args, row);
      return out;
    };
    for (const uint32_t row : {0u, 1u}) {
      const float* own = residual.data() + size_t{index[row]} * kWidth - size_t{row} * kWidth;
      EXPECT_TRUE(SameBytes(run(residual.data(), index, row), run(own, nullptr, row)))
          << machine->name;
    }
  }
}

TEST(HeadNorm, NormsEachQueryAndKeyHeadAndNoValueHead) {
  constexpr uint32_t kDim = 48, kHeads = 4, kKvHeads = 2;
  constexpr uint32_t kWidth = (kHeads + 2 * kKvHeads) * kDim;
  std::mt19937 rng(5);
  const auto qkv = RandomFloats(2 * kWidth, -4.0f, 4.0f, rng);
  const auto weight = RandomFloats(2 * kDim, 0.1f, 2.0f, rng);
  const auto run = [&](const KernelTable& machine) {
    std::vector<float> out = qkv;
    const HeadNormArgs args = {out.data(), kWidth, 2, kHeads, kKvHeads, kDim, weight.data(), 1e-6f};
    for (uint32_t row = 0; row < 2; ++row) machine.head_norm(args, row);
    return out;
  };
  const auto want = run(ReferenceKernels());
  for (const KernelTable* machine : VectorMachines()) {
    EXPECT_TRUE(SameBytes(run(*machine), want)) << machine->name;
  }
  for (uint32_t head = 0; head < kHeads + 2 * kKvHeads; ++head) {
    const float* x = qkv.data() + kWidth + head * kDim;
    const float* y = want.data() + kWidth + head * kDim;
    double squares = 0;
    for (uint32_t i = 0; i < kDim; ++i) squares += double{x[i]} * x[i];
    const double r = 1 / std::sqrt(squares / kDim + 1e-6);
    for (uint32_t i = 0; i < kDim; ++i) {
      const bool value_head = head >= kHeads + kKvHeads;
      const float w = weight[(head < kHeads ? 0 : kDim) + i];
      EXPECT_NEAR(y[i], value_head ? x[i] : x[i] * r * w, 2e-6) << "head " << head;
    }
  }
}

TEST(FamilyEmbed, IsScaled) {
  constexpr uint32_t kWidth = 64;
  std::mt19937 rng(6);
  const auto file = RandomFloats(32 * kWidth, -0.3f, 0.3f, rng);
  std::vector<Row> rows(1);
  rows[0].token = 21;
  for (const Encoding encoding : {Encoding::kF32, Encoding::kQ4, Encoding::kQ8}) {
    std::vector<std::byte> panels(EncodedBytes(encoding, 32, kWidth));
    ASSERT_TRUE(EncodeRows(encoding, DType::kF32, file.data(), 32, kWidth, 0, panels.data()).ok());
    for (const KernelTable* machine : AllMachines()) {
      std::vector<float> out(kWidth);
      const EmbedArgs args = {panels.data(), encoding, kWidth, rows.data(), 1,
                              out.data(),    kWidth,   8.25f};
      machine->embed(args, 0);
      for (uint32_t i = 0; i < kWidth; ++i) {
        EXPECT_EQ(out[i], EncodedValue(encoding, panels.data(), kWidth, 21, i) * 8.25f)
            << machine->name;
      }
    }
  }
}

TEST(FamilyRope, NoDimensionsMeansThatNothingIsRotated) {
  for (const KernelTable* machine : AllMachines()) {
    testing::RopeCase test(64, /*dims=*/0, /*pairs=*/true, KvFormat::kF32, 9);
    const auto result = test.Run(*machine);
    EXPECT_TRUE(SameBytes(result.qkv, test.qkv)) << machine->name;
    EXPECT_EQ(test.Held(result, 0, 1, 0, 5), test.qkv[test.KeyAt(0, 1) + 5]);
  }
}

}  // namespace
}  // namespace kvrm::ops
