// Each law of train_merger.h by a sound call of which one thing was spoilt: exactly that law
// breaks.
#include "transport/train_snapshot_testing.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvrm::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr CopySpace kPool{.kind = CopySpaceKind::kPool};
constexpr CopySpace kWindow{.kind = CopySpaceKind::kWindow};

WaitingPiece Piece(uint64_t source, uint64_t destination, uint64_t bytes, uint8_t max_age = 0) {
  return {.copy = {.source_offset = source,
                   .destination_offset = destination,
                   .bytes = bytes,
                   .source = kPool,
                   .destination = kWindow,
                   .cause = CopyCause::kStage,
                   .max_age_steps = max_age}};
}
Train TrainOf(const WaitingPiece& first, uint64_t bytes) {
  return {.source_offset = first.copy.source_offset,
          .destination_offset = first.copy.destination_offset,
          .bytes = bytes,
          .source = first.copy.source,
          .destination = first.copy.destination,
          .cause = first.copy.cause,
          .pieces = 1};
}

// tau 20. Two neighbours, one of them due; a writer and, later, what overlaps it; one that may
// wait.
TrainSnapshot Sound() {
  TrainSnapshot s{.tau_bytes = 20};
  s.waiting = {Piece(0, 100, 8), Piece(8, 108, 8, /*max_age=*/4), Piece(40, 200, 8, 4),
               Piece(60, 204, 8), Piece(80, 300, 8, 4)};
  s.trains = {TrainOf(s.waiting[0], 16), TrainOf(s.waiting[2], 8), TrainOf(s.waiting[3], 8)};
  return s;
}

TEST(TrainSnapshot, ASoundCallBreaksNoLaw) {
  const TrainVerdict verdict = Validate(Sound());
  EXPECT_THAT(verdict.violations, IsEmpty());
  ASSERT_THAT(verdict.left, SizeIs(1));
  EXPECT_EQ(verdict.left[0].copy.source_offset, 80u);
  EXPECT_TRUE(verdict.overlapped);
}

TEST(TrainSnapshot, Train1BytesThatNobodyAskedFor) {
  TrainSnapshot s = Sound();
  s.trains[0].bytes = 17;
  EXPECT_THAT(Validate(s).violations,
              ElementsAre("TRAIN-1 a train carries bytes that nobody waits for"));
}

TEST(TrainSnapshot, Train1BytesTwice) {
  TrainSnapshot s = Sound();
  s.trains.push_back(s.trains[0]);
  EXPECT_THAT(Validate(s).violations,
              ElementsAre("TRAIN-1 a train carries bytes that nobody waits for"));
}

TEST(TrainSnapshot, Train2ATrainThatIsTooLong) {
  TrainSnapshot s{.tau_bytes = 20, .waiting = {Piece(0, 100, 81)}};
  s.trains = {TrainOf(s.waiting[0], 81)};
  EXPECT_THAT(Validate(s).violations, ElementsAre("TRAIN-2 a train is longer than 4 tau"));
}

TEST(TrainSnapshot, Train3AShortTrainThatNobodyNeedsYet) {
  TrainSnapshot s = Sound();
  s.trains.push_back(TrainOf(s.waiting[4], 8));
  EXPECT_THAT(Validate(s).violations, ElementsAre("TRAIN-3 a short train left early"));
}

TEST(TrainSnapshot, Train3ARunOfTauThatStays) {
  TrainSnapshot s{.tau_bytes = 20, .waiting = {Piece(0, 100, 12, 4), Piece(12, 112, 12, 4)}};
  EXPECT_THAT(Validate(s).violations,
              ElementsAre("TRAIN-3 a run of tau bytes stays", "TRAIN-3 a run of tau bytes stays"));
}

TEST(TrainSnapshot, Train4APieceThatOutstaysItsAge) {
  TrainSnapshot s = Sound();
  s.waiting[4].age_steps = 4;
  EXPECT_THAT(Validate(s).violations, ElementsAre("TRAIN-4 a piece that is due stays"));
}

TEST(TrainSnapshot, Train4APieceThatStaysWhenEverythingLeaves) {
  TrainSnapshot s = Sound();
  s.everything = true;
  EXPECT_THAT(Validate(s).violations, ElementsAre("TRAIN-4 a piece that is due stays"));
}

TEST(TrainSnapshot, Train5TrainsThatOvertookEachOther) {
  TrainSnapshot s = Sound();
  std::swap(s.trains[1], s.trains[2]);
  EXPECT_THAT(
      Validate(s).violations,
      ElementsAre("TRAIN-5 trains overtook each other: other bytes than the pieces would leave"));
}

TEST(TrainSnapshot, Train5APieceThatALaterOneOverlapsAndThatStays) {
  TrainSnapshot s = Sound();
  s.trains.erase(s.trains.begin() + 1);
  EXPECT_THAT(Validate(s).violations,
              ElementsAre("TRAIN-5 a piece stays that a later one overlaps"));
}

TEST(TrainSnapshot, Train5ATrainOfTwoCauses) {
  TrainSnapshot s = Sound();
  s.waiting[1].copy.cause = CopyCause::kResume;
  EXPECT_THAT(Validate(s).violations,
              ElementsAre("TRAIN-5 a train joins pieces of several causes"));
}

}  // namespace
}  // namespace kvrm::testing
