// For each law a snapshot is corrupted so that exactly that law is reported.
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pager/free_map.h"
#include "pager/pager.h"
#include "pager/pager_testing.h"

namespace kvrm {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::StartsWith;

constexpr uint32_t kCachedPage = 3;

// Two sequences that share two pages, one page in limbo, one cached, two superblocks; and one
// sequence of page 4 that keeps 5 and 6.
PagerSnapshot SoundSnapshot() {
  const auto pager = testing::MakePager(testing::TinyConfig(4));
  pager->BeginStep();
  const SeqId a = *pager->Open();
  EXPECT_EQ(pager->Reserve(a, 16 * 9).status, ReserveStatus::kOk);
  (void)pager->Commit(1);
  pager->BeginStep();
  const SeqId b = *pager->Open();
  (void)pager->Alias(b, a, 32);
  pager->Trim(a, 16 * 8);
  (void)pager->Commit(2);
  PagerSnapshot snapshot = pager->Snapshot();
  // What the prefix index would say of a prompt of two pages, one of which is in use still.
  auto& group = snapshot.groups[0];
  const uint32_t cached = kCachedPage, used = group.sequences[0].pages[0];
  group.superblocks[0].free_map &= ~(uint64_t{1} << cached);
  group.superblocks[0].longest_free_run = LongestFreeRun(group.superblocks[0].free_map);
  ++group.superblocks[0].pages_in_use;
  --group.books.free;
  ++group.books.cached;
  group.cached = {cached};
  group.indexed = {{cached, 1, cached}, {used, 2, used}};
  PagerSnapshot::Sequence& decodes = group.sequences.emplace_back();
  decodes.seq_id = 7;
  decodes.num_tokens = 16;
  decodes.pages = {4};
  decodes.soft_page = 5;
  decodes.soft_pages = 2;
  group.reference_counts[4] = 1;
  auto& first = group.superblocks[0];
  first.free_map &= ~MaskOf({4, 3});
  first.longest_free_run = LongestFreeRun(first.free_map);
  first.pages_in_use += 3;
  group.books.free -= 3;
  ++group.books.in_use;
  group.books.soft += 2;
  EXPECT_THAT(Validate(snapshot), ElementsAre());
  EXPECT_EQ(snapshot.groups[0].limbo.size(), 1u);
  EXPECT_EQ(snapshot.groups[0].superblocks.size(), 2u);
  return snapshot;
}

std::vector<std::string> ViolationsAfter(const std::function<void(PagerSnapshot&)>& corrupt) {
  PagerSnapshot snapshot = SoundSnapshot();
  corrupt(snapshot);
  return Validate(snapshot);
}

std::vector<PagerSnapshot::IndexedPage>::const_iterator FirstIndexed(const PagerSnapshot& s) {
  return s.groups[0].indexed.begin();
}

// Any page of the second sequence: shared with the first.
uint32_t SharedPage(const PagerSnapshot& snapshot) {
  return snapshot.groups[0].sequences[1].pages[0];
}

TEST(PagerValidate, Pager1BooksThatDoNotBalance) {
  for (auto change : std::vector<std::function<void(PagerBooks&)>>{
           [](PagerBooks& b) {
             ++b.free;
             --b.in_use;
           },
           [](PagerBooks& b) { ++b.total; }, [](PagerBooks& b) { ++b.limbo; },
           [](PagerBooks& b) { ++b.soft; }, [](PagerBooks& b) { ++b.cached; },
           [](PagerBooks& b) { ++b.in_flight; }, [](PagerBooks& b) { ++b.superblocks; }}) {
    const auto found = ViolationsAfter([&](PagerSnapshot& s) { change(s.groups[0].books); });
    EXPECT_FALSE(found.empty());
    for (const std::string& each : found) EXPECT_THAT(each, StartsWith("PAGER-1 group 0"));
  }
}

TEST(PagerValidate, Pager1CountsThatDoNotCoverTheSuperblocks) {
  EXPECT_THAT(ViolationsAfter([](PagerSnapshot& s) { s.groups[0].reference_counts.pop_back(); }),
              ElementsAre(StartsWith("PAGER-1")));
}

TEST(PagerValidate, Pager2AReferenceTooManyOrTooFew) {
  for (uint32_t count : {1u, 3u}) {
    EXPECT_THAT(ViolationsAfter(
                    [&](PagerSnapshot& s) { s.groups[0].reference_counts[SharedPage(s)] = count; }),
                ElementsAre(StartsWith("PAGER-2 group 0: page 8 ")));
  }
}

TEST(PagerValidate, Pager3TheNullPageHandedOut) {
  EXPECT_THAT(ViolationsAfter([](PagerSnapshot& s) {
                auto& page = s.groups[0].sequences[0].pages[2];
                --s.groups[0].reference_counts[page];
                s.groups[0].limbo.push_back({page, 2});
                --s.groups[0].books.in_use;
                ++s.groups[0].books.limbo;
                page = 0;
              }),
              ElementsAre(HasSubstr("PAGER-3 group 0: a sequence names the null page")));
}

TEST(PagerValidate, Pager3TheNullPageGivenBack) {
  EXPECT_THAT(ViolationsAfter([](PagerSnapshot& s) {
                s.groups[0].limbo.push_back({0, 2});
                ++s.groups[0].books.limbo;
                ++s.groups[0].books.total;
                ++s.groups[0].books.free;
              }),
              ::testing::Contains(HasSubstr("PAGER-3 group 0: the null page is in limbo")));
  EXPECT_THAT(ViolationsAfter([](PagerSnapshot& s) {
                auto& group = s.groups[0];  // its superblock's map and bin go along
                auto& first = group.superblocks[0];
                first.free_map |= 1;
                first.longest_free_run = LongestFreeRun(first.free_map);
                --first.pages_in_use;
                ++group.books.free;
                --group.books.in_use;
                group.reference_counts[0] = 0;
              }),
              Contains("PAGER-3 group 0: the null page is free"));
}

TEST(PagerValidate, Pager4APageInTwoStates) {
  const auto found = ViolationsAfter([](PagerSnapshot& s) {
    s.groups[0].limbo.push_back({s.groups[0].sequences[0].pages[2], 2});
    ++s.groups[0].books.limbo;
    ++s.groups[0].books.total;
  });
  EXPECT_THAT(found, ::testing::Contains(HasSubstr("PAGER-4 group 0: page 10 is referenced 1")));
}

TEST(PagerValidate, Pager4APageInNoState) {
  EXPECT_THAT(ViolationsAfter([](PagerSnapshot& s) {
                auto& group = s.groups[0];
                group.limbo.clear();
                --group.books.limbo;
                --group.books.total;
                ++group.books.total;
                ++group.books.free;
              }),
              ::testing::Contains(HasSubstr("PAGER-4")));
}

TEST(PagerValidate, Pager4FreePagesPastTheLastOfASuperblock) {
  EXPECT_THAT(ViolationsAfter([](PagerSnapshot& s) {
                s.groups[0].superblocks[0].free_map |= uint64_t{1} << 40;
              }),
              ::testing::Contains(HasSubstr("PAGER-4 group 0: superblock 0 has free pages past")));
}

TEST(PagerValidate, Pager4LimboOfAnEpochThatCannotBe) {
  for (uint64_t epoch : {0u, 4u}) {
    EXPECT_THAT(ViolationsAfter([&](PagerSnapshot& s) { s.groups[0].limbo[0].epoch = epoch; }),
                ElementsAre(HasSubstr("PAGER-4 group 0: page 1 is in limbo for epoch")));
  }
}

TEST(PagerValidate, Pager4APageThatIsNotThere) {
  const auto found =
      ViolationsAfter([](PagerSnapshot& s) { s.groups[0].sequences[0].pages.back() = 999; });
  EXPECT_THAT(found, ::testing::Contains(HasSubstr("PAGER-4")));
}

TEST(PagerValidate, Pager4ASuperblockThatIsNotTakenHoldsNothing) {
  const auto found = ViolationsAfter([](PagerSnapshot& s) {
    auto& group = s.groups[0];
    group.superblocks.push_back({});
    group.reference_counts.resize(24);
    EXPECT_THAT(Validate(s), ElementsAre());
    group.superblocks[2].free_map = 2;
    ++group.books.free;
    --group.books.in_use;
  });
  EXPECT_THAT(found, Contains(HasSubstr("PAGER-4 group 0: page 17, not taken, is free")));
}

TEST(PagerValidate, Pager5MoreThanKvBytes) {
  EXPECT_THAT(ViolationsAfter([](PagerSnapshot& s) { s.kv_bytes = 4095; }),
              ElementsAre(StartsWith("PAGER-5: superblocks take 4096 of ")));
  EXPECT_THAT(ViolationsAfter([](PagerSnapshot& s) { s.populated_bytes = s.kv_bytes + 1; }),
              ElementsAre(StartsWith("PAGER-5")));
}

TEST(PagerValidate, Pager6ATableThatDoesNotCoverItsTokens) {
  for (uint32_t tokens : {16u * 7, 16u * 8 + 1}) {
    EXPECT_THAT(
        ViolationsAfter([&](PagerSnapshot& s) { s.groups[0].sequences[0].num_tokens = tokens; }),
        ElementsAre(StartsWith("PAGER-6 group 0")));
  }
}

// The page of that table entry, which no other sequence names, goes to limbo.
void LetGo(PagerSnapshot& s, uint32_t index) {
  auto& group = s.groups[0];
  const uint32_t page = group.sequences[0].pages[index];
  group.reference_counts[page] = 0;
  group.limbo.push_back({page, 2});
  --group.books.in_use;
  ++group.books.limbo;
}

TEST(PagerValidate, Pager6ATableThatEndsWithAHole) {
  const auto cold = [](uint32_t index) {
    return [index](PagerSnapshot& s) {
      LetGo(s, index);
      s.groups[0].sequences[0].lossy = true;
      s.groups[0].sequences[0].pages[index] = 0;
    };
  };
  EXPECT_THAT(ViolationsAfter(cold(6)), ElementsAre());
  EXPECT_THAT(ViolationsAfter(cold(7)),
              ElementsAre("PAGER-6 group 0: sequence 8 ends with a hole"));
}

TEST(PagerValidate, Pager6ATableThatBeginsAfterWhatTheNextRowSees) {
  const auto slid = [](uint32_t window) {
    return [window](PagerSnapshot& s) {  // 128 tokens; the pages before place 48 have left
      auto& group = s.groups[0];
      auto& pages = group.sequences[0].pages;
      LetGo(s, 2);
      for (uint32_t shared : {0u, 1u}) --group.reference_counts[pages[shared]];
      pages.erase(pages.begin(), pages.begin() + 3);
      group.sequences[0].first_page = 3;
      group.window_tokens = window;
    };
  };
  EXPECT_THAT(ViolationsAfter(slid(81)), ElementsAre());
  EXPECT_THAT(
      ViolationsAfter(slid(82)),
      ElementsAre("PAGER-6 group 0: sequence 8 begins at page 3, its next row sees token 47"));
  EXPECT_THAT(
      ViolationsAfter(slid(0)),
      ElementsAre("PAGER-6 group 0: sequence 8 begins at page 3, its next row sees token 0"));
}

TEST(PagerValidate, Pager7ASuperblockInTheWrongBin) {
  EXPECT_THAT(
      ViolationsAfter([](PagerSnapshot& s) { ++s.groups[0].superblocks[1].longest_free_run; }),
      ElementsAre(StartsWith("PAGER-7 group 0: superblock 1")));
  EXPECT_THAT(ViolationsAfter([](PagerSnapshot& s) { --s.groups[0].superblocks[0].pages_in_use; }),
              ElementsAre(StartsWith("PAGER-7 group 0: superblock 0")));
}

TEST(PagerValidate, Pager4APageThatIsCachedAndSomethingElse) {
  EXPECT_THAT(ViolationsAfter([](PagerSnapshot& s) {
                auto& group = s.groups[0];  // page 8 is referenced twice
                group.cached.push_back(SharedPage(s));
                ++group.books.cached;
                --group.books.in_use;
              }),
              Contains(HasSubstr("PAGER-4 group 0: page 8 is referenced 2 times, in limbo 0 "
                                 "times, cached 1 times")));
  EXPECT_THAT(ViolationsAfter([](PagerSnapshot& s) { s.groups[0].cached.push_back(999); }),
              Contains("PAGER-4 group 0: the cache holds page 999 of 16"));
}

TEST(PagerValidate, Pager4ASoftPageThatIsSomethingElse) {
  EXPECT_THAT(ViolationsAfter([](PagerSnapshot& s) { s.groups[0].reference_counts[5] = 1; }),
              Contains(HasSubstr("PAGER-4 group 0: page 5 is referenced 1 times, in limbo 0 times, "
                                 "cached 0 times, soft 1 times")));
}

TEST(PagerValidate, Pager8ARunThatDoesNotFollowItsSequence) {
  const auto moved = [](PagerSnapshot& s) {
    auto& group = s.groups[0];  // page 5 becomes free
    ++group.sequences[2].soft_page;
    --group.sequences[2].soft_pages;
    auto& first = group.superblocks[0];
    first.free_map |= 1u << 5;
    first.longest_free_run = LongestFreeRun(first.free_map);
    --first.pages_in_use;
    ++group.books.free;
    --group.books.soft;
  };
  EXPECT_THAT(ViolationsAfter(moved), ElementsAre("PAGER-8 group 0: sequence 7's soft run of 1 "
                                                  "pages from 6 on does not follow its last page"));
  EXPECT_THAT(ViolationsAfter([&](PagerSnapshot& s) {
                moved(s);
                s.in_step = true;  // until the commit it may
              }),
              ElementsAre());
}

TEST(PagerValidate, Pager8ARunOfASlotThatIsFree) {
  EXPECT_THAT(ViolationsAfter([](PagerSnapshot& s) {
                auto& group = s.groups[0];
                group.sequences[2].num_tokens = 0;
                group.sequences[2].pages.clear();
                group.reference_counts[4] = 0;
                group.limbo.push_back({4, 2});
                --group.books.in_use;
                ++group.books.limbo;
              }),
              ElementsAre(HasSubstr("PAGER-8 group 0: sequence 7's soft run of 2 pages from 5")));
}

TEST(PagerValidate, Pager8ARunThatIsTooLongOrLeavesItsSuperblock) {
  EXPECT_THAT(ViolationsAfter([](PagerSnapshot& s) { s.groups[0].sequences[2].soft_pages = 4; }),
              IsSupersetOf({HasSubstr("PAGER-8 group 0: sequence 7's soft run of 4 pages from 5 on "
                                      "is too long"),
                            HasSubstr("on leaves its superblock")}));
}

TEST(PagerValidate, Pager9ACachedPageThatTheIndexDoesNotName) {
  EXPECT_THAT(ViolationsAfter([](PagerSnapshot& s) { s.groups[0].indexed.erase(FirstIndexed(s)); }),
              ElementsAre("PAGER-9 group 0: page 3 is cached, but not indexed"));
}

TEST(PagerValidate, Pager9AnIndexedPageThatIsFree) {
  const uint32_t free = 2;
  EXPECT_THAT(
      ViolationsAfter([&](PagerSnapshot& s) { s.groups[0].indexed.push_back({free, 3, free}); }),
      ElementsAre("PAGER-9 group 0: page 2 is indexed without contents"));
}

TEST(PagerValidate, Pager9ANodeThatNamesAnotherPage) {
  EXPECT_THAT(ViolationsAfter([](PagerSnapshot& s) { s.groups[0].indexed[1].node_page = 5; }),
              ElementsAre("PAGER-9 group 0: page 8 is indexed by node 2, which names page 5"));
  const std::string twice = "PAGER-9 group 0: page 3 is indexed more than once";  // each entry says
  EXPECT_THAT(ViolationsAfter(
                  [](PagerSnapshot& s) { s.groups[0].indexed.push_back(s.groups[0].indexed[0]); }),
              ElementsAre(twice, twice));
}

TEST(PagerValidate, ReportsEveryViolation) {
  const auto found = ViolationsAfter([](PagerSnapshot& s) {
    auto& group = s.groups[0];
    s.kv_bytes = 0;
    group.reference_counts[SharedPage(s)] = 9;
    group.sequences[0].num_tokens = 1;
    group.superblocks[1].pages_in_use = 9;
    group.superblocks[0].free_map &= group.superblocks[0].free_map - 1;
  });
  for (const char* law : {"PAGER-1", "PAGER-2", "PAGER-4", "PAGER-5", "PAGER-6", "PAGER-7"}) {
    EXPECT_THAT(found, ::testing::Contains(StartsWith(law)));
  }
}

}  // namespace
}  // namespace kvrm
