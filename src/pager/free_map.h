// The free map of one superblock: a 64-bit word, bit i set = page i of the superblock is free.
// Everything that the pool asks of a superblock is arithmetic on this word. Pure; thread-safe.
#pragma once

#include <bit>
#include <cstdint>

namespace kvrm {

inline constexpr uint32_t kFreeMapBits = 64;

// Adjacent pages within one superblock; count 0 = none.
struct MapRun {
  uint32_t begin = 0;
  uint32_t count = 0;
  bool operator==(const MapRun&) const = default;
};

// Requires: 1 <= run.count and run.begin + run.count <= 64.
constexpr uint64_t MaskOf(MapRun run) {
  return (~uint64_t{0} >> (kFreeMapBits - run.count)) << run.begin;
}

// Free pages from page `begin` on, 0 when it is in use or past the end of the word.
constexpr uint32_t FreeRunAt(uint64_t map, uint32_t begin) {
  return begin < kFreeMapBits ? static_cast<uint32_t>(std::countr_one(map >> begin)) : 0;
}

// Length of the longest free run. Six doublings find the power of two below it, as many halvings
// the rest: after the doublings, bit i of levels[k] says that 2^k pages from i on are free.
constexpr uint32_t LongestFreeRun(uint64_t map) {
  if (map == 0) return 0;
  uint64_t levels[7] = {map};
  uint32_t top = 0;
  while (top < 6) {
    const uint64_t doubled = levels[top] & (levels[top] >> (1u << top));
    if (doubled == 0) break;
    levels[++top] = doubled;
  }
  uint32_t length = 1u << top;
  if (length == kFreeMapBits) return length;
  uint64_t starts = levels[top];
  for (uint32_t level = top; level-- > 0;) {
    const uint64_t longer = starts & (levels[level] >> length);
    if (longer == 0) continue;
    starts = longer;
    length += 1u << level;
  }
  return length;
}

// The shortest free run of at least `count` pages, the lowest of equals: it leaves long runs for
// those who need them. At most 32 runs fit a word. Requires: count >= 1.
constexpr MapRun BestFittingRun(uint64_t map, uint32_t count) {
  MapRun best;
  while (map != 0) {
    const uint32_t begin = static_cast<uint32_t>(std::countr_zero(map));
    const MapRun run{begin, FreeRunAt(map, begin)};
    if (run.count == count) return run;
    if (run.count > count && (best.count == 0 || run.count < best.count)) best = run;
    map &= ~MaskOf(run);
  }
  return best;
}

}  // namespace kvrm
