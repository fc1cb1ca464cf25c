// The parts below the verbs: bins, page tables, and the pool's refusal of what must not happen.
#include "pager/page_pool.h"

#include <cstdio>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "pager/pager_testing.h"

namespace kvrm {
namespace {

using testing::TinyGroup;

PagePool MakePool(uint32_t superblocks) {
  const uint64_t unit = TinyGroup().superblock_bytes;
  auto range = VirtualRange::Reserve(superblocks * unit, unit);
  return PagePool(TinyGroup(), std::move(range).value(), {});
}

TEST(SuperblockBins, FindEqualsAScanOverAll) {
  constexpr uint32_t kCount = 40;
  SuperblockBins bins(kCount);
  std::map<uint32_t, BinKey> filed;
  std::mt19937 random(3);
  for (int i = 0; i < 20'000; ++i) {
    const uint32_t id = random() % kCount;
    if (filed.contains(id)) {
      bins.Remove(SuperblockId{id}, filed[id]);
      filed.erase(id);
    } else {
      const uint32_t run = random() % 65;
      filed[id] = {run, static_cast<uint32_t>(random() % (65 - run))};
      bins.Insert(SuperblockId{id}, filed[id]);
    }
    const uint32_t wanted = 1 + random() % 64;
    BinKey best;
    uint32_t longest = 0;
    for (const auto& [other, key] : filed) {
      longest = std::max(longest, key.longest_free_run);
      if (key.longest_free_run < wanted) continue;
      if (best.longest_free_run == 0 || key.longest_free_run < best.longest_free_run ||
          (key.longest_free_run == best.longest_free_run && key.pages_in_use > best.pages_in_use)) {
        best = key;
      }
    }
    const SuperblockId* found = bins.FindFitting(wanted);
    ASSERT_EQ(found != nullptr, best.longest_free_run > 0);
    if (found != nullptr) {
      ASSERT_EQ(filed[found->value], best);
    }
    ASSERT_EQ(bins.LongestRun(), longest);
    uint32_t seen = 0;
    bins.ForEach([&](SuperblockId each, BinKey key) {
      ASSERT_EQ(filed.at(each.value), key);
      ++seen;
    });
    ASSERT_EQ(seen, filed.size());
  }
}

TEST(PageTables, ReadRunsAreCountedAtEditTime) {
  PageTables tables(2, 32, 8);
  std::mt19937 random(5);
  const auto count = [&] {
    uint64_t runs = 0;
    for (uint32_t slot : {0u, 1u}) {
      for (uint32_t i = 0; i < tables.num_pages(slot); ++i) {
        runs += tables.Pages(slot)[i] != kNullPage && !tables.Continues(slot, i) ? 1 : 0;
      }
    }
    return runs;
  };
  for (int i = 0; i < 20'000; ++i) {
    const uint32_t slot = random() % 2, held = tables.num_pages(slot);
    const uint32_t page = 1 + random() % 23;
    const uint32_t run = 1 + static_cast<uint32_t>(random()) % (8 - page % 8);
    switch (random() % 5) {
      case 0:
        if (held < 24) tables.Push(slot, {PageId{page}, run});
        break;
      case 1:
        if (held > 0) tables.Pop(slot, tables.LastRun(slot, random() % held).count);
        break;
      case 2:
        if (held < 24) tables.Push(slot, {kNullPage, run});
        break;
      case 3: {
        if (held == 0) break;
        const uint32_t index = random() % held;
        const PageRun punched = tables.RunAt(slot, index, held);
        const uint64_t before = tables.read_runs();
        if (punched.holes()) break;
        tables.Punch(slot, index, punched);
        ASSERT_EQ(tables.read_runs(), count());
        if (random() % 2 == 0) break;
        tables.Fill(slot, index, punched);
        ASSERT_EQ(tables.read_runs(), before);
        break;
      }
      default:
        if (held > 0) tables.Replace(slot, random() % held, PageId{page});
    }
    ASSERT_EQ(tables.read_runs(), count());
  }
}

TEST(PageTables, ARunEndsWithItsSuperblock) {
  PageTables tables(1, 32, 8);
  EXPECT_FALSE(tables.Push(0, {PageId{5}, 3}));
  EXPECT_FALSE(tables.Push(0, {PageId{8}, 2}));  // the next number, but another superblock
  EXPECT_TRUE(tables.Push(0, {PageId{10}, 1}));
  EXPECT_EQ(tables.read_runs(), 2u);
  EXPECT_EQ(tables.LastRun(0, 0).count, 3u);
  EXPECT_EQ(tables.LastRun(0, 4).count, 2u);
}

TEST(PagePoolDeathTest, DoubleFreeIsImpossible) {
  PagePool pool = MakePool(2);
  const PageRun run = pool.TakeRun({.count = 2, .run_count = 2}).run;
  pool.DropReference(run, 1);
  EXPECT_DEATH(pool.DropReference(run, 1), "PAGER-2");
  EXPECT_DEATH(pool.Untake(run), "PAGER-2");
  pool.DrainLimbo(1);
  EXPECT_DEATH(pool.DropReference(run, 2), "PAGER-2");
  EXPECT_DEATH(pool.Unlimbo(run), "PAGER-4");
  EXPECT_DEATH(pool.AddReference(run), "PAGER-4");
}

TEST(PagePoolDeathTest, TheNullPageIsNeverGivenBack) {
  PagePool pool = MakePool(2);
  EXPECT_DEATH(pool.DropReference({kNullPage, 1}, 1), "PAGER-3");
  EXPECT_DEATH(pool.Untake({kNullPage, 1}), "PAGER-3");
}

TEST(PagePoolDeathTest, ASuperblockInUseIsNotGivenBack) {
  PagePool pool = MakePool(2);
  EXPECT_DEATH(pool.UntakeSuperblock(SuperblockId{0}), "PAGER-4");  // it holds the null page
}

// ---- the cache

// A pool with one run of indexed pages that somebody holds.
struct Indexed {
  PagePool pool = MakePool(2);
  PageRun run;
  explicit Indexed(uint32_t count) {
    run = pool.TakeRun({.count = count, .run_count = count}).run;
    for (uint32_t i = 0; i < count; ++i) pool.SetIndexed(At(i), true);
  }
  PageId At(uint32_t i) const { return PageId{run.page.value + i}; }
  std::vector<uint32_t> Cached() const {
    PagerSnapshot::Group group;
    pool.Describe(group);
    return group.cached;
  }
};

TEST(PagePoolCache, AnIndexedPageIsCachedWhenItsEpochHasCompletedAndTheLastPageIsTheOldest) {
  Indexed s(3);
  s.pool.DropReference(s.run, 1);
  EXPECT_EQ(s.pool.limbo_pages(), 3u);
  EXPECT_EQ(s.pool.cached_pages(), 0u);
  s.pool.DrainLimbo(1);
  EXPECT_EQ(s.pool.limbo_pages(), 0u);
  EXPECT_EQ(s.pool.books().cached, 3u);
  EXPECT_EQ(s.pool.books().in_use, 1u);
  EXPECT_EQ(s.pool.free_pages(), 4u);
  for (uint32_t i : {2u, 1u, 0u}) {  // a chain loses its tail before its head
    ASSERT_EQ(s.pool.OldestCached(), s.At(i));
    s.pool.EvictCached(s.At(i));
    EXPECT_FALSE(s.pool.indexed(s.At(i)));
  }
  EXPECT_EQ(s.pool.free_pages(), 7u);
}

TEST(PagePoolCache, WhatMakesARunIsBelowTheOldestPageAndFreeAboveIt) {
  Indexed s(6);  // pages 1 to 6 of the first eight; 7 is free
  s.pool.DropReference(s.run, 1);
  s.pool.DrainLimbo(1);
  const auto run = [&](uint32_t page, uint32_t most) {
    const PageRun found = s.pool.ReclaimableRun(s.At(page), most);
    return std::pair(found.page.value - s.At(0).value, found.count);
  };
  EXPECT_EQ(run(5, 4), std::pair(2u, 4u));
  EXPECT_EQ(run(5, 8), std::pair(0u, 7u));
  EXPECT_EQ(run(2, 8), std::pair(0u, 3u));  // not the cached pages above
  s.pool.EvictCached(s.At(3));
  EXPECT_EQ(run(2, 8), std::pair(0u, 4u));
  EXPECT_EQ(run(2, 2), std::pair(1u, 2u));
  EXPECT_EQ(run(4, 8), std::pair(0u, 5u));
}

TEST(PagePoolCache, APageThatIsWantedAgainLeavesLimboOfAnyEpochAndTheCache) {
  Indexed s(3);
  s.pool.DropReference({s.At(0), 1}, 1);
  s.pool.DropReference({s.At(1), 1}, 2);
  s.pool.DropReference({s.At(2), 1}, 3);
  s.pool.DrainLimbo(1);
  s.pool.BeginStep();
  s.pool.AddReference(s.run);  // from the cache, from limbo of an earlier epoch, of the last one
  EXPECT_EQ(s.pool.cached_pages() + s.pool.limbo_pages(), 0u);
  EXPECT_EQ(s.pool.books().in_use, 4u);
  for (uint32_t i : {0u, 1u, 2u}) EXPECT_EQ(s.pool.references(s.At(i)), 1u);
  s.pool.DrainLimbo(3);
  EXPECT_EQ(s.pool.books().in_use, 4u);
}

TEST(PagePoolCache, UndoReferenceReturnsEachPageToWhereItWasFound) {
  Indexed s(3);
  s.pool.DropReference({s.At(0), 1}, 1);
  s.pool.DropReference({s.At(1), 1}, 2);
  s.pool.DropReference({s.At(2), 1}, 3);
  s.pool.DrainLimbo(1);
  PagerSnapshot::Group before, after;
  s.pool.Describe(before);
  s.pool.BeginStep();
  s.pool.AddReference(s.run);
  s.pool.UndoReference(s.run, 4);
  s.pool.Describe(after);
  EXPECT_EQ(after, before);
  // An epoch that completes while the page is held does not bring it back to limbo.
  s.pool.BeginStep();
  s.pool.AddReference(s.run);
  s.pool.DrainLimbo(2);
  s.pool.UndoReference(s.run, 4);
  EXPECT_EQ(s.Cached(), (std::vector<uint32_t>{s.At(0).value, s.At(1).value}));
  EXPECT_EQ(s.pool.limbo_pages(), 1u);
  s.pool.DrainLimbo(3);
  EXPECT_EQ(s.pool.cached_pages(), 3u);
}

TEST(PagePoolCache, APageThatThisStepDroppedRestsUntilTheStepIsRolledBackWhole) {
  Indexed s(1);
  s.pool.DropReference(s.run, 1);
  s.pool.DrainLimbo(1);
  PagerSnapshot::Group before, after;
  s.pool.Describe(before);
  s.pool.BeginStep();
  s.pool.AddReference(s.run);      // one sequence adopts the page ...
  s.pool.AddReference(s.run);      // ... and another,
  s.pool.DropReference(s.run, 2);  // the first leaves it,
  s.pool.UndoReference(s.run, 2);  // the other is rolled back to a savepoint
  EXPECT_EQ(s.pool.limbo_pages(), 1u);
  s.pool.BeginRollback();
  s.pool.AddReference(s.run);
  s.pool.UndoReference(s.run, 2);
  s.pool.Describe(after);
  EXPECT_EQ(after, before);
}

TEST(PagePoolCache, LimboStaysInOrderOfEpochs) {
  Indexed s(4);
  for (uint32_t i : {0u, 1u, 2u}) s.pool.DropReference({s.At(i), 1}, 1 + i);
  s.pool.BeginStep();
  s.pool.AddReference({s.At(0), 1});
  s.pool.DropReference({s.At(3), 1}, 4);
  s.pool.UndoReference({s.At(0), 1}, 4);  // back before those of epochs 2, 3 and 4
  for (uint64_t epoch : {1u, 2u, 3u, 4u}) {
    s.pool.DrainLimbo(epoch);
    EXPECT_EQ(s.pool.cached_pages(), epoch);
  }
}

TEST(PagePoolCache, APageThatLosesItsMarkBecomesFreeIfNobodyHoldsIt) {
  Indexed s(3);
  s.pool.DropReference({s.At(0), 2}, 1);
  s.pool.DrainLimbo(1);
  s.pool.DropReference({s.At(2), 1}, 2);
  s.pool.SetIndexed(s.At(0), false);  // cached
  EXPECT_EQ(s.Cached(), (std::vector<uint32_t>{s.At(1).value}));
  EXPECT_EQ(s.pool.free_pages(), 5u);
  s.pool.SetIndexed(s.At(2), false);  // in limbo
  EXPECT_EQ(s.pool.limbo_pages(), 1u);
  s.pool.DrainLimbo(2);
  EXPECT_EQ(s.pool.free_pages(), 6u);
}

TEST(PagePoolCache, AnEvictionIsUndoneWithTheBytesOfThePage) {
  auto range = VirtualRange::Reserve(2 * TinyGroup().superblock_bytes, 2048);
  PagePool pool(TinyGroup(), std::move(range).value(), {.poison_freed = true});
  const PageRun run = pool.TakeRun({.count = 2, .run_count = 2}).run;
  std::byte& byte = pool.base()[TinyGroup().PageOffset(run.page)];
  byte = std::byte{7};
  for (uint32_t i : {0u, 1u}) pool.SetIndexed(PageId{run.page.value + i}, true);
  pool.DropReference({run.page, 1}, 1);
  pool.DropReference({PageId{run.page.value + 1}, 1}, 1);
  pool.DrainLimbo(1);
  PagerSnapshot::Group before, after;
  pool.Describe(before);
  pool.EvictCached(run.page);
  const PageRun taken = pool.TakeRun({}).run;
  pool.Untake(taken);
  EXPECT_EQ(taken.page, run.page);  // handed out again, but not yet written
  pool.UndoEvict(run.page);
  pool.Describe(after);
  EXPECT_EQ(after, before);
  EXPECT_EQ(byte, std::byte{7});
  EXPECT_EQ(pool.OldestCached(), run.page);
  pool.EvictCached(run.page);
  pool.PoisonFreed(run.page);
  EXPECT_EQ(byte, std::byte{0xFF});
}

TEST(PagePoolCacheDeathTest, OnlyWhatNobodyHoldsIsEvicted) {
  Indexed s(1);
  EXPECT_DEATH(s.pool.EvictCached(s.At(0)), "PAGER-9");
  EXPECT_DEATH(s.pool.UndoEvict(s.At(0)), "PAGER-4");
  EXPECT_DEATH(s.pool.SetIndexed(PageId{5}, true), "PAGER-9");  // free
  EXPECT_DEATH(s.pool.SetIndexed(kNullPage, true), "PAGER-9");
}

TEST(PagePoolCache, AnIndexedPageIsNotWrittenInPlace) {
  Indexed s(1);
  EXPECT_FALSE(s.pool.HasOneOwner(s.At(0)));
  s.pool.SetIndexed(s.At(0), false);
  EXPECT_TRUE(s.pool.HasOneOwner(s.At(0)));
}

TEST(PagePool, SparesGoBackAndForthWithoutLosingASuperblock) {
  PagePool pool = MakePool(4);
  pool.PopulateSpare();
  EXPECT_EQ(pool.spare_bytes(), 2048u);
  EXPECT_TRUE(pool.GiveBackSpare());
  EXPECT_FALSE(pool.GiveBackSpare());
  EXPECT_EQ(pool.spare_bytes(), 0u);
  const auto taken = pool.TakeRun({.count = 8, .run_count = 8, .spendable_bytes = 3 * 2048});
  ASSERT_TRUE(taken.new_superblock.has_value());
  EXPECT_EQ(taken.run.page, PageId{8});
  pool.Untake(taken.run);
  pool.UntakeSuperblock(*taken.new_superblock);
  EXPECT_EQ(pool.spare_bytes(), 2048u);  // still populated
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(pool.TakeRun({.count = 8, .run_count = 8, .spendable_bytes = 2048}).run.page.value,
              8u * (static_cast<uint32_t>(i) + 1));
  }
}

TEST(PagePool, SuperblocksAreTakenAndGivenBackInAnyOrder) {
  PagePool pool = MakePool(4);
  std::vector<PageRun> runs;  // superblock 0 without the null page, then 1, 2, 3
  for (uint32_t count : {7u, 8u, 8u, 8u}) {
    runs.push_back(pool.TakeRun({.count = count, .run_count = count, .spendable_bytes = 2048}).run);
  }
  EXPECT_FALSE(pool.GiveBackEmpty());
  for (uint32_t i : {0u, 1u, 2u}) pool.DropReference(runs[i], 1);
  pool.DrainLimbo(1);
  EXPECT_TRUE(pool.GiveBackEmpty());
  EXPECT_TRUE(pool.GiveBackEmpty());
  EXPECT_FALSE(pool.GiveBackEmpty());  // the null page's stays
  EXPECT_EQ(pool.taken_bytes(), 2 * 2048u);
  EXPECT_EQ(pool.free_pages(), 7u);
  EXPECT_EQ(pool.given_back(), 2u);
  PagerSnapshot::Group group;
  pool.Describe(group);
  ASSERT_EQ(group.superblocks.size(), 4u);
  EXPECT_FALSE(group.superblocks[1].taken || group.superblocks[2].taken);
  EXPECT_EQ(group.books.total, 16u);
  const auto again = pool.TakeRun({.count = 8, .run_count = 8, .spendable_bytes = 2048});
  EXPECT_TRUE(again.new_superblock == SuperblockId{1} || again.new_superblock == SuperblockId{2});
}

TEST(VirtualRange, PopulatedMemoryIsZeroAndDiscardedMemoryAgain) {
  auto range = VirtualRange::Reserve(8u << 20, 2u << 20);
  ASSERT_TRUE(range.ok());
  range->Populate(2u << 20, 2u << 20);
  std::byte* place = range->base() + (3u << 20);
  EXPECT_EQ(*place, std::byte{0});
  *place = std::byte{9};
  range->Populate(2u << 20, 2u << 20);  // what is there stays
  EXPECT_EQ(*place, std::byte{9});
  range->Discard(2u << 20, 2u << 20);
  EXPECT_EQ(*place, std::byte{0});
}

// What the kernel says it was advised of the mapping that holds `address`: "hg", "nh", ...; empty
// where it does not say.
std::string AdviceOf(const std::byte* address) {
  std::ifstream mappings("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(mappings, line);) {
    unsigned long long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &begin, &end) == 2) {
      const auto at = reinterpret_cast<uintptr_t>(address);
      inside = begin <= at && at < end;
    }
    if (inside && line.starts_with("VmFlags:")) return line.substr(8) + " ";
  }
  return "";
}

TEST(VirtualRange, HugePagesAreAskedForWhereAUnitIsMadeOfWholeOnesAndDeclinedElsewhere) {
  constexpr uint64_t kHuge = 2u << 20;
  for (const uint64_t unit : {kHuge, 3 * kHuge, kHuge / 2, kHuge + 65536, uint64_t{65536}}) {
    SCOPED_TRACE(unit);
    const auto range = VirtualRange::Reserve(4 * unit, unit);
    ASSERT_TRUE(range.ok());
    for (const uint64_t offset : {uint64_t{0}, 4 * unit - 1}) {
      const std::string advice = AdviceOf(range.value().base() + offset);
      if (advice.empty()) continue;  // a kernel that does not tell
      EXPECT_EQ(advice.find(" hg ") != std::string::npos, unit % kHuge == 0) << advice;
      EXPECT_EQ(advice.find(" nh ") != std::string::npos, unit % kHuge != 0) << advice;
    }
  }
}

TEST(VirtualRange, ARangeThatTheSystemRefusesIsAnError) {
  const auto range = VirtualRange::Reserve(uint64_t{1} << 60, 2u << 20);
  ASSERT_FALSE(range.ok());
  EXPECT_EQ(range.error().kind, ErrorKind::kNoRoom);
}

}  // namespace
}  // namespace kvrm
