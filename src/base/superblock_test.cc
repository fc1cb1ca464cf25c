#include "base/superblock.h"

#include <gtest/gtest.h>

namespace kvrm {
namespace {

constexpr uint64_t kMiB = 1u << 20;

TEST(Superblock, SmolLm2ChoicesAreThoseOfTheArchitecture) {
  const auto fp16 = ChooseSuperblock(/*num_parts=*/30, /*part_page_bytes=*/12'288);
  ASSERT_TRUE(fp16.ok());
  EXPECT_EQ(fp16->superblock_bytes, 6 * kMiB);
  EXPECT_EQ(fp16->pages_per_superblock, 17u);
  const auto int8 = ChooseSuperblock(/*num_parts=*/30, /*part_page_bytes=*/6'336);
  ASSERT_TRUE(int8.ok());
  EXPECT_EQ(int8->superblock_bytes, 4 * kMiB);
  EXPECT_EQ(int8->pages_per_superblock, 22u);
}

TEST(Superblock, TinyPagesFillTheFreeMapWordWithoutWaste) {
  const auto choice = ChooseSuperblock(2, 2'048);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->pages_per_superblock, 64u);
  EXPECT_EQ(choice->superblock_bytes, 64u * 4'096);
  EXPECT_EQ(choice->waste, 0);
}

TEST(Superblock, EveryChoiceHoldsItsPagesWithinTheLimits) {
  for (uint32_t parts : {1u, 2u, 7u, 30u, 61u, 126u}) {
    for (uint64_t b : {1u, 48u, 1'024u, 6'336u, 12'288u, 65'536u, 100'000u, 131'072u}) {
      const auto choice = ChooseSuperblock(parts, b);
      ASSERT_TRUE(choice.ok()) << parts << " x " << b;
      const uint64_t used = choice->pages_per_superblock * parts * b;
      EXPECT_GE(choice->pages_per_superblock, 1u);
      EXPECT_LE(choice->pages_per_superblock, kMaxPagesPerSuperblock);
      EXPECT_LE(used, choice->superblock_bytes);
      EXPECT_LE(choice->superblock_bytes, kMaxSuperblockBytes);
      EXPECT_EQ(choice->superblock_bytes % kSuperblockUnit, 0u);
      EXPECT_NEAR(choice->waste * static_cast<double>(choice->superblock_bytes),
                  static_cast<double>(choice->superblock_bytes - used), 0.5);
    }
  }
}

TEST(Superblock, LeastWasteIsTakenWhenNoSizeMeetsTheBounds) {
  // 64 pages of 1,000 bytes leave 2.3 % of the smallest unit and more of every other.
  const auto choice = ChooseSuperblock(1, 1'000);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->superblock_bytes, kSuperblockUnit);
  EXPECT_EQ(choice->pages_per_superblock, 64u);
  EXPECT_DOUBLE_EQ(choice->waste, 1'536.0 / 65'536.0);
}

TEST(Superblock, PagesThatNoSuperblockHoldsAreRefused) {
  EXPECT_FALSE(ChooseSuperblock(0, 1).ok());
  EXPECT_FALSE(ChooseSuperblock(1, 0).ok());
  EXPECT_TRUE(ChooseSuperblock(1, kMaxSuperblockBytes).ok());
  EXPECT_FALSE(ChooseSuperblock(1, kMaxSuperblockBytes + 1).ok());
  EXPECT_FALSE(ChooseSuperblock(0xFFFF'FFFF, uint64_t{1} << 62).ok());
}

}  // namespace
}  // namespace kvrm
