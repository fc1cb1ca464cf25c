// The window plan by hand-made frames: which copies, and no others. window_random_test.cc holds the
// bytes.
#include "transport/window_residency.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "base/check.h"
#include "frame/frame_testing.h"

namespace kvrm {
namespace {

using testing::MakeDelta;
using testing::MakeRow;
using testing::MakeSlot;

constexpr uint32_t kSlots = 4;
constexpr uint32_t kMaxPages = 8;
constexpr uint32_t kParts = 3;
constexpr uint64_t kTokenBytes = 4;

// Pages of 16 tokens and 3 parts of 64 bytes; windows [part][slot][token].
WindowGeometry TinyWindows(uint32_t window_tokens, uint8_t age = 0) {
  WindowGeometry windows;
  const uint64_t slot_bytes = window_tokens * kTokenBytes;
  windows.groups.push_back({.window_tokens = window_tokens,
                            .slot_stride_bytes = slot_bytes,
                            .part_stride_bytes = kSlots * slot_bytes});
  windows.publish_age_steps = age;
  return windows;
}

KvGeometry SlidingGeometry(uint32_t window) {
  KvGeometry geometry = testing::TinyFrameGeometry();
  geometry.groups[0].kind = KvGroupKind::kSliding;
  geometry.groups[0].window_tokens = window;
  return geometry;
}

class Host {
 public:
  explicit Host(uint8_t age = 0, uint32_t window_tokens = 128,
                const KvGeometry& geometry = testing::TinyFrameGeometry())
      : window_tokens_(window_tokens),
        frames_(testing::MakeBuilder(
            geometry, {.max_slots = kSlots, .max_rows = 64, .max_pages = kMaxPages})),
        windows_(
            WindowResidency::Create(geometry, TinyWindows(window_tokens, age), kSlots, kMaxPages)
                .value()) {}

  // Rows [first, end) of `slot` make up a step, after `deltas`.
  std::vector<Train> Plan(uint16_t slot, uint32_t first, uint32_t end,
                          const std::vector<Delta>& deltas,
                          const std::vector<Pager::PageCopy>& copies = {}) {
    std::vector<Row> rows;
    for (uint32_t i = first; i < end; ++i) rows.push_back(MakeRow(slot, i));
    return Plan(rows, {MakeSlot(slot, end, 0, end - first)}, deltas, copies);
  }
  std::vector<Train> Plan(const std::vector<Row>& rows, const std::vector<SlotHead>& slots,
                          const std::vector<Delta>& deltas,
                          const std::vector<Pager::PageCopy>& copies = {}) {
    frame_ = frames_->Publish(++epoch_, rows, slots, deltas);
    copies_ = copies;
    return PlanAgain();
  }
  std::vector<Train> PlanAgain() { return Copy(windows_->Plan(frame_, copies_)); }
  std::vector<Train> Acknowledge() { return Copy(windows_->Acknowledge(epoch_)); }
  std::vector<Train> Run(uint16_t slot, uint32_t first, uint32_t end,
                         const std::vector<Delta>& deltas) {
    EXPECT_TRUE(Plan(slot, first, end, deltas).empty()) << "rows alone need no copy";
    return Acknowledge();
  }
  std::vector<Train> Publish(uint16_t slot) { return Copy(windows_->Publish(SlotId{slot})); }
  WindowResidency& windows() { return *windows_; }

  std::string Resident(uint16_t slot) const {
    const auto resident = windows_->resident(0, SlotId{slot});
    return std::to_string(resident.first_token) + ".." + std::to_string(resident.end_token);
  }

  // "cause first..end of slot [page]" for each train of part 0; checks that the others are alike.
  std::vector<std::string> Say(const std::vector<Train>& trains) const {
    const KvGroupGeometry group = testing::TinyFrameGeometry().groups[0];
    std::vector<std::string> said;
    uint32_t parts[kParts] = {};
    for (const Train& train : trains) {
      const bool stage = train.cause == CopyCause::kStage;
      if (train.cause == CopyCause::kCopyOnWrite) {
        said.push_back("copy");
        continue;
      }
      const uint64_t window = stage ? train.destination_offset : train.source_offset;
      const uint64_t pool = stage ? train.source_offset : train.destination_offset;
      const uint64_t slot_bytes = window_tokens_ * kTokenBytes;
      const uint64_t part = window / (kSlots * slot_bytes);
      EXPECT_EQ(pool % group.superblock_bytes / group.part_stride_bytes(), part);
      ++parts[part];
      if (part != 0) continue;
      const uint64_t page = pool / group.superblock_bytes * group.pages_per_superblock +
                            pool % group.superblock_bytes / group.part_page_bytes;
      const uint64_t place = window % slot_bytes / kTokenBytes;
      EXPECT_EQ(pool % group.part_page_bytes / kTokenBytes, place % group.page_tokens);
      said.push_back(std::string(stage ? "stage " : "publish ") + std::to_string(place) + ".." +
                     std::to_string(place + train.bytes / kTokenBytes) + " of " +
                     std::to_string(window / slot_bytes) + " [" + std::to_string(page) + "]");
    }
    EXPECT_EQ(parts[0], parts[1]);
    EXPECT_EQ(parts[0], parts[2]);
    return said;
  }

 private:
  static std::vector<Train> Copy(std::span<const Train> trains) {
    return {trains.begin(), trains.end()};
  }
  const uint32_t window_tokens_;
  std::unique_ptr<FrameBuilder> frames_;
  std::unique_ptr<WindowResidency> windows_;
  uint64_t epoch_ = 0;
  FrameView frame_;
  std::vector<Pager::PageCopy> copies_;
};

using Said = std::vector<std::string>;

Delta Append(uint16_t slot, uint32_t index, uint32_t page, uint32_t count) {
  return MakeDelta(DeltaKind::kAppend, slot, index, page, count);
}

Delta Extend(uint16_t slot, uint32_t index, uint32_t page, uint32_t count) {
  return MakeDelta(DeltaKind::kExtend, slot, index, page, count);
}

TEST(WindowResidency, RowsArePublishedToTheirPagesInRuns) {
  Host host;
  const auto trains = host.Run(0, 0, 40, {Append(0, 0, 1, 2), Append(0, 2, 5, 1)});
  EXPECT_EQ(host.Say(trains), (Said{"publish 0..32 of 0 [1]", "publish 32..40 of 0 [5]"}));
  EXPECT_EQ(host.Resident(0), "0..40");
}

TEST(WindowResidency, Window1AliasedPlacesAreStaged) {
  Host host;
  host.Run(0, 0, 40, {Append(0, 0, 1, 3)});
  const auto plan = host.Plan(1, 32, 33, {Append(1, 0, 1, 2), Append(1, 2, 4, 1)});
  EXPECT_EQ(host.Say(plan), (Said{"stage 0..32 of 1 [1]"}));
}

TEST(WindowResidency, Window1RowsThatOnlyReadAreStagedToo) {
  Host host;
  host.Run(0, 0, 32, {Append(0, 0, 1, 2)});
  Row row = MakeRow(1, 31);
  row.flags = kRowNoWrite;
  const auto plan = host.Plan({row}, {MakeSlot(1, 32, 0, 1)}, {Append(1, 0, 1, 2)});
  EXPECT_EQ(host.Say(plan), (Said{"stage 0..32 of 1 [1]"}));
  EXPECT_TRUE(host.Acknowledge().empty());
  EXPECT_EQ(host.Resident(1), "0..32");
}

TEST(WindowResidency, Window1HolesAreNotStaged) {
  Host host;
  host.Run(0, 0, 48, {Append(0, 0, 1, 3)});
  const auto plan = host.Plan(
      1, 48, 49, {Append(1, 0, 1, 3), Append(1, 3, 6, 1), MakeDelta(DeltaKind::kHole, 1, 1, 0, 1)});
  EXPECT_EQ(host.Say(plan), (Said{"stage 0..16 of 1 [1]", "stage 32..48 of 1 [3]"}));
}

TEST(WindowResidency, Window2WhatIsResidentIsNotStaged) {
  Host host;
  host.Run(0, 0, 32, {Append(0, 0, 1, 2)});
  host.Plan(1, 32, 33, {Append(1, 0, 1, 2), Append(1, 2, 4, 1)});
  host.Acknowledge();
  for (uint32_t place = 33; place < 48; ++place) host.Run(1, place, place + 1, {});
  EXPECT_EQ(host.windows().counters().copies[static_cast<int>(CopyCause::kStage)], kParts);
}

TEST(WindowResidency, Window2ACopiedPageReplacesNoContents) {
  Host host;
  host.Run(0, 0, 20, {Append(0, 0, 1, 2)});
  const auto plan = host.Plan(0, 20, 21, {MakeDelta(DeltaKind::kReplace, 0, 1, 7, 1)},
                              {{0, PageId{2}, PageId{7}}});
  EXPECT_EQ(host.Say(plan), (Said{"copy", "copy", "copy"}));
  EXPECT_EQ(host.Say(host.Acknowledge()), (Said{"publish 20..21 of 0 [7]"}));
}

TEST(WindowResidency, Window2ATruncatedSequenceKeepsItsPlaces) {
  Host host;
  host.Run(0, 0, 40, {Append(0, 0, 1, 3)});
  EXPECT_TRUE(host.Plan(0, 20, 22, {MakeDelta(DeltaKind::kTruncate, 0, 2)}).empty());
  EXPECT_EQ(host.Resident(0), "0..20");
  host.Acknowledge();
  EXPECT_EQ(host.Resident(0), "0..22");
}

TEST(WindowResidency, Window2ATruncatedSequenceForgetsWhatWasBehind) {
  Host host;
  host.Run(0, 0, 40, {Append(0, 0, 1, 3)});
  host.Plan({}, {}, {MakeDelta(DeltaKind::kTruncate, 0, 1)});
  EXPECT_EQ(host.Resident(0), "0..16");
}

TEST(WindowResidency, ASlotThatAnotherSequenceTakesStartsEmpty) {
  Host host;
  host.Run(0, 0, 32, {Append(0, 0, 1, 2)});
  host.Run(1, 0, 32, {Append(1, 0, 3, 2)});
  SlotHead head = MakeSlot(0, 33, 0, 1);
  head.seq_id = 900;
  const auto plan =
      host.Plan({MakeRow(0, 32)}, {head},
                {MakeDelta(DeltaKind::kTruncate, 0, 0), Append(0, 0, 3, 2), Extend(0, 2, 5, 1)});
  EXPECT_EQ(host.Say(plan), (Said{"stage 0..32 of 0 [3]"}));
}

TEST(WindowResidency, Window3RowsWaitTheirAgeAndTravelTogether) {
  Host host(/*age=*/3);
  EXPECT_TRUE(host.Run(0, 0, 1, {Append(0, 0, 1, 1)}).empty());
  EXPECT_TRUE(host.Run(0, 1, 2, {}).empty());
  EXPECT_TRUE(host.Run(1, 0, 1, {Append(1, 0, 2, 1)}).empty());
  EXPECT_EQ(host.Say(host.Run(0, 2, 3, {})), (Said{"publish 0..3 of 0 [1]"}));
  EXPECT_TRUE(host.Run(0, 3, 4, {}).empty());
  // Slot 1 rests; its row is due all the same.
  EXPECT_EQ(host.Say(host.Run(0, 4, 5, {})), (Said{"publish 0..1 of 1 [2]"}));
}

TEST(WindowResidency, Window3ATrainOfTauBytesDoesNotWait) {
  Host host(/*age=*/200);
  host.windows().set_tau_bytes(4 * kTokenBytes);
  EXPECT_TRUE(host.Run(0, 0, 3, {Append(0, 0, 1, 1)}).empty());
  EXPECT_EQ(host.Say(host.Run(0, 3, 4, {})), (Said{"publish 0..4 of 0 [1]"}));
}

TEST(WindowResidency, Window3PublishedOnRequest) {
  Host host(/*age=*/200);
  host.Run(0, 0, 3, {Append(0, 0, 1, 1)});
  EXPECT_TRUE(host.Publish(1).empty());
  EXPECT_EQ(host.Say(host.Publish(0)), (Said{"publish 0..3 of 0 [1]"}));
  EXPECT_TRUE(host.Publish(0).empty());
}

TEST(WindowResidency, Window3RowsOfAnAliasedPageComeBeforeItsStage) {
  Host host(/*age=*/200);
  host.Run(0, 0, 20, {Append(0, 0, 1, 2)});
  const auto plan = host.Plan(1, 16, 17, {Append(1, 0, 1, 1), Append(1, 1, 6, 1)});
  EXPECT_EQ(host.Say(plan), (Said{"publish 0..20 of 0 [1]", "stage 0..16 of 1 [1]"}));
}

TEST(WindowResidency, Window3RowsOfACopiedPageComeBeforeTheCopy) {
  Host host(/*age=*/200);
  host.Run(0, 0, 20, {Append(0, 0, 1, 2)});
  const auto plan = host.Plan(1, 20, 21, {Append(1, 0, 9, 2)},
                              {{0, PageId{1}, PageId{9}}, {0, PageId{2}, PageId{10}}});
  EXPECT_EQ(host.Say(plan),
            (Said{"publish 0..20 of 0 [1]", "copy", "copy", "copy", "stage 0..20 of 1 [9]"}));
}

TEST(WindowResidency, Window3RowsOfTrimmedPagesAreNotPublished) {
  Host host(/*age=*/200);
  host.Run(0, 0, 40, {Append(0, 0, 1, 3)});
  host.Plan({}, {}, {MakeDelta(DeltaKind::kTruncate, 0, 1)});
  host.Acknowledge();
  host.Plan({}, {}, {Append(0, 1, 6, 1)});  // another page in its place, not written yet
  host.Acknowledge();
  EXPECT_EQ(host.Say(host.Publish(0)), (Said{"publish 0..16 of 0 [1]"}));
}

TEST(WindowResidency, Window3RowsThatAreWrittenAnewAreNotPublishedFirst) {
  Host host(/*age=*/200);
  host.Run(0, 0, 14, {Append(0, 0, 1, 1)});
  host.Plan(0, 10, 12, {});  // fails: whether 10 and 11 were written is not known
  EXPECT_EQ(host.Say(host.Publish(0)), (Said{"publish 0..10 of 0 [1]"}));
}

TEST(WindowResidency, Window3RowsThatDoNotFollowEndTheWait) {
  Host host(/*age=*/200);
  host.Run(0, 0, 4, {Append(0, 0, 1, 1)});
  const auto plan = host.Plan(0, 8, 9, {});
  EXPECT_EQ(host.Say(plan), (Said{"stage 4..8 of 0 [1]"}));
  EXPECT_EQ(host.Say(host.Acknowledge()), (Said{"publish 0..4 of 0 [1]"}));
  EXPECT_EQ(host.Say(host.Publish(0)), (Said{"publish 8..9 of 0 [1]"}));
}

TEST(WindowResidency, Window4AnUnacknowledgedPlanMakesNothingResident) {
  Host host;
  host.Run(0, 0, 32, {Append(0, 0, 1, 2)});
  const Said stage{"stage 0..32 of 1 [1]"};
  EXPECT_EQ(host.Say(host.Plan(1, 32, 33, {Append(1, 0, 1, 2), Append(1, 2, 4, 1)})), stage);
  EXPECT_EQ(host.Resident(1), "0..0");
  EXPECT_EQ(host.Say(host.PlanAgain()), stage);
  // Given up: the next frame needs the same places, and the row that was not written stays away.
  EXPECT_EQ(host.Say(host.Plan(1, 32, 33, {})), stage);
  EXPECT_EQ(host.Say(host.Acknowledge()), (Said{"publish 32..33 of 1 [4]"}));
}

TEST(WindowResidency, Window4WhatTheFailedStepMayHaveOverwrittenIsNotReadAgain) {
  Host host(/*age=*/200);
  host.Run(0, 0, 20, {Append(0, 0, 1, 2)});
  const std::vector<Row> rows = {MakeRow(0, 4), MakeRow(1, 16)};
  const auto plan = host.Plan(rows, {MakeSlot(0, 5, 0, 1), MakeSlot(1, 17, 1, 1)},
                              {Append(1, 0, 1, 1), Append(1, 1, 6, 1)});
  EXPECT_EQ(host.Say(plan).front(), "publish 0..20 of 0 [1]");
  EXPECT_EQ(host.Say(host.PlanAgain()), (Said{"stage 0..16 of 1 [1]"}));
}

// Window of 20 tokens in a ring of 48: rows to 60, then one more.
TEST(WindowResidency, ARingWrapsBetweenPages) {
  Host host(/*age=*/0, /*window_tokens=*/48, SlidingGeometry(20));
  host.Run(0, 0, 28, {Append(0, 0, 1, 2)});
  host.Run(0, 28, 44, {Extend(0, 2, 3, 1)});
  const auto trains =
      host.Run(0, 44, 60, {MakeDelta(DeltaKind::kHole, 0, 0, 0, 1), Extend(0, 3, 4, 1)});
  EXPECT_EQ(host.Say(trains), (Said{"publish 44..48 of 0 [3]", "publish 0..12 of 0 [4]"}));
  EXPECT_EQ(host.Resident(0), "12..60");
}

// A fork sees 20 places of a sequence of 60: [41, 60) and its own row.
TEST(WindowResidency, AForkOfARingStagesItsWindowOnly) {
  Host host(/*age=*/0, /*window_tokens=*/48, SlidingGeometry(20));
  host.Run(0, 0, 28, {Append(0, 0, 1, 2)});
  host.Run(0, 28, 44, {Extend(0, 2, 3, 2)});
  host.Run(0, 44, 60, {});
  const auto plan =
      host.Plan(1, 60, 61, {MakeDelta(DeltaKind::kHole, 1, 0, 0, 2), Append(1, 2, 3, 2)});
  EXPECT_EQ(host.Say(plan), (Said{"stage 41..48 of 1 [3]", "stage 0..12 of 1 [4]"}));
}

TEST(WindowResidency, RowsThatARingOverwritesAreInThePoolFirst) {
  Host host(/*age=*/200, /*window_tokens=*/48, SlidingGeometry(20));
  host.Run(0, 0, 40, {Append(0, 0, 1, 3)});
  const auto plan = host.Plan(0, 40, 50, {Extend(0, 3, 4, 1)});
  EXPECT_EQ(host.Say(plan), (Said{"publish 0..40 of 0 [1]"}));
}

TEST(WindowResidency, WindowsMayLieSlotBySlotOrPartByPart) {
  WindowGeometry windows = TinyWindows(128);
  auto made = WindowResidency::Create(testing::TinyFrameGeometry(), windows, kSlots, kMaxPages);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made.value()->window_bytes(0), kParts * kSlots * 128 * kTokenBytes);
  windows.groups[0].part_stride_bytes = 512;
  windows.groups[0].slot_stride_bytes = kParts * 512 + 64;
  made = WindowResidency::Create(testing::TinyFrameGeometry(), windows, kSlots, kMaxPages);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made.value()->window_bytes(0), (kSlots - 1) * (kParts * 512 + 64) + kParts * 512);
}

TEST(WindowResidency, CreateNamesFieldValueAndLimit) {
  const auto refused = [](const KvGeometry& geometry, const WindowGeometry& windows,
                          uint32_t slots = kSlots, uint32_t pages = kMaxPages) {
    const auto made = WindowResidency::Create(geometry, windows, slots, pages);
    return made.ok() ? std::string("made") : made.error().message;
  };
  const KvGeometry geometry = testing::TinyFrameGeometry();
  EXPECT_EQ(refused(geometry, TinyWindows(128)), "made");
  EXPECT_NE(refused(geometry, {}).find("0 groups for a geometry of 1"), std::string::npos);
  EXPECT_NE(refused(geometry, TinyWindows(120)).find("window_tokens is 120"), std::string::npos);
  EXPECT_NE(refused(geometry, TinyWindows(0)).find("at least 16"), std::string::npos);
  EXPECT_NE(refused(SlidingGeometry(40), TinyWindows(32)).find("at least 40"), std::string::npos);
  WindowGeometry windows = TinyWindows(128);
  windows.max_seq_tokens = 129;
  EXPECT_NE(refused(geometry, windows).find("at least 129 = max_seq_tokens"), std::string::npos);
  windows.max_seq_tokens = 128;
  EXPECT_EQ(refused(geometry, windows), "made");
  windows = TinyWindows(48);
  windows.max_step_tokens = 29;
  EXPECT_NE(refused(SlidingGeometry(20), windows).find("at least 49 = the model's window"),
            std::string::npos);
  windows.max_step_tokens = 28;
  EXPECT_EQ(refused(SlidingGeometry(20), windows), "made");
  windows.max_step_tokens = kNone32;
  EXPECT_NE(refused(SlidingGeometry(20), windows).find("at least 4294967315"), std::string::npos);
  windows = TinyWindows(128);
  windows.groups[0].slot_stride_bytes = 511;
  EXPECT_NE(refused(geometry, windows).find("slot_stride_bytes is 511"), std::string::npos);
  windows = TinyWindows(128);
  windows.groups[0].part_stride_bytes -= 1;
  EXPECT_NE(refused(geometry, windows).find("no two windows overlap"), std::string::npos);
  EXPECT_NE(refused(geometry, TinyWindows(128), 0).find("max_slots is 0"), std::string::npos);
  EXPECT_NE(refused(geometry, TinyWindows(128), 4, 0).find("max_pages is 0"), std::string::npos);
  KvGeometry uneven = geometry;
  uneven.groups[0].part_page_bytes = 65;
  EXPECT_NE(refused(uneven, TinyWindows(128)).find("part_page_bytes is 65"), std::string::npos);
  KvGeometry summary = geometry;
  summary.groups[0].kind = KvGroupKind::kSummary;
  EXPECT_NE(refused(summary, TinyWindows(128)).find("of kind 2"), std::string::npos);
}

// 20 + 48 - 1 places are seen, a ring of 32 holds fewer: nobody told Create of such steps.
TEST(WindowResidency, APlanThatFailsChangesNothing) {
  Host host(/*age=*/8, /*window_tokens=*/32, SlidingGeometry(20));
  host.Run(0, 0, 16, {Append(0, 0, 1, 1)});
  CheckTrap trap;
  EXPECT_THROW(host.Plan(0, 16, 64, {Extend(0, 1, 2, 3)}), CheckFailure);
  EXPECT_THROW(host.PlanAgain(), CheckFailure);
  EXPECT_THROW(host.Acknowledge(), CheckFailure);  // the failed epoch is not the planned one
  EXPECT_TRUE(host.windows().sound());
  EXPECT_EQ(host.Resident(0), "0..16");
  EXPECT_EQ(host.Say(host.Publish(0)), (Said{"publish 0..16 of 0 [1]"}));
}

TEST(WindowResidencyDeathTest, EpochsWithGapsAreABug) {
  auto frames = testing::MakeBuilder(testing::TinyFrameGeometry(),
                                     {.max_slots = kSlots, .max_rows = 8, .max_pages = kMaxPages});
  auto windows =
      WindowResidency::Create(testing::TinyFrameGeometry(), TinyWindows(128), kSlots, kMaxPages)
          .value();
  windows->Plan(frames->Publish(1, {}, {}, {}));
  frames->Publish(2, {}, {}, {});
  const FrameView third = frames->Publish(3, {}, {}, {});
  EXPECT_DEATH(windows->Plan(third), "without gaps");
  EXPECT_DEATH(windows->Acknowledge(2), "planned epoch is acknowledged");
}

}  // namespace
}  // namespace kvrm
