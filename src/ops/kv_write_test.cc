// int8 pages as the rope op writes them: num-1, rule 12.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/kernel_test_support.h"
#include "ops/reference.h"
#include "ops/rope_test_case.h"
#include "tensor/kv_tile.h"

namespace kvrm::ops {
namespace {

using testing::AllMachines;
using testing::kInf;
using testing::kNaN;
using testing::kUntouched;
using testing::RopeCase;
using testing::SameBytes;
using testing::VectorMachines;

// The bytes of a page that one token and KV head own.
std::vector<size_t> Int8Places(uint32_t head_dim, uint32_t kv_head, uint32_t place) {
  const KvTile tile = KvTileOf(KvFormat::kInt8, head_dim);
  const size_t head = kv_head * tile.head_bytes;
  std::vector<size_t> places;
  for (uint32_t d = 0; d < head_dim; ++d) {
    places.push_back(head + d / 4 * 64 + place * 4 + d % 4);
    places.push_back(head + tile.v_begin + place * head_dim + d);
  }
  for (uint32_t i = 0; i < 2; ++i) {
    places.push_back(head + tile.scales_begin + place * 2 + i);
    places.push_back(head + tile.scales_begin + 32 + place * 2 + i);
  }
  return places;
}

// Copy-on-write and recycled places rest on it: a token's bytes are its own.
TEST(RopeWriteInt8, WritesTheTokensOwnBytesAndNoOther) {
  for (const KernelTable* machine : AllMachines()) {
    const RopeCase test(80, 80, false, KvFormat::kInt8, 6);
    std::vector<std::byte> pages = test.Run(*machine).pages;
    for (uint32_t r = 0; r < 2; ++r) {
      const size_t page = (r == 0 ? 2 * RopeCase::kPageBytes : 0) + RopeCase::kPart;
      for (uint32_t h = 0; h < RopeCase::kKvHeads; ++h) {
        for (const size_t at : Int8Places(80, h, test.rows[r].kv_index % kPageTokens)) {
          pages[page + at] = kUntouched;
        }
      }
    }
    for (size_t i = 0; i < pages.size(); ++i) ASSERT_EQ(pages[i], kUntouched) << i;
  }
}

// From values that fp16 holds as subnormal scales to those near its end.
TEST(RopeWriteInt8, ErrorIsAtMostHalfAStepAtEveryMagnitude) {
  for (int exponent = -26; exponent <= 21; ++exponent) {
    RopeCase test(64, 64, false, KvFormat::kInt8, static_cast<uint32_t>(exponent + 40));
    for (float& x : test.qkv) x = std::ldexp(x, exponent);
    const auto want = test.Run(ReferenceKernels());
    for (const KernelTable* machine : VectorMachines()) {
      EXPECT_TRUE(SameBytes(test.Run(*machine).pages, want.pages)) << machine->name << exponent;
    }
    for (uint32_t r = 0; r < 2; ++r) {
      for (uint32_t h = 0; h < RopeCase::kKvHeads; ++h) {
        for (uint32_t plane = 0; plane < 2; ++plane) {
          const float* x = want.qkv.data() + (plane == 0 ? test.KeyAt(r, h) : test.ValueAt(r, h));
          const float greatest = reference::GreatestMagnitude(x, 64);
          // A scale is within 2^-10 of amax / 127, or a step of 2^-24 above it.
          const double step = std::max(greatest / 127 * (1 + 0x1p-10), greatest / 127 + 0x1p-24);
          for (uint32_t d = 0; d < 64; ++d) {
            ASSERT_NEAR(test.Held(want, r, h, plane, d), x[d], step * 0.5001)
                << "exponent " << exponent;
          }
        }
      }
    }
  }
}

TEST(RopeWriteInt8, HugeValuesAreClampedAndZerosStayZeros) {
  for (const KernelTable* machine : AllMachines()) {
    RopeCase test(64, 64, false, KvFormat::kInt8, 7);
    test.rows[0].position = 0;  // cos = 1, sin = 0
    test.qkv[test.KeyAt(0, 0) + 5] = 1e30f;
    test.qkv[test.ValueAt(0, 0) + 6] = -8.4e6f;
    for (uint32_t d = 0; d < 64; ++d) test.qkv[test.ValueAt(0, 1) + d] = 0.0f;
    const auto result = test.Run(*machine);
    EXPECT_EQ(test.Held(result, 0, 0, 0, 5), 127 * 65504.0f) << machine->name;
    EXPECT_EQ(test.Held(result, 0, 0, 1, 6), -127 * 65504.0f) << machine->name;
    for (uint32_t d = 0; d < 64; ++d) EXPECT_EQ(test.Held(result, 0, 1, 1, d), 0.0f);
    EXPECT_EQ(result.status, (std::vector<uint8_t>{0, 0, 0})) << machine->name;
  }
}

// A code cannot be NaN: the scale is, for the plane that holds the value and for no other.
TEST(RopeWriteInt8, NotFiniteValueMakesItsScaleNaN) {
  for (const KernelTable* machine : AllMachines()) {
    for (float bad : {kNaN, -kNaN, kInf, -kInf}) {
      RopeCase test(64, 64, false, KvFormat::kInt8, 8);
      test.qkv[test.ValueAt(1, 1) + 63] = bad;
      const auto result = test.Run(*machine);
      EXPECT_TRUE(SameBytes(result.pages, test.Run(ReferenceKernels()).pages)) << machine->name;
      EXPECT_EQ(result.status, (std::vector<uint8_t>{0, 1, 0})) << machine->name;
      for (uint32_t d = 0; d < 64; ++d) {
        EXPECT_TRUE(std::isnan(test.Held(result, 1, 1, 1, d))) << machine->name;
        EXPECT_TRUE(std::isfinite(test.Held(result, 1, 1, 0, d))) << machine->name;
        EXPECT_TRUE(std::isfinite(test.Held(result, 1, 0, 1, d))) << machine->name;
      }
    }
  }
}

}  // namespace
}  // namespace kvrm::ops
