// The linear whose outputs are gates and what they gate: its functions, and that it is the linear
// and the gates one after the other whatever it is cut into.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "ops/kernel_test_support.h"
#include "ops/linear_test_case.h"
#include "ops/op_args.h"
#include "ops/reference.h"

namespace kvrm::ops {
namespace {

using testing::AllMachines;
using testing::GatesOf;
using testing::kKinds;
using testing::kUntouched;
using testing::LinearCase;
using testing::RandomFloats;
using testing::RowBytes;
using testing::RunGates;
using testing::SameBytes;
using testing::VectorMachines;

// Puts gates and what they gate where the op expects them.
std::vector<float> Alternate(const std::vector<float>& gates, const std::vector<float>& ups) {
  std::vector<float> in(2 * gates.size());
  for (size_t i = 0; i < gates.size(); ++i) {
    in[i / 16 * 32 + i % 16] = gates[i];
    in[i / 16 * 32 + 16 + i % 16] = ups[i];
  }
  return in;
}

TEST(Activation, EveryMachineEqualsTheReference) {
  for (const GateFunction function : {GateFunction::kSilu, GateFunction::kGeluTanh}) {
    for (const ActivationKind kind : kKinds) {
      // Gates sweep all that exp can do; below -17 every bit of exp shows in the quotient.
      std::vector<float> gates(8192);
      std::vector<float> ups(gates.size(), 1.0f);
      for (size_t i = 0; i < gates.size(); ++i) {
        gates[i] = -95.0f + 190.0f * static_cast<float>(i) / static_cast<float>(gates.size());
        if (kind == ActivationKind::kInt8) ups[i] = 1.0f / (1.0f + std::fabs(gates[i]));
      }
      gates[0] = -3e4f;
      gates[1] = 3e4f;
      const std::vector<float> in = Alternate(gates, ups);
      const auto run = [&](const KernelTable& machine) {
        std::vector<std::byte> out(RowBytes(kind, 8192) + 64, kUntouched);
        RunGates(machine, GatesOf(in, kind, function, out));
        return out;
      };
      const auto want = run(ReferenceKernels());
      for (const KernelTable* machine : VectorMachines()) {
        EXPECT_TRUE(SameBytes(run(*machine), want)) << machine->name;
      }
    }
  }
}

TEST(Activation, IsSiluOfTheGateTimesUp) {
  std::mt19937 rng(5);
  const auto gates = RandomFloats(96, -8.0f, 8.0f, rng);
  const auto ups = RandomFloats(96, -8.0f, 8.0f, rng);
  const std::vector<float> in = Alternate(gates, ups);
  for (const ActivationKind kind : kKinds) {
    std::vector<std::byte> out(RowBytes(kind, 96));
    RunGates(ReferenceKernels(), GatesOf(in, kind, GateFunction::kSilu, out));
    const ActivationLayout layout{96};
    for (uint32_t i = 0; i < 96; ++i) {
      const double got =
          kind == ActivationKind::kFloat
              ? double{reference::Read<float>(out.data(), i)}
              : double{reference::Read<float>(out.data() + layout.scale_offset(), i / kGroup)} *
                    reference::Read<int8_t>(out.data(), i);
      EXPECT_NEAR(got, gates[i] / (1 + std::exp(-double{gates[i]})) * ups[i],
                  kind == ActivationKind::kFloat ? 2e-5 : 64.0 / 254);
    }
  }
}

TEST(Gelu, IsTheTanhForm) {
  std::vector<float> gates;
  for (float g = -12.0f; g <= 12.0f; g += 0.0625f) gates.push_back(g);
  gates.resize(gates.size() / 32 * 32);
  gates[0] = -3e4f;
  gates[1] = 3e4f;
  const std::vector<float> in = Alternate(gates, std::vector<float>(gates.size(), 2.0f));
  std::vector<std::byte> out(gates.size() * sizeof(float));
  RunGates(ReferenceKernels(), GatesOf(in, ActivationKind::kFloat, GateFunction::kGeluTanh, out));
  for (uint32_t i = 0; i < gates.size(); ++i) {
    const double g = gates[i];
    const double u = std::sqrt(2 / std::acos(-1.0)) * (g + 0.044715 * g * g * g);
    EXPECT_NEAR(reference::Read<float>(out.data(), i), 2 * 0.5 * g * (1 + std::tanh(u)),
                2e-6 * std::max(1.0, std::fabs(g)))
        << g;
  }
}

// One gated linear with everything it reads and writes; rows of the output have a padding, and two
// are spare (B026).
struct GatedCase {
  GatedCase(Encoding encoding, uint32_t rows, uint32_t panels, uint32_t k, uint32_t seed)
      : linear(encoding, rows, panels, k, seed),
        stride(RowBytes(linear.Kind(), linear.n / 2) + 64) {}

  std::vector<std::byte> Run(const KernelTable& machine, uint32_t panels_an_item = 1u << 16) {
    std::vector<std::byte> out((linear.num_rows + 2) * stride, kUntouched);
    std::vector<float> unused;
    GatedLinearArgs args{};
    args.linear = linear.Args(unused);
    args.linear.out = nullptr;
    args.linear.bias = bias.empty() ? nullptr : bias.data();
    args.kind = linear.Kind();
    args.out = out.data();
    args.out_stride = stride;
    testing::TestScratch scratch(1, 1, 64);
    const uint32_t panels = linear.n / kPanel;
    for (uint32_t at = 0; at < panels; at += panels_an_item) {
      machine.gated_linear(args, at, std::min(panels_an_item, panels - at), scratch.get());
    }
    return out;
  }

  LinearCase linear;
  size_t stride;
  std::vector<float> bias;
};

TEST(GatedLinear, EveryMachineEqualsTheReference) {
  for (const Encoding encoding : {Encoding::kF32, Encoding::kQ4, Encoding::kQ8}) {
    for (const uint32_t rows : {1u, 2u, 4u, 7u, 48u, 49u, 100u}) {
      for (const uint32_t panels : {4u, 12u}) {
        GatedCase test(encoding, rows, panels, 64, rows + panels);
        if (panels == 12) test.bias = RandomFloats(12 * kPanel, -1.0f, 1.0f, test.linear.rng);
        const auto want = test.Run(ReferenceKernels());
        for (const KernelTable* machine : VectorMachines()) {
          EXPECT_TRUE(SameBytes(test.Run(*machine), want))
              << machine->name << " " << EncodingName(encoding) << " " << rows << " rows";
        }
      }
    }
  }
}

TEST(GatedLinear, AnySplitOfThePanelsIsTheSame) {
  for (const KernelTable* machine : AllMachines()) {
    GatedCase test(Encoding::kQ4, 9, 20, 96, 3);
    const auto want = test.Run(*machine);
    for (const uint32_t panels : {4u, 8u, 12u}) {
      EXPECT_TRUE(SameBytes(test.Run(*machine, panels), want)) << machine->name << " " << panels;
    }
  }
}

// Floats have no groups, so that half of one may be left.
TEST(GatedLinear, AWidthOfSixteenIsEnoughForFloats) {
  GatedCase test(Encoding::kF32, 3, 6, 32, 4);
  const auto want = test.Run(ReferenceKernels());
  for (const KernelTable* machine : VectorMachines()) {
    EXPECT_TRUE(SameBytes(test.Run(*machine), want)) << machine->name;
  }
}

}  // namespace
}  // namespace kvrm::ops
