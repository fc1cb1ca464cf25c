#include "transport/train_merger.h"

#include <random>

#include "gtest/gtest.h"
#include "transport/train_merger_testing.h"

namespace kvrm {
namespace {

using testing::CheckedMerger;

constexpr CopySpace kFromPool{.kind = CopySpaceKind::kPool};
constexpr CopySpace kToWindow{.kind = CopySpaceKind::kWindow};

CopyDescriptor Piece(uint64_t source, uint64_t destination, uint64_t bytes, uint8_t max_age = 0) {
  return {.source_offset = source,
          .destination_offset = destination,
          .bytes = bytes,
          .source = kFromPool,
          .destination = kToWindow,
          .cause = CopyCause::kStage,
          .max_age_steps = max_age};
}

TEST(TrainMerger, NeighboursAtBothEndsAreOneTrain) {
  TrainMerger merger(1024);
  merger.Add(Piece(300, 1300, 100));
  merger.Add(Piece(100, 1100, 100));
  merger.Add(Piece(200, 1200, 100));
  const auto trains = merger.Collect();
  ASSERT_EQ(trains.size(), 1u);
  EXPECT_EQ(trains[0].source_offset, 100u);
  EXPECT_EQ(trains[0].destination_offset, 1100u);
  EXPECT_EQ(trains[0].bytes, 300u);
  EXPECT_EQ(trains[0].pieces, 3u);
  EXPECT_TRUE(merger.Collect().empty());
}

TEST(TrainMerger, NeighboursAtOneEndStayApart) {
  TrainMerger merger(1024);
  merger.Add(Piece(0, 0, 100));
  merger.Add(Piece(100, 500, 100));  // follows at its source only
  merger.Add(Piece(900, 100, 100));  // follows at its destination only
  EXPECT_EQ(merger.Collect().size(), 3u);
}

// One source to two destinations, alternating: each destination is a train.
TEST(TrainMerger, AForkToTwoWindowsIsTwoTrains) {
  TrainMerger merger(1024);
  for (uint64_t i = 0; i < 8; ++i) {
    merger.Add(Piece(i * 10, i * 10, 10));
    merger.Add(Piece(i * 10, 500 + i * 10, 10));
  }
  const auto trains = merger.Collect();
  ASSERT_EQ(trains.size(), 2u);
  EXPECT_EQ(trains[0].pieces, 8u);
  EXPECT_EQ(trains[1].pieces, 8u);
}

TEST(TrainMerger, Train2APieceAboveFourTauIsCut) {
  TrainMerger merger(100);
  merger.Add(Piece(0, 0, 950));
  const auto trains = merger.Collect();
  ASSERT_EQ(trains.size(), 3u);
  EXPECT_EQ(trains[0].bytes, 400u);
  EXPECT_EQ(trains[1].bytes, 400u);
  EXPECT_EQ(trains[2].bytes, 150u);
  EXPECT_EQ(trains[2].destination_offset, 800u);
}

TEST(TrainMerger, Train2ARunIsCutBetweenPiecesWhereItCan) {
  TrainMerger merger(100);
  for (uint64_t i = 0; i < 5; ++i) merger.Add(Piece(i * 150, i * 150, 150));
  const auto trains = merger.Collect();
  ASSERT_EQ(trains.size(), 3u);
  EXPECT_EQ(trains[0].bytes, 300u);
  EXPECT_EQ(trains[1].bytes, 300u);
  EXPECT_EQ(trains[2].bytes, 150u);
}

TEST(TrainMerger, Train3WhatMayWaitWaitsUntilItHoldsTau) {
  TrainMerger merger(100);
  for (uint64_t i = 0; i < 4; ++i) {
    merger.Add(Piece(i * 25, i * 25, 25, /*max_age=*/200));
    EXPECT_EQ(merger.Collect().size(), i < 3 ? 0u : 1u);
  }
  EXPECT_EQ(merger.pending(), 0u);
}

TEST(TrainMerger, Train3APieceThatIsDueTakesItsNeighboursAlong) {
  TrainMerger merger(100);
  merger.Add(Piece(0, 0, 10, /*max_age=*/5));
  merger.Add(Piece(500, 500, 10, /*max_age=*/5));
  EXPECT_TRUE(merger.Collect().empty());
  merger.Add(Piece(10, 10, 10));
  const auto trains = merger.Collect();
  ASSERT_EQ(trains.size(), 1u);
  EXPECT_EQ(trains[0].bytes, 20u);
  EXPECT_EQ(merger.pending(), 1u);
}

TEST(TrainMerger, Train4APieceWaitsItsAgeAndNoLonger) {
  for (const uint8_t max_age : {0, 1, 2, 7, 255}) {
    TrainMerger merger(100);
    merger.Add(Piece(0, 0, 10, max_age));
    for (uint32_t step = 0; step < max_age; ++step) ASSERT_TRUE(merger.Collect().empty());
    EXPECT_EQ(merger.Collect().size(), 1u);
  }
}

TEST(TrainMerger, Train5OneCauseATrain) {
  TrainMerger merger(100);
  merger.Add(Piece(0, 0, 10));
  CopyDescriptor other = Piece(10, 10, 10);
  other.cause = CopyCause::kResume;
  merger.Add(other);
  EXPECT_EQ(merger.Collect().size(), 2u);
  EXPECT_EQ(merger.counters().copies[static_cast<int>(CopyCause::kStage)], 1u);
  EXPECT_EQ(merger.counters().copies[static_cast<int>(CopyCause::kResume)], 1u);
}

// Window -> pool that waits, then pool -> window that reads the same bytes and is due.
TEST(TrainMerger, Train5AReaderWaitsForItsWriter) {
  TrainMerger merger(100);
  CopyDescriptor publish{.source_offset = 40,
                         .destination_offset = 0,
                         .bytes = 10,
                         .source = kToWindow,
                         .destination = kFromPool,
                         .cause = CopyCause::kPublish,
                         .max_age_steps = 8};
  merger.Add(publish);
  EXPECT_TRUE(merger.Collect().empty());
  merger.Add(Piece(5, 200, 10));
  const auto trains = merger.Collect();
  ASSERT_EQ(trains.size(), 2u);
  EXPECT_EQ(trains[0].cause, CopyCause::kPublish);
  EXPECT_EQ(trains[1].cause, CopyCause::kStage);
}

TEST(TrainMerger, Train5CopiesOfCopiesKeepTheirOrder) {
  CheckedMerger checked(16);
  for (uint64_t i = 6; i > 0; --i) {  // a chain that the order of addresses would break
    ASSERT_TRUE(checked.Add({.source_offset = i * 8,
                             .destination_offset = (i - 1) * 8,
                             .bytes = 8,
                             .source = kFromPool,
                             .destination = kFromPool,
                             .cause = CopyCause::kCompact}));
  }
  checked.Flush();
  EXPECT_TRUE(checked.violations().empty()) << checked.violations()[0];
  EXPECT_EQ(checked.trains(), 6u);
}

TEST(TrainMerger, CancelledBytesAreNotCopied) {
  TrainMerger merger(1000);
  merger.Add(Piece(0, 0, 100, /*max_age=*/9));
  merger.CancelSource(kFromPool, 40, 20);
  merger.CancelSource(kToWindow, 0, 1000);  // another space
  const auto trains = merger.Flush();
  ASSERT_EQ(trains.size(), 2u);
  EXPECT_EQ(trains[0].bytes, 40u);
  EXPECT_EQ(trains[1].source_offset, 60u);
  EXPECT_EQ(trains[1].destination_offset, 60u);
  EXPECT_EQ(trains[1].bytes, 40u);
}

TEST(TrainMerger, WhatIsHurriedLeavesWithTheNextCollect) {
  TrainMerger merger(1000);
  merger.Add(Piece(0, 0, 100, /*max_age=*/9));
  merger.Add(Piece(500, 500, 100, /*max_age=*/9));
  merger.Hurry(kToWindow, 550, 1);
  const auto trains = merger.Collect();
  ASSERT_EQ(trains.size(), 1u);
  EXPECT_EQ(trains[0].source_offset, 500u);
}

TEST(TrainMerger, AFullMergerLetsEverythingLeave) {
  TrainMerger merger(1 << 20);
  for (uint64_t i = 0; i < kMaxPending; ++i) merger.Add(Piece(i * 20, i * 20, 10, 200));
  EXPECT_TRUE(merger.Collect().empty());
  merger.Add(Piece(1 << 20, 1 << 20, 10, 200));
  EXPECT_EQ(merger.Collect().size(), kMaxPending + 1);
  EXPECT_EQ(merger.pending(), 0u);
}

TEST(TrainMerger, PiecesThatTheCallerJoinedAreCounted) {
  TrainMerger merger(100);
  merger.Add(Piece(0, 0, 800), /*joined=*/8);
  const auto trains = merger.Collect();
  ASSERT_EQ(trains.size(), 2u);
  EXPECT_EQ(trains[0].pieces + trains[1].pieces, 8u);
  EXPECT_EQ(merger.counters().copy_pieces[static_cast<int>(CopyCause::kStage)], 8u);
}

TEST(TrainMergerDeathTest, APieceThatOverlapsItselfIsABug) {
  TrainMerger merger;
  CopyDescriptor piece = Piece(0, 5, 10);
  piece.destination = kFromPool;
  EXPECT_DEATH(merger.Add(piece), "TRAIN-5");
}

class RandomScript {
 public:
  explicit RandomScript(uint64_t seed) : random_(seed), checked_(1 + Below(40)) {}

  // One step: pieces, perhaps a cancel or a hurry, then Collect or Flush. Pieces of 8 bytes on a
  // grid of 8, so that neighbours are common; with `overlaps` of any size, often off the grid.
  void Step(bool overlaps) {
    for (uint32_t pieces = Below(8); pieces > 0; --pieces) AddOne(overlaps);
    const uint32_t space = Below(CheckedMerger::kSpaces);
    switch (Below(8)) {
      case 0:
        checked_.CancelSource(CheckedMerger::Space(space), Below(96), 1 + Below(30));
        break;
      case 1:
        checked_.Hurry(CheckedMerger::Space(space), Below(96), 1 + Below(30));
        break;
      default:
        break;
    }
    if (Below(10) == 0) {
      checked_.Flush();
    } else {
      checked_.Collect();
    }
  }
  CheckedMerger& checked() { return checked_; }

 private:
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }
  void AddOne(bool overlaps) {
    CopyDescriptor copy;
    copy.bytes = overlaps ? 1 + Below(24) : 8;
    const uint32_t grain = overlaps && Below(2) == 0 ? 1 : 8;
    copy.source_offset = Below(static_cast<uint32_t>(96 - copy.bytes) / grain + 1) * grain;
    copy.destination_offset = Below(static_cast<uint32_t>(96 - copy.bytes) / grain + 1) * grain;
    if (Below(2) == 0) copy.destination_offset = copy.source_offset;  // often one displacement
    copy.source = CheckedMerger::Space(Below(4));
    copy.destination = CheckedMerger::Space(Below(4));
    copy.cause = static_cast<CopyCause>(Below(2));
    copy.max_age_steps = static_cast<uint8_t>(Below(6));
    checked_.Add(copy, 1 + Below(3));
  }
  std::mt19937_64 random_;
  CheckedMerger checked_;
};

TEST(TrainMerger, LawsHoldUnderRandomScripts) {
  uint64_t trains = 0, overlapped = 0;
  for (uint64_t seed = 0; seed < 6000; ++seed) {
    RandomScript script(seed);
    for (int step = 0; step < 12; ++step) script.Step(/*overlaps=*/seed % 3 != 0);
    script.checked().Flush();
    const auto& violations = script.checked().violations();
    ASSERT_TRUE(violations.empty()) << "seed " << seed << ": " << violations[0];
    trains += script.checked().trains();
    overlapped += script.checked().overlapped() ? 1 : 0;
  }
  EXPECT_GT(trains, 100'000u);
  EXPECT_GT(overlapped, 3000u);
}

// Pieces of a shuffled run, all due: as few trains as 4 tau allows, whatever the order of Add.
TEST(TrainMerger, MergesAsFarAsItGoes) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    const uint64_t tau = 16 + random() % 64;
    TrainMerger merger(tau);
    std::vector<CopyDescriptor> pieces;
    const uint64_t count = 1 + random() % 60;
    for (uint64_t i = 0; i < count; ++i) pieces.push_back(Piece(i * 8, 4096 + i * 8, 8));
    std::shuffle(pieces.begin(), pieces.end(), random);
    for (const auto& piece : pieces) merger.Add(piece);
    const uint64_t pieces_a_train = 4 * tau / 8;
    EXPECT_EQ(merger.Collect().size(), (count + pieces_a_train - 1) / pieces_a_train);
  }
}

}  // namespace
}  // namespace kvrm
