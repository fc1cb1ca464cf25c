#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

// The portable lanes, for what no op shows by itself.
#define KVRM_LANES_NS lanes_test
#include "ops/lanes.h"
//
#include "ops/kernel_test_support.h"
#include "ops/op_args.h"
#include "ops/reference.h"
#include "ops/rope_test_case.h"
#include "tensor/dtype.h"
#include "tensor/encoding.h"

namespace kvrm::ops {
namespace {

using testing::AllMachines;
using testing::GatesOf;
using testing::kInf;
using testing::kKinds;
using testing::kKvFormats;
using testing::kNaN;
using testing::kUntouched;
using testing::RandomFloats;
using testing::RopeCase;
using testing::RowBytes;
using testing::RunGates;
using testing::SameBytes;
using testing::VectorMachines;

// The value that an activation row holds at i.
double ActivationValue(ActivationKind kind, const std::byte* row, uint32_t k, uint32_t i) {
  if (kind == ActivationKind::kFloat) return reference::Read<float>(row, i);
  const ActivationLayout layout{k};
  return double{reference::Read<float>(row + layout.scale_offset(), i / kGroup)} *
         reference::Read<int8_t>(row, i);
}

// ---- exp

TEST(Exp, RelativeErrorStaysBelow3e7) {
  double worst = 0;
  for (float x = -87.0f; x < 88.0f; x += 1.0f / 4096) {
    const double truth = std::exp(double{x});
    const double error = std::fabs(reference::Exp(x) - truth) / truth;
    ASSERT_FALSE(std::isnan(error)) << x;
    worst = std::max(worst, error);
  }
  EXPECT_LT(worst, 3e-7);
  RecordProperty("worst_relative_error", std::to_string(worst));
}

TEST(Exp, EndsOfTheRange) {
  EXPECT_EQ(reference::Exp(-kInf), 0.0f);
  EXPECT_EQ(reference::Exp(-87.4f), 0.0f);
  EXPECT_GT(reference::Exp(-87.3f), 0.0f);
  EXPECT_EQ(reference::Exp(0.0f), 1.0f);
  EXPECT_EQ(reference::Exp(-0.0f), 1.0f);
  EXPECT_TRUE(std::isfinite(reference::Exp(kInf)));
  EXPECT_EQ(reference::Exp(kInf), reference::Exp(88.0f));
  EXPECT_TRUE(std::isnan(reference::Exp(kNaN)));
}

TEST(Exp, LanesEqualTheReference) {
  const float special[] = {-kInf, kInf, kNaN, 0.0f, -0.0f, -87.3f, -87.31f, 88.0f, 88.5f, 1e-40f};
  for (float x : special) {
    const float got = lanes_test::ExpOne(x);
    const float want = reference::Exp(x);
    const bool same_bits = std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(want);
    EXPECT_TRUE(same_bits || (std::isnan(got) && std::isnan(want))) << x;
  }
  for (float x = -90.0f; x < 90.0f; x += 0.0037f) {
    ASSERT_EQ(lanes_test::ExpOne(x), reference::Exp(x)) << x;
  }
}

// ---- embed

TEST(Embed, GivesTheEncodedValues) {
  std::mt19937 rng(1);
  constexpr uint32_t kVocab = 40;
  constexpr uint32_t kWidth = 96;
  const auto file = RandomFloats(kVocab * kWidth, -0.3f, 0.3f, rng);
  for (Encoding encoding : {Encoding::kF32, Encoding::kQ4, Encoding::kQ8}) {
    std::vector<std::byte> panels(EncodedBytes(encoding, kVocab, kWidth));
    ASSERT_TRUE(
        EncodeRows(encoding, DType::kF32, file.data(), kVocab, kWidth, 0, panels.data()).ok());
    std::vector<Row> rows(3);
    rows[0].token = 0;
    rows[1].token = 39;
    rows[2].token = 17;
    for (const KernelTable* machine : AllMachines()) {
      std::vector<float> out(3 * (kWidth + 1), -7.0f);
      const EmbedArgs args = {panels.data(), encoding,  kWidth, rows.data(), 3,
                              out.data(),    kWidth + 1};
      for (uint32_t r = 0; r < 3; ++r) machine->embed(args, r);
      for (uint32_t r = 0; r < 3; ++r) {
        for (uint32_t i = 0; i < kWidth; ++i) {
          ASSERT_EQ(out[r * (kWidth + 1) + i],
                    EncodedValue(encoding, panels.data(), kWidth, rows[r].token, i))
              << machine->name << " " << EncodingName(encoding) << " row " << r << " value " << i;
        }
        EXPECT_EQ(out[r * (kWidth + 1) + kWidth], -7.0f);
      }
    }
  }
}

// ---- norm, and the encoding of activations

struct NormCase {
  NormCase(ActivationKind kind_of_out, uint32_t width, uint32_t seed)
      : kind(kind_of_out), k(width) {
    std::mt19937 rng(seed);
    in = RandomFloats(4 * size_t{k}, -4.0f, 4.0f, rng);
    weight = RandomFloats(k, 0.1f, 2.0f, rng);
  }
  // Output rows 0..2 read input rows 3, 0, 2; row 3 of the output is not live.
  std::vector<std::byte> Run(const KernelTable& machine) {
    const uint32_t index[] = {3, 0, 2};
    const size_t stride = RowBytes(kind, k) + 64;
    std::vector<std::byte> out(4 * stride, kUntouched);
    const NormArgs args = {in.data(), k, index, weight.data(), 1e-5f,
                           k,         3, kind,  out.data(),    stride};
    for (uint32_t r = 0; r < 3; ++r) machine.norm(args, r);
    return out;
  }
  ActivationKind kind;
  uint32_t k;
  std::vector<float> in, weight;
};

TEST(Norm, EveryMachineEqualsTheReference) {
  for (ActivationKind kind : kKinds) {
    for (uint32_t k : {32u, 64u, 96u, 576u, 1536u}) {
      for (uint32_t seed = 0; seed < 5; ++seed) {
        NormCase test(kind, k, seed);
        if (seed == 3) std::fill(test.in.begin(), test.in.end(), 0.0f);
        if (seed == 4) test.in[k / 2] = 1e30f;
        const auto want = test.Run(ReferenceKernels());
        for (const KernelTable* machine : VectorMachines()) {
          EXPECT_TRUE(SameBytes(test.Run(*machine), want)) << machine->name << " k " << k;
        }
      }
    }
  }
}

TEST(Norm, IsTheRootMeanSquareNorm) {
  for (ActivationKind kind : kKinds) {
    NormCase test(kind, 576, 8);
    const auto out = test.Run(ReferenceKernels());
    const float* x = test.in.data() + 3 * test.k;
    double squares = 0;
    for (uint32_t i = 0; i < test.k; ++i) squares += double{x[i]} * x[i];
    const double r = 1 / std::sqrt(squares / test.k + 1e-5);
    for (uint32_t i = 0; i < test.k; ++i) {
      // int8: half a step of 1/127 of the group's greatest value, here at most 4 * 2 * r.
      EXPECT_NEAR(ActivationValue(kind, out.data(), test.k, i), x[i] * r * test.weight[i],
                  kind == ActivationKind::kFloat ? 1e-6 : 8 * r / 254 * 1.001);
    }
  }
}

TEST(EncodedActivations, CarryTheirSumsAndTheirGreatestCode) {
  std::mt19937 rng(3);
  constexpr uint32_t kWidth = 160;
  const auto x = RandomFloats(kWidth, -9.0f, 9.0f, rng);
  const ActivationLayout layout{kWidth};
  std::vector<std::byte> row(layout.row_bytes());
  reference::EncodeActivations(ActivationKind::kInt8, x.data(), kWidth, row.data());
  for (uint32_t g = 0; g < layout.groups(); ++g) {
    int sum = 0;
    int greatest = 0;
    for (uint32_t i = 0; i < kGroup; ++i) {
      const int code = reference::Read<int8_t>(row.data(), g * kGroup + i);
      sum += code;
      greatest = std::max(greatest, std::abs(code));
      const float scale = reference::Read<float>(row.data() + layout.scale_offset(), g);
      EXPECT_NEAR(code * scale, x[g * kGroup + i], scale * 0.5001f);
    }
    EXPECT_EQ(greatest, 127);
    EXPECT_EQ(reference::Read<int32_t>(row.data() + layout.offset_offset(), g), -128 * sum);
    EXPECT_EQ(
        reference::Read<float>(row.data() + layout.scaled_sum_offset(), g),
        reference::Read<float>(row.data() + layout.scale_offset(), g) * static_cast<float>(sum));
  }
}

// A value that is not finite must not vanish in an integer code.
TEST(EncodedActivations, NotFiniteValueMakesTheScaleNotFinite) {
  for (const KernelTable* machine : AllMachines()) {
    for (float bad : {kNaN, -kNaN, kInf, -kInf}) {
      for (uint32_t place : {0u, 15u, 16u, 31u}) {
        std::vector<float> in(2 * 64, 1.0f);  // gate and up in blocks of 16
        in[place / 16 * 32 + 16 + place % 16] = bad;
        std::vector<std::byte> out(ActivationLayout{64}.row_bytes());
        RunGates(*machine, GatesOf(in, ActivationKind::kInt8, GateFunction::kSilu, out));
        EXPECT_FALSE(std::isfinite(reference::Read<float>(out.data() + 64, 0)))
            << machine->name << " " << bad << " at " << place;
        EXPECT_TRUE(std::isfinite(reference::Read<float>(out.data() + 64, 1))) << machine->name;
      }
    }
  }
}

// ---- rope and KV write

TEST(RopeWrite, EveryMachineEqualsTheReference) {
  for (KvFormat format : kKvFormats) {
    for (bool interleaved : {false, true}) {
      // 20 and 44 dimensions leave pairs over beside whole vectors.
      for (const auto& [head_dim, rope_dims] :
           {std::pair(32u, 32u), {32u, 20u}, {64u, 64u}, {80u, 32u}, {80u, 44u}, {128u, 128u}}) {
        const RopeCase test(head_dim, rope_dims, interleaved, format, head_dim);
        const auto want = test.Run(ReferenceKernels());
        for (const KernelTable* machine : VectorMachines()) {
          const auto got = test.Run(*machine);
          EXPECT_TRUE(SameBytes(got.qkv, want.qkv)) << machine->name << " dims " << rope_dims;
          EXPECT_TRUE(SameBytes(got.pages, want.pages)) << machine->name << " dims " << rope_dims;
          EXPECT_TRUE(SameBytes(got.status, want.status)) << machine->name;
        }
      }
    }
  }
}

TEST(RopeWrite, RotatesPairsByPositionTimesFrequency) {
  for (bool interleaved : {false, true}) {
    for (uint32_t rope_dims : {64u, 32u}) {
      const RopeCase test(64, rope_dims, interleaved, KvFormat::kF32, 5);
      const auto result = test.Run(ReferenceKernels());
      for (uint32_t r = 0; r < 2; ++r) {
        for (uint32_t h = 0; h < RopeCase::kHeads + RopeCase::kKvHeads; ++h) {
          const float* before = test.qkv.data() + r * test.stride + h * 64;
          const float* after = result.qkv.data() + r * test.stride + h * 64;
          for (uint32_t i = 0; i < rope_dims / 2; ++i) {
            const uint32_t x = interleaved ? 2 * i : i;
            const uint32_t y = interleaved ? 2 * i + 1 : i + rope_dims / 2;
            const double angle = test.rows[r].position * std::pow(10000.0, -2.0 * i / rope_dims);
            EXPECT_NEAR(after[x], before[x] * std::cos(angle) - before[y] * std::sin(angle), 1e-5);
            EXPECT_NEAR(after[y], before[x] * std::sin(angle) + before[y] * std::cos(angle), 1e-5);
          }
          for (uint32_t i = rope_dims; i < 64; ++i) EXPECT_EQ(after[i], before[i]);
        }
      }
    }
  }
}

TEST(RopeWrite, WritesRotatedKeysAndValuesAtTheRowsPlaceAndNothingElse) {
  for (const KernelTable* machine : AllMachines()) {
    for (KvFormat format : {KvFormat::kF32, KvFormat::kF16}) {
      const RopeCase test(64, 64, false, format, 6);
      const auto result = test.Run(*machine);
      const auto rounded = [&](float x) {
        return format == KvFormat::kF32 ? x : HalfToFloat(FloatToHalf(x));
      };
      for (uint32_t r = 0; r < 2; ++r) {
        for (uint32_t h = 0; h < RopeCase::kKvHeads; ++h) {
          for (uint32_t d = 0; d < 64; ++d) {
            EXPECT_EQ(test.Held(result, r, h, 0, d), rounded(result.qkv[test.KeyAt(r, h) + d]));
            EXPECT_EQ(test.Held(result, r, h, 1, d), rounded(test.qkv[test.ValueAt(r, h) + d]));
          }
        }
      }
      size_t written = 0;
      for (std::byte b : result.pages) written += b != kUntouched;
      const size_t bytes = 2 * RopeCase::kKvHeads * 2 * 64 * (format == KvFormat::kF32 ? 4 : 2);
      EXPECT_LE(written, bytes) << machine->name;  // a value's byte may be 0xA5 by chance
      EXPECT_GE(written, bytes * 9 / 10) << machine->name;
    }
  }
}

TEST(RopeWrite, HalfOverflowIsClampedAndIsNoError) {
  for (const KernelTable* machine : AllMachines()) {
    RopeCase test(64, 64, false, KvFormat::kF16, 7);
    test.rows[0].position = 0;  // cos = 1, sin = 0
    test.qkv[test.KeyAt(0, 0)] = 1e6f;
    test.qkv[test.KeyAt(0, 1)] = -65520.0f;
    test.qkv[test.ValueAt(0, 1) + 20] = -1e30f;
    const auto result = test.Run(*machine);
    EXPECT_EQ(test.Held(result, 0, 0, 0, 0), 65504.0f) << machine->name;
    EXPECT_EQ(test.Held(result, 0, 1, 0, 0), -65504.0f) << machine->name;
    EXPECT_EQ(test.Held(result, 0, 1, 1, 20), -65504.0f) << machine->name;
    EXPECT_EQ(result.status, (std::vector<uint8_t>{0, 0, 0})) << machine->name;
  }
}

TEST(RopeWrite, NotFiniteRowIsReportedAndOnlyThatRow) {
  for (const KernelTable* machine : AllMachines()) {
    for (float bad : {kNaN, kInf, -kInf}) {
      for (uint32_t part = 0; part < 3; ++part) {
        RopeCase test(64, 64, true, KvFormat::kF16, 8);
        test.qkv[part == 0   ? test.stride + 100
                 : part == 1 ? test.KeyAt(1, 1) + 63
                             : test.ValueAt(1, 1) + 63] = bad;
        const auto result = test.Run(*machine);
        EXPECT_EQ(result.status, (std::vector<uint8_t>{0, 1, 0}))
            << machine->name << " part " << part;
      }
    }
    // Finite before the rotation, infinite after it.
    RopeCase test(64, 64, true, KvFormat::kF32, 8);
    for (uint32_t i = 0; i < 2; ++i) test.qkv[test.KeyAt(1, 0) + i] = i == 0 ? 3.4e38f : -3.4e38f;
    EXPECT_EQ(test.Run(*machine).status, (std::vector<uint8_t>{0, 1, 0})) << machine->name;
  }
}

TEST(RopeWrite, RowThatDoesNotWriteLeavesItsPageAlone) {
  for (const KernelTable* machine : AllMachines()) {
    RopeCase test(64, 64, false, KvFormat::kF16, 9);
    const auto with = test.Run(*machine);
    for (Row& row : test.rows) row.flags = kRowNoWrite;
    const auto result = test.Run(*machine);
    for (std::byte b : result.pages) ASSERT_EQ(b, kUntouched) << machine->name;
    EXPECT_TRUE(SameBytes(result.qkv, with.qkv)) << "its query is rotated all the same";
  }
}

// ---- rows beyond the live ones

// "Rows beyond the live ones come back as NaN": an op writes the rows that it is asked for.
// (Linears and attention: their own tests compare whole buffers.)
TEST(B026, OpsOfARowTouchNoOtherRow) {
  for (const KernelTable* machine : AllMachines()) {
    for (ActivationKind kind : kKinds) {
      NormCase norm(kind, 64, 1);
      const auto out = norm.Run(*machine);
      const size_t stride = RowBytes(kind, 64) + 64;
      for (size_t i = 3 * stride; i < out.size(); ++i) ASSERT_EQ(out[i], kUntouched);
    }
  }
}

}  // namespace
}  // namespace kvrm::ops
