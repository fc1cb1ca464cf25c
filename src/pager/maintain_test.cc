// Memory that goes back to the system, and who gets it: seen from the system (mincore), not only
// from the books.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "pager/pager.h"
#include "pager/pager_testing.h"

namespace kvrm {
namespace {

using testing::CommitAndComplete;
using testing::ExpectSound;
using testing::MakePager;
using testing::OpenWith;

constexpr uint64_t kSuperblock = 64 << 10;
constexpr uint32_t kPages = 8;  // of a superblock, 16 tokens each

KvGroupGeometry Group(uint32_t page_tokens = 16) {
  KvGroupGeometry group;
  group.page_tokens = page_tokens;
  group.num_parts = 2;
  group.part_page_bytes = 4096;
  group.pages_per_superblock = kPages;
  group.superblock_bytes = kSuperblock;
  return group;
}

PagerConfig Config(uint32_t superblocks, std::vector<KvGroupGeometry> groups = {Group()}) {
  PagerConfig config;
  config.geometry.groups = std::move(groups);
  config.kv_bytes = superblocks * kSuperblock;
  config.max_slots = 32;
  config.max_seq_tokens = 4096;
  return config;
}

// Bytes of a group's range that have memory behind them.
uint64_t ResidentBytes(const Pager& pager, uint32_t group) {
  const uint64_t os_page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> resident((pager.range_bytes(group) + os_page - 1) / os_page);
  EXPECT_EQ(mincore(pager.base(group), pager.range_bytes(group), resident.data()), 0);
  return os_page * static_cast<uint64_t>(std::count_if(resident.begin(), resident.end(),
                                                       [](unsigned char c) { return c & 1; }));
}

std::byte* PageAt(const Pager& pager, uint32_t group, PageId page) {
  return pager.base(group) + pager.geometry().groups[group].PageOffset(page);
}

void PopulateTaken(Pager& pager) {
  while (pager.Maintain(Pager::Load::kTaken)) {
  }
}

void CloseAndComplete(Pager& pager, SeqId seq) {
  pager.BeginStep();
  pager.Close(seq);
  CommitAndComplete(pager);
}

TEST(MaintainIdle, GivesMemoryBackOneSuperblockACallAndKeepsWhatLives) {
  const auto pager = MakePager(Config(16));
  pager->BeginStep();
  const SeqId first = OpenWith(*pager, 16 * 40);
  const SeqId lives = OpenWith(*pager, 16 * 10);
  const SeqId last = OpenWith(*pager, 16 * 40);
  CommitAndComplete(*pager);
  PopulateTaken(*pager);
  for (PageId page : pager->pages(lives, 0)) {
    std::memset(PageAt(*pager, 0, page), static_cast<int>(page.value), 4096);
  }
  const std::byte* base = pager->base(0);
  const uint64_t full = ResidentBytes(*pager, 0);
  EXPECT_EQ(full, pager->books(0).superblock_bytes);
  CloseAndComplete(*pager, first);
  CloseAndComplete(*pager, last);
  EXPECT_EQ(ResidentBytes(*pager, 0), full);  // verbs give nothing back

  uint64_t resident = full, calls = 0;
  while (pager->Maintain(Pager::Load::kIdle)) {
    ++calls;
    EXPECT_EQ(ResidentBytes(*pager, 0), resident - kSuperblock);
    resident -= kSuperblock;
    ExpectSound(*pager);
  }
  EXPECT_EQ(pager->counters().superblocks_given_back, calls);
  // What is left holds the null page or a page of the sequence that lives.
  EXPECT_LE(resident, (1 + 10 / kPages + 2) * kSuperblock);
  EXPECT_EQ(pager->books(0).superblock_bytes, resident);
  EXPECT_EQ(pager->base(0), base);
  for (PageId page : pager->pages(lives, 0)) {
    const std::byte* bytes = PageAt(*pager, 0, page);
    EXPECT_TRUE(std::all_of(bytes, bytes + 4096,
                            [&](std::byte b) { return b == static_cast<std::byte>(page.value); }));
  }
}

TEST(MaintainIdle, AnEmptyPagerKeepsTheNullPagesSuperblockAlone) {
  const auto pager = MakePager(Config(16));
  pager->BeginStep();
  const SeqId seq = OpenWith(*pager, 16 * 100);
  CommitAndComplete(*pager);
  CloseAndComplete(*pager, seq);
  pager->BeginStep();
  (void)OpenWith(*pager, 16 * 120);
  pager->RollbackStep();  // leaves spares behind
  while (pager->Maintain(Pager::Load::kIdle)) {
  }
  EXPECT_EQ(ResidentBytes(*pager, 0), kSuperblock);
  EXPECT_EQ(pager->books(0).superblocks, 1u);
  EXPECT_EQ(pager->counters().superblocks_populated, pager->counters().superblocks_given_back + 1);
}

TEST(MaintainIdle, WhatWasGivenBackIsTakenAgain) {
  const auto pager = MakePager(Config(8));
  for (int round = 0; round < 5; ++round) {
    pager->BeginStep();
    const SeqId a = OpenWith(*pager, 16 * 20), b = OpenWith(*pager, 16 * 20);
    CommitAndComplete(*pager);
    CloseAndComplete(*pager, round % 2 == 0 ? a : b);
    while (pager->Maintain(Pager::Load::kIdle)) {
    }
    pager->BeginStep();
    const SeqId c = OpenWith(*pager, 16 * 43);  // all that kv_bytes allows beside 20 pages
    EXPECT_EQ(pager->available_pages(false), 0u);
    for (PageId page : pager->pages(c, 0)) std::memset(PageAt(*pager, 0, page), 1, 4096);
    ExpectSound(*pager);
    pager->Close(c);
    pager->Close(round % 2 == 0 ? b : a);
    CommitAndComplete(*pager);
  }
}

// ---- what a step took

// A prompt that takes several superblocks at once is not put off, and its verb makes no system call
// either: the memory comes after it, one superblock a call.
TEST(MaintainTaken, PopulatesWhatAVerbTookColdAndKeepsWhatIsWrittenThere) {
  const auto pager = MakePager(Config(16));
  EXPECT_EQ(ResidentBytes(*pager, 0), kSuperblock);
  pager->BeginStep();
  const SeqId seq = OpenWith(*pager, 16 * 30);  // superblock 0 has 7 pages, three more are needed
  EXPECT_EQ(ResidentBytes(*pager, 0), kSuperblock);
  EXPECT_EQ(pager->cold_bytes(), 3 * kSuperblock);
  EXPECT_EQ(pager->counters().superblocks_taken_cold, 3u);
  CommitAndComplete(*pager);
  EXPECT_EQ(ResidentBytes(*pager, 0), kSuperblock);
  for (PageId page : pager->pages(seq, 0)) {
    std::memset(PageAt(*pager, 0, page), static_cast<int>(page.value), 16);
  }
  for (uint64_t cold = 2; pager->Maintain(Pager::Load::kTaken); --cold) {
    EXPECT_EQ(pager->cold_bytes(), cold * kSuperblock);
    ExpectSound(*pager);
  }
  EXPECT_EQ(pager->cold_bytes(), 0u);
  EXPECT_EQ(pager->spare_bytes(0), 0u);  // nothing ahead of need: that can wait for the step's end
  EXPECT_EQ(ResidentBytes(*pager, 0), 4 * kSuperblock);
  for (PageId page : pager->pages(seq, 0)) {
    EXPECT_EQ(*PageAt(*pager, 0, page), static_cast<std::byte>(page.value));
  }
}

TEST(MaintainTaken, WhatAnUndoLeftColdIsPopulatedOrGivenBack) {
  for (const bool populate : {true, false}) {
    const auto pager = MakePager(Config(16));
    pager->BeginStep();
    (void)OpenWith(*pager, 16 * 30);
    pager->RollbackStep();
    EXPECT_EQ(pager->spare_bytes(0), 3 * kSuperblock);
    EXPECT_EQ(pager->cold_bytes(), 3 * kSuperblock);
    if (populate) PopulateTaken(*pager);
    EXPECT_EQ(ResidentBytes(*pager, 0), (populate ? 4 : 1) * kSuperblock);
    while (pager->Maintain(Pager::Load::kIdle)) {
    }
    EXPECT_EQ(pager->cold_bytes(), 0u);
    EXPECT_FALSE(pager->Maintain(Pager::Load::kTaken));
    EXPECT_EQ(ResidentBytes(*pager, 0), kSuperblock);
  }
}

// ---- under load

TEST(MaintainBusy, HoldsALongestChunkReadyAndNoMoreThanFourSuperblocksForIt) {
  for (const uint32_t chunk_pages : {1u, 12u, 20u, 60u}) {
    PagerConfig config = Config(16);
    config.max_step_tokens = 16 * chunk_pages;
    const auto pager = MakePager(config);
    while (pager->Maintain()) {
    }
    const uint64_t ready = 7 + pager->spare_bytes(0) / kSuperblock * kPages;
    EXPECT_GE(ready, std::min(chunk_pages, 4 * kPages));
    EXPECT_LT(ready, std::min(chunk_pages, 4 * kPages) + kPages);
    EXPECT_EQ(ResidentBytes(*pager, 0), kSuperblock + pager->spare_bytes(0));
    pager->BeginStep();
    (void)OpenWith(*pager, 16 * std::min(chunk_pages, 4 * kPages));
    EXPECT_EQ(pager->counters().superblocks_taken_cold, 0u);
    pager->RollbackStep();
  }
}

// A full group beside a window of one page: a long sequence needs the former, many short ones both.
struct FullAndWindow {
  PagerConfig config;
  std::unique_ptr<Pager> pager;
  explicit FullAndWindow(uint32_t superblocks) {
    KvGroupGeometry window = Group();
    window.kind = KvGroupKind::kSliding;
    window.window_tokens = 16;
    config = Config(superblocks, {Group(), window});
    config.max_step_tokens = 16;
    pager = MakePager(config);
  }
  // A sequence of so many pages comes and goes: the full group keeps superblocks.
  void RunLongSequence(uint32_t pages) {
    pager->BeginStep();
    const SeqId seq = *pager->Open();
    CommitAndComplete(*pager);
    for (uint32_t tokens = 16; tokens <= 16 * pages; tokens += 16) {
      pager->BeginStep();
      ASSERT_EQ(pager->Reserve(seq, tokens).status, ReserveStatus::kOk);
      CommitAndComplete(*pager);
    }
    CloseAndComplete(*pager, seq);
  }
  uint64_t PopulatedBytes() const { return ResidentBytes(*pager, 0) + ResidentBytes(*pager, 1); }
};

TEST(MaintainBusy, AGroupThatLacksBytesGetsAnEmptySuperblockOfAnother) {
  FullAndWindow s(8);
  s.RunLongSequence(44);
  const auto& pager = s.pager;
  ASSERT_GE(pager->books(0).superblocks, 6u);
  // Many short ones need as many pages of the window's group: more than its superblocks hold.
  std::vector<SeqId> seqs;
  uint32_t deferred = 0, chores = 0;
  while (seqs.size() < 24) {
    pager->BeginStep();
    const SeqId seq = *pager->Open();
    const uint64_t resident = ResidentBytes(*pager, 0);
    if (pager->Reserve(seq, 16).status == ReserveStatus::kOk) {
      seqs.push_back(seq);
    } else {
      ++deferred;
      pager->Close(seq);
      EXPECT_EQ(ResidentBytes(*pager, 0), resident);  // a verb gives nothing back
    }
    CommitAndComplete(*pager);
    const uint64_t given_back = pager->counters().superblocks_given_back;
    chores += pager->Maintain() ? 1 : 0;
    EXPECT_LE(pager->counters().superblocks_given_back, given_back + 1);
    ASSERT_LT(deferred, 10u) << "Maintain does not help";
  }
  EXPECT_GT(deferred, 0u);
  EXPECT_GT(pager->counters().superblocks_given_back, 0u);
  EXPECT_GE(chores, deferred);
  EXPECT_LE(s.PopulatedBytes(), s.config.kv_bytes);
  ExpectSound(*pager);
}

// Else two groups would take one superblock from each other for ever.
TEST(MaintainBusy, TakesNothingThatTheWaitingSequenceNeedsItself) {
  FullAndWindow s(3);
  s.RunLongSequence(11);
  ASSERT_EQ(s.pager->books(0).superblocks, 2u);
  s.pager->BeginStep();
  std::vector<SeqId> seqs;
  for (int i = 0; i < 7; ++i) seqs.push_back(OpenWith(*s.pager, 16));  // fill a superblock each
  CommitAndComplete(*s.pager);
  SeqId waits{};
  for (int step = 0; step < 5; ++step) {
    s.pager->BeginStep();
    if (step == 0) waits = *s.pager->Open();
    EXPECT_EQ(s.pager->Reserve(waits, 16).status, ReserveStatus::kDeferred);
    CommitAndComplete(*s.pager);
    (void)s.pager->Maintain();
    EXPECT_EQ(s.pager->counters().superblocks_given_back, 0u);
    EXPECT_EQ(s.pager->books(0).superblocks, 2u);
  }
  for (int i = 0; i < 4; ++i) CloseAndComplete(*s.pager, seqs[static_cast<size_t>(i)]);
  s.pager->BeginStep();
  EXPECT_EQ(s.pager->Reserve(waits, 16).status, ReserveStatus::kOk);
}

// kv_bytes bounds memory, spares included. What one group keeps ready another cannot have in the
// same step, since a verb returns nothing to the system; one Maintain later it can.
TEST(MaintainBusy, ReturnsTheSpareThatADeferredSequenceOfAnotherGroupLacks) {
  FullAndWindow s(8);
  s.pager->BeginStep();
  const SeqId seq = *s.pager->Open();
  CommitAndComplete(*s.pager);
  s.pager->BeginStep();
  EXPECT_EQ(s.pager->Reserve(seq, 16 * 20).status, ReserveStatus::kOk);  // 3 superblocks each
  s.pager->RollbackStep();                                               // 2 spares each
  PopulateTaken(*s.pager);
  EXPECT_EQ(s.PopulatedBytes(), 6 * kSuperblock);
  uint32_t deferred = 0;
  for (uint32_t tokens = 16; tokens <= 16 * 46;) {
    s.pager->BeginStep();
    const uint64_t given_back = s.pager->counters().superblocks_given_back;
    if (s.pager->Reserve(seq, tokens).status == ReserveStatus::kOk) {
      tokens += 16;
    } else {
      ASSERT_LT(++deferred, 10u) << "Maintain does not help at " << tokens;
    }
    EXPECT_EQ(s.pager->counters().superblocks_given_back, given_back);
    CommitAndComplete(*s.pager);
    EXPECT_LE(s.PopulatedBytes(), s.config.kv_bytes);
    (void)s.pager->Maintain();
    EXPECT_LE(s.PopulatedBytes(), s.config.kv_bytes);
  }
  EXPECT_GT(deferred, 0u);
}

TEST(MaintainBusy, PopulatesTheLastSuperblockThatFits) {
  const auto pager = MakePager(Config(2));
  pager->BeginStep();
  (void)OpenWith(*pager, 16 * 6);  // one page is left
  CommitAndComplete(*pager);
  EXPECT_TRUE(pager->Maintain());
  EXPECT_EQ(pager->spare_bytes(0), kSuperblock);
  EXPECT_FALSE(pager->Maintain());
}

// Superblocks of 6 MiB, 32 pages each, as a model of 30 layers has them.
struct LargeSuperblocks {
  static constexpr uint64_t kBytes = uint64_t{6} << 20, kPiece = uint64_t{2} << 20;
  std::unique_ptr<Pager> pager;
  LargeSuperblocks() {
    PagerConfig config = Config(0);
    KvGroupGeometry& group = config.geometry.groups[0];
    group.num_parts = 3;
    group.part_page_bytes = 65536;
    group.pages_per_superblock = 32;
    group.superblock_bytes = kBytes;
    config.kv_bytes = 4 * kBytes;
    config.max_step_tokens = 16;
    pager = MakePager(config);
  }
  // Of superblock 0: all pages but `left`.
  SeqId Fill(uint32_t left) const {
    pager->BeginStep();
    const SeqId seq = OpenWith(*pager, 16 * (31 - left));
    CommitAndComplete(*pager);
    return seq;
  }
};

TEST(MaintainBusy, PopulatesTwoMebibytesOfASpareACall) {
  const LargeSuperblocks s;
  (void)s.Fill(10);
  for (uint64_t piece = 1; piece <= 3; ++piece) {
    EXPECT_TRUE(s.pager->Maintain());
    EXPECT_EQ(s.pager->spare_bytes(0), s.kBytes);
    EXPECT_EQ(s.pager->cold_bytes(), s.kBytes - piece * s.kPiece);
    EXPECT_EQ(ResidentBytes(*s.pager, 0), s.kBytes + piece * s.kPiece);
    EXPECT_FALSE(s.pager->Maintain(Pager::Load::kTaken)) << "nobody took it";
  }
  EXPECT_FALSE(s.pager->Maintain());
  EXPECT_EQ(s.pager->counters().superblocks_populated, 2u);
}

TEST(MaintainTaken, ASpareThatIsTakenTooSoonGetsTheRestAtOnce) {
  const LargeSuperblocks s;
  const SeqId seq = s.Fill(2);
  EXPECT_TRUE(s.pager->Maintain());
  s.pager->BeginStep();
  EXPECT_EQ(s.pager->Reserve(seq, 16 * 40).status, ReserveStatus::kOk);
  EXPECT_EQ(s.pager->counters().superblocks_taken_cold, 1u) << "4 of its 6 MiB were missing";
  CommitAndComplete(*s.pager);
  for (const PageId page : s.pager->pages(seq, 0)) {
    std::memset(PageAt(*s.pager, 0, page), static_cast<int>(page.value), 16);
  }
  EXPECT_TRUE(s.pager->Maintain(Pager::Load::kTaken));
  EXPECT_FALSE(s.pager->Maintain(Pager::Load::kTaken));
  EXPECT_EQ(s.pager->cold_bytes(), 0u);
  EXPECT_EQ(ResidentBytes(*s.pager, 0), 2 * s.kBytes);
  for (const PageId page : s.pager->pages(seq, 0)) {
    EXPECT_EQ(*PageAt(*s.pager, 0, page), static_cast<std::byte>(page.value));
  }
}

TEST(MaintainIdle, GivesBackASpareThatWasBegun) {
  const LargeSuperblocks s;
  (void)s.Fill(10);
  EXPECT_TRUE(s.pager->Maintain());
  while (s.pager->Maintain(Pager::Load::kIdle)) {
  }
  EXPECT_EQ(s.pager->cold_bytes(), 0u);
  EXPECT_EQ(s.pager->spare_bytes(0), 0u);
  EXPECT_EQ(ResidentBytes(*s.pager, 0), s.kBytes);
}

TEST(RunsShort, WhenPagesThatAreReadyAreFewerThanTheLastStepTook) {
  const LargeSuperblocks s;
  const SeqId seq = s.Fill(10);
  EXPECT_TRUE(s.pager->RunsShort()) << "the step took 21, and 10 are left";
  s.pager->BeginStep();
  EXPECT_EQ(s.pager->Reserve(seq, 16 * 23).status, ReserveStatus::kOk);
  CommitAndComplete(*s.pager);
  EXPECT_FALSE(s.pager->RunsShort()) << "2 of 8";
  s.pager->BeginStep();
  EXPECT_EQ(s.pager->Reserve(seq, 16 * 28).status, ReserveStatus::kOk);
  CommitAndComplete(*s.pager);
  EXPECT_TRUE(s.pager->RunsShort()) << "5 of 3";
  while (s.pager->Maintain()) {
  }
  EXPECT_FALSE(s.pager->RunsShort()) << "a spare stands ready";
}

// Sequences that come, decode past a page, are indexed and go, at random.
class RandomLoad {
 public:
  RandomLoad(Pager& pager, uint64_t seed) : pager_(pager), random_(seed) {}

  void Step() {
    pager_.BeginStep();
    for (uint32_t edits = Below(5); edits > 0; --edits) {
      const uint32_t choice = Below(8);
      if (choice < 2) {
        if (const auto seq = pager_.Open()) open_.push_back(*seq);
      } else if (!open_.empty() && choice < 7) {
        const SeqId seq = open_[Below(static_cast<uint32_t>(open_.size()))];
        (void)pager_.Reserve(seq, pager_.num_tokens(seq) + 1 + Below(16));
      } else if (!open_.empty()) {
        pager_.Close(open_.back());
        open_.pop_back();
      }
    }
    CommitAndComplete(pager_);
    for (const SeqId seq : open_) {  // each has tokens of its own
      const std::vector<TokenId> tokens(pager_.num_tokens(seq), static_cast<TokenId>(seq.value));
      if (Below(4) == 0) (void)pager_.IndexPrefix(seq, {}, tokens);
    }
  }
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }

 private:
  Pager& pager_;
  std::mt19937_64 random_;
  std::vector<SeqId> open_;
};

// A host calls it until it says that nothing is left to do.
TEST(Maintain, SaysTrueExactlyWhenItDidSomething) {
  uint64_t released[2] = {}, evicted[2] = {}, given_back[2] = {};  // [busy, idle]
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    FullAndWindow s(4 + seed % 3);
    s.config.kv_keep_bytes = 4 * 8192;
    s.pager = MakePager(s.config);
    RandomLoad load(*s.pager, seed);
    for (int step = 0; step < 150; ++step) {
      load.Step();
      if (seed % 4 != 0) PopulateTaken(*s.pager);
      const auto kind = load.Below(8) == 0 ? Pager::Load::kIdle : Pager::Load::kBusy;
      const PagerSnapshot before = s.pager->Snapshot();
      const PagerCounters counted = s.pager->counters();
      const uint64_t cold = s.pager->cold_bytes();
      const bool done = s.pager->Maintain(kind);
      const PagerSnapshot after = s.pager->Snapshot();
      ASSERT_EQ(done, before != after || before.populated_bytes != after.populated_bytes ||
                          cold != s.pager->cold_bytes());
      const size_t idle = kind == Pager::Load::kIdle ? 1 : 0;
      for (size_t g = 0; g < 2; ++g) {
        released[idle] += before.groups[g].books.soft - after.groups[g].books.soft;
      }
      const PagerCounters& now = s.pager->counters();
      evicted[idle] += now.prefix_pages_evicted - counted.prefix_pages_evicted;
      given_back[idle] += now.superblocks_given_back - counted.superblocks_given_back;
    }
  }
  for (size_t idle : {size_t{0}, size_t{1}}) {
    EXPECT_GT(released[idle], 0u) << idle;
    EXPECT_GT(evicted[idle], 0u) << idle;
    EXPECT_GT(given_back[idle], 0u) << idle;
  }
}

TEST(MaintainDeathTest, NotInsideAStep) {
  const auto pager = MakePager(Config(4));
  pager->BeginStep();
  EXPECT_DEATH((void)pager->Maintain(), "inside a step");
}

}  // namespace
}  // namespace kvrm
