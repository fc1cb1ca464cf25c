#include "pager/free_map.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace kvrm {
namespace {

// The obvious way, bit by bit.
std::vector<MapRun> RunsOf(uint64_t map) {
  std::vector<MapRun> runs;
  for (uint32_t i = 0; i < kFreeMapBits; ++i) {
    if ((map >> i & 1) == 0) continue;
    if (i == 0 || (map >> (i - 1) & 1) == 0) runs.push_back({i, 0});
    ++runs.back().count;
  }
  return runs;
}

void ExpectEqualsTheObviousWay(uint64_t map) {
  const std::vector<MapRun> runs = RunsOf(map);
  uint32_t longest = 0;
  for (const MapRun& run : runs) longest = std::max(longest, run.count);
  ASSERT_EQ(LongestFreeRun(map), longest) << std::hex << map;
  for (uint32_t count = 1; count <= kFreeMapBits; ++count) {
    MapRun best;
    for (const MapRun& run : runs) {
      if (run.count >= count && (best.count == 0 || run.count < best.count)) best = run;
    }
    ASSERT_EQ(BestFittingRun(map, count), best) << std::hex << map << std::dec << " " << count;
  }
  for (const MapRun& run : runs) {
    ASSERT_EQ(FreeRunAt(map, run.begin), run.count);
    ASSERT_EQ(map & MaskOf(run), MaskOf(run));
  }
}

TEST(FreeMap, EdgesEqualTheObviousWay) {
  ExpectEqualsTheObviousWay(0);
  ExpectEqualsTheObviousWay(~uint64_t{0});
  for (uint32_t i = 0; i < kFreeMapBits; ++i) {
    ExpectEqualsTheObviousWay(uint64_t{1} << i);
    ExpectEqualsTheObviousWay(~(uint64_t{1} << i));
    ExpectEqualsTheObviousWay(~uint64_t{0} >> i);
    ExpectEqualsTheObviousWay(~uint64_t{0} << i);
  }
  EXPECT_EQ(FreeRunAt(~uint64_t{0}, 64), 0u);
}

TEST(FreeMap, RandomMapsEqualTheObviousWay) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    uint64_t map = random();
    if (i % 3 == 1) map |= random() | random();  // long runs
    if (i % 3 == 2) map &= random() & random();  // short runs
    ExpectEqualsTheObviousWay(map);
  }
}

}  // namespace
}  // namespace kvrm
