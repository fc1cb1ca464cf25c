#include "transport/page_copies.h"

#include <vector>

#include "gtest/gtest.h"
#include "transport/copy_engine.h"

namespace kvrm {
namespace {

// Two groups of other sizes: 3 parts of 64 bytes in superblocks of 8 pages, 2 of 96 in those of 4.
KvGeometry TwoGroups() {
  KvGeometry geometry;
  KvGroupGeometry group;
  group.num_parts = 3;
  group.part_page_bytes = 64;
  group.pages_per_superblock = 8;
  group.superblock_bytes = 2048;
  geometry.groups.push_back(group);
  group.num_parts = 2;
  group.part_page_bytes = 96;
  group.pages_per_superblock = 4;
  group.superblock_bytes = 1024;
  geometry.groups.push_back(group);
  return geometry;
}

uint8_t Tag(uint32_t group, uint32_t page, uint32_t part) {
  return static_cast<uint8_t>(1 + group * 97 + page * 5 + part);
}

TEST(PageCopies, EveryPartOfEachPageArrives) {
  const KvGeometry geometry = TwoGroups();
  TrainMerger merger;
  CpuCopyEngine engine;
  std::vector<std::vector<std::byte>> pools;
  for (uint32_t g = 0; g < 2; ++g) {
    const KvGroupGeometry& group = geometry.groups[g];
    pools.emplace_back(4 * group.superblock_bytes);
    for (uint32_t page = 0; page < 4 * group.pages_per_superblock; ++page) {
      for (uint32_t part = 0; part < group.num_parts; ++part) {
        std::byte* at =
            pools[g].data() + group.PageOffset(PageId{page}) + part * group.part_stride_bytes();
        std::fill_n(at, group.part_page_bytes, static_cast<std::byte>(Tag(g, page, part)));
      }
    }
  }
  auto expected = pools;
  const std::vector<Pager::PageCopy> copies = {{0, PageId{3}, PageId{17}},
                                               {0, PageId{4}, PageId{18}},
                                               {1, PageId{3}, PageId{9}},
                                               {0, PageId{17}, PageId{30}}};  // a copy of a copy
  for (const auto& copy : copies) {
    const KvGroupGeometry& group = geometry.groups[copy.kv_group];
    for (uint32_t part = 0; part < group.num_parts; ++part) {
      const uint64_t shift = part * group.part_stride_bytes();
      for (uint64_t i = 0; i < group.part_page_bytes; ++i) {
        expected[copy.kv_group][group.PageOffset(copy.destination) + shift + i] =
            expected[copy.kv_group][group.PageOffset(copy.source) + shift + i];
      }
    }
  }
  for (uint8_t g = 0; g < 2; ++g) {
    engine.Bind({.kind = CopySpaceKind::kPool, .kv_group = g}, pools[g].data(), pools[g].size());
  }
  AddPageCopies(geometry, copies, merger);
  engine.Run(merger.Collect());
  EXPECT_EQ(pools, expected);
  EXPECT_EQ(merger.pending(), 0u);
}

TEST(PageCopies, AdjacentPagesThatMoveToAdjacentPagesTravelTogether) {
  const KvGeometry geometry = TwoGroups();
  TrainMerger merger;
  const std::vector<Pager::PageCopy> copies = {
      {0, PageId{1}, PageId{11}}, {0, PageId{2}, PageId{12}}, {0, PageId{3}, PageId{13}}};
  AddPageCopies(geometry, copies, merger);
  const auto trains = merger.Collect();
  ASSERT_EQ(trains.size(), 3u);  // one a part
  for (const Train& train : trains) {
    EXPECT_EQ(train.bytes, 3u * 64);
    EXPECT_EQ(train.pieces, 3u);
    EXPECT_EQ(train.cause, CopyCause::kCopyOnWrite);
  }
}

}  // namespace
}  // namespace kvrm
