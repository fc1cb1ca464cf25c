#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "ops/kernel_test_support.h"
#include "ops/linear_test_case.h"
#include "ops/op_args.h"
#include "ops/reference.h"
#include "tensor/dtype.h"
#include "tensor/encoding.h"

namespace kvrm::ops {
namespace {

using testing::AllMachines;
using testing::kNaN;
using testing::LinearCase;
using testing::SameBytes;
using testing::VectorMachines;

constexpr Encoding kEncodings[] = {Encoding::kF32, Encoding::kQ4, Encoding::kQ8};

// Spare rows and the padding of each row must keep their bytes too (B026).
TEST(Linear, EveryMachineEqualsTheReference) {
  const uint32_t ks[] = {32, 64, 96, 160, 576, 1536};
  const uint32_t panel_counts[] = {1, 2, 3, 4, 5, 7, 8, 13};
  uint32_t turn = 0;
  for (Encoding encoding : kEncodings) {
    for (uint32_t rows = 1; rows <= 24; ++rows) {
      // Past 31 a matrix unit takes tiles of sixteen: with few rows over, many, or none.
      const uint32_t many[] = {32, 37, 43, 64};
      const uint32_t num_rows = rows <= 20 ? rows : many[rows - 21];
      for (int repeat = 0; repeat < 3; ++repeat, ++turn) {
        LinearCase test(encoding, num_rows, panel_counts[turn * 5 % 8],
                        rows > 20 ? ks[turn % 4] : ks[turn % 6], turn);
        test.with_add = turn % 2 == 1;
        const auto want = test.Run(ReferenceKernels());
        for (const KernelTable* machine : VectorMachines()) {
          EXPECT_TRUE(SameBytes(test.Run(*machine), want))
              << machine->name << " " << EncodingName(encoding) << " rows " << num_rows << " n "
              << test.n << " k " << test.k;
        }
      }
    }
  }
}

TEST(Linear, RowAloneEqualsTheRowInABatch) {
  for (const KernelTable* machine : AllMachines()) {
    for (Encoding encoding : kEncodings) {
      LinearCase batch(encoding, 45, 5, 192, 7);
      const auto together = batch.Run(*machine);
      LinearCase alone(encoding, 1, 5, 192, 7);
      std::memcpy(alone.aligned, batch.aligned, EncodedBytes(encoding, batch.n, batch.k));
      for (uint32_t r = 0; r < batch.num_rows; ++r) {
        alone.x.assign(batch.x.begin() + r * batch.k, batch.x.begin() + (r + 1) * batch.k);
        alone.EncodeInput();
        const auto out = alone.Run(*machine);
        EXPECT_EQ(0, std::memcmp(out.data(), together.data() + r * batch.Stride(),
                                 batch.n * sizeof(float)))
            << machine->name << " " << EncodingName(encoding) << " row " << r;
      }
    }
  }
}

TEST(Linear, AnySplitOfThePanelsInAnyOrderIsTheSame) {
  std::mt19937 rng(11);
  for (const KernelTable* machine : AllMachines()) {
    for (Encoding encoding : kEncodings) {
      for (uint32_t rows : {1u, 3u, 8u, 19u, 43u}) {
        LinearCase test(encoding, rows, 13, 96, rows);
        const auto want = test.Run(*machine);
        std::vector<uint32_t> bounds = {0, 13};
        for (int i = 0; i < 4; ++i) bounds.push_back(rng() % 14);
        std::sort(bounds.begin(), bounds.end());
        std::vector<size_t> order(bounds.size() - 1);
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), rng);
        std::vector<float> out;
        const LinearArgs args = test.Args(out);
        testing::TestScratch scratch(1, 1, 64);
        for (size_t i : order) {
          machine->linear(args, bounds[i], bounds[i + 1] - bounds[i], scratch.get());
        }
        EXPECT_TRUE(SameBytes(out, want)) << machine->name << " " << EncodingName(encoding);
      }
    }
  }
}

TEST(Linear, AddMayBeTheOutputItself) {
  for (const KernelTable* machine : AllMachines()) {
    for (Encoding encoding : kEncodings) {
      for (uint32_t rows : {2u, 15u, 35u, 47u}) {
        LinearCase test(encoding, rows, 3, 64, 5);
        test.with_add = true;
        const auto want = test.Run(*machine);
        std::vector<float> out;
        LinearArgs args = test.Args(out);
        for (uint32_t r = 0; r < rows; ++r) {
          std::copy_n(test.add.data() + r * test.Stride(), test.n, out.data() + r * test.Stride());
        }
        args.add = args.out;
        testing::TestScratch scratch(1, 1, 64);
        machine->linear(args, 0, test.n / kPanel, scratch.get());
        EXPECT_TRUE(SameBytes(out, want)) << machine->name << " " << EncodingName(encoding);
      }
    }
  }
}

// Rows of fewer outputs than there are rows to add to: each is told which is its own.
TEST(Linear, AddIsFoundByItsIndex) {
  for (const KernelTable* machine : AllMachines()) {
    for (Encoding encoding : kEncodings) {
      LinearCase test(encoding, encoding == Encoding::kQ4 ? 43 : 35, 3, 64, 6);
      test.with_add = true;
      std::vector<float> plain;
      const LinearArgs args = test.Args(plain);
      testing::TestScratch scratch(1, 1, 64);
      machine->linear(args, 0, test.n / kPanel, scratch.get());
      std::vector<float> moved(2 * test.add.size(), kNaN);
      std::vector<uint32_t> index(test.num_rows);
      for (uint32_t r = 0; r < test.num_rows; ++r) {
        index[r] = 2 * ((r + 3) % test.num_rows);
        std::copy_n(test.add.data() + r * test.Stride(), test.n,
                    moved.data() + index[r] * test.Stride());
      }
      std::vector<float> out;
      LinearArgs indexed = test.Args(out);
      indexed.add = moved.data();
      indexed.add_index = index.data();
      machine->linear(indexed, 0, test.n / kPanel, scratch.get());
      EXPECT_TRUE(SameBytes(out, plain)) << machine->name << " " << EncodingName(encoding);
    }
  }
}

// The oracle knows values only: encoded weights times activations as their codes say, in double.
TEST(Linear, ResultIsTheProductOfTheEncodedValues) {
  for (Encoding encoding : kEncodings) {
    LinearCase test(encoding, 3, 2, 576, 3);
    const ActivationLayout layout{test.k};
    const auto out = test.Run(ReferenceKernels());
    for (uint32_t r = 0; r < test.num_rows; ++r) {
      const std::byte* row = test.input.data() + r * test.row_bytes;
      for (uint32_t o = 0; o < test.n; ++o) {
        double sum = 0;
        double magnitude = 0;
        for (uint32_t i = 0; i < test.k; ++i) {
          double value = test.x[r * test.k + i];
          if (encoding != Encoding::kF32) {
            value = double{reference::Read<float>(row + layout.scale_offset(), i / kGroup)} *
                    reference::Read<int8_t>(row, i);
          }
          const double term = value * EncodedValue(encoding, test.aligned, test.k, o, i);
          sum += term;
          magnitude += std::fabs(term);
        }
        EXPECT_NEAR(out[r * test.Stride() + o], sum, 4e-6 * magnitude) << EncodingName(encoding);
      }
    }
  }
}

// 255 * 127 + 255 * 127 does not fit into the 16 bits that vpmaddubsw saturates at.
TEST(Linear, GreatestCodesDoNotSaturate) {
  for (Encoding encoding : {Encoding::kQ4, Encoding::kQ8}) {
    for (const auto& [rows, sign] : {std::pair{9u, 1}, {9u, -1}, {33u, 1}, {33u, -1}}) {
      LinearCase test(encoding, rows, 2, 64, 9);
      const size_t code_bytes = encoding == Encoding::kQ4 ? 256 : kQ8GroupBytes;
      const size_t step = encoding == Encoding::kQ4 ? kQ4GroupBytes : kQ8GroupBytes;
      for (uint32_t p = 0; p < 2; ++p) {
        for (uint32_t g = 0; g < test.k / kGroup; ++g) {
          std::memset(test.aligned + p * PanelBytes(encoding, test.k) + g * step, 0xFF, code_bytes);
        }
      }
      std::fill(test.x.begin(), test.x.end(), 2.0f * static_cast<float>(sign));
      test.EncodeInput();
      const auto want = test.Run(ReferenceKernels());
      for (const KernelTable* machine : VectorMachines()) {
        EXPECT_TRUE(SameBytes(test.Run(*machine), want)) << machine->name;
      }
      double sum = 0;
      for (uint32_t i = 0; i < test.k; ++i) {
        sum += 2.0 * sign * EncodedValue(encoding, test.aligned, test.k, 0, i);
      }
      EXPECT_NEAR(want[0], sum, 1e-3) << EncodingName(encoding);
    }
  }
}

TEST(Linear, PanelMaximaAreThoseOfTheLiveOutputs) {
  for (const KernelTable* machine : AllMachines()) {
    for (uint32_t rows : {1u, 12u, 34u}) {
      for (uint32_t n_live : {600u, 512u, 511u, 1u}) {
        LinearCase test(Encoding::kQ4, rows, 38, 32, 2);  // 608 outputs, three blocks
        std::vector<float> out;
        LinearArgs args = test.Args(out);
        std::vector<float> maxima(rows * 4, -7.0f);
        args.panel_max = maxima.data();
        args.panel_max_stride = 4;
        args.n_live = n_live;
        testing::TestScratch scratch(1, 1, 64);
        machine->linear(args, 16, 22, scratch.get());
        machine->linear(args, 0, 16, scratch.get());
        for (uint32_t r = 0; r < rows; ++r) {
          for (uint32_t block = 0; block < 3; ++block) {
            float best = -testing::kInf;
            for (uint32_t i = block * 256; i < std::min((block + 1) * 256, n_live); ++i) {
              best = std::max(best, out[r * test.Stride() + i]);
            }
            EXPECT_EQ(maxima[r * 4 + block], best)
                << machine->name << " live " << n_live << " block " << block;
          }
          EXPECT_EQ(maxima[r * 4 + 3], -7.0f) << "no block there";
        }
      }
    }
  }
}

// One look at the maxima finds a value that is not finite, wherever it stands among live outputs.
TEST(Linear, PanelMaximaAreNaNWhereAnOutputIsNotFinite) {
  for (const KernelTable* machine : AllMachines()) {
    for (const uint32_t bad : {0u, 255u, 256u, 597u, 605u}) {
      LinearCase test(Encoding::kF32, 1, 38, 32, 2);
      float nan = kNaN;
      std::memcpy(test.aligned + (size_t{bad} / kPanel * 32 * kPanel + bad % kPanel) * sizeof nan,
                  &nan, sizeof nan);
      std::vector<float> out;
      LinearArgs args = test.Args(out);
      std::vector<float> maxima(3);
      args.panel_max = maxima.data();
      args.panel_max_stride = 3;
      args.n_live = 600;
      testing::TestScratch scratch(1, 1, 64);
      machine->linear(args, 0, 38, scratch.get());
      for (uint32_t block = 0; block < 3; ++block) {
        EXPECT_EQ(std::isnan(maxima[block]), bad < 600 && bad / 256 == block)
            << machine->name << " bad " << bad << " block " << block;
      }
    }
  }
}

TEST(Linear, NaNOfOneRowStaysInThatRow) {
  for (const KernelTable* machine : AllMachines()) {
    for (Encoding encoding : kEncodings) {
      for (uint32_t rows : {4u, 14u, 44u}) {
        LinearCase test(encoding, rows, 3, 96, 21);
        const auto clean = test.Run(*machine);
        test.x[2 * test.k + 40] = kNaN;
        test.EncodeInput();
        const auto out = test.Run(*machine);
        for (uint32_t r = 0; r < rows; ++r) {
          for (uint32_t i = 0; i < test.n; ++i) {
            const size_t at = r * test.Stride() + i;
            if (r == 2) {
              EXPECT_TRUE(std::isnan(out[at])) << machine->name << " " << EncodingName(encoding);
            } else {
              EXPECT_EQ(out[at], clean[at]) << machine->name << " " << EncodingName(encoding);
            }
          }
        }
      }
    }
  }
}

TEST(Linear, NaNWeightsShowInTheirOutputOnly) {
  for (const KernelTable* machine : AllMachines()) {
    for (uint32_t rows : {1u, 9u, 43u}) {
      LinearCase test(Encoding::kQ4, rows, 2, 64, 23);
      const uint16_t nan = 0x7E00;
      std::memcpy(test.aligned + kQ4GroupBytes + 256 + 5 * 2, &nan, sizeof nan);  // output 5
      const auto out = test.Run(*machine);
      for (uint32_t r = 0; r < rows; ++r) {
        for (uint32_t i = 0; i < test.n; ++i) {
          EXPECT_EQ(std::isnan(out[r * test.Stride() + i]), i == 5) << machine->name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvrm::ops
