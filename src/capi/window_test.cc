// Windows through the C ABI: the order of the calls, what they refuse, and that bytes arrive.
#include <cstring>
#include <memory>

#include "capi/capi_testing.h"

namespace kvrm {
namespace {

// A runtime with windows, and an executor that writes (seq-independent) bytes of a place.
class WindowedRuntime : public TestRuntime {
 public:
  explicit WindowedRuntime(uint32_t publish_age_steps = 0)
      : TestRuntime(ConfigOf(publish_age_steps).config) {
    for (uint32_t g = 0; g < 2; ++g) {
      uint64_t bytes = 0;
      layout[g].size = sizeof layout[g];
      EXPECT_EQ(kvrm_get_window(*this, g, &layout[g], &bytes), KVRM_OK) << error();
      memory[g].resize(bytes);
      EXPECT_EQ(kvrm_bind_window(*this, g, memory[g].data(), bytes), KVRM_OK) << error();
    }
  }

  unsigned char* Entry(uint32_t group, uint32_t part, uint32_t slot, uint32_t place) {
    return memory[group].data() + part * layout[group].part_stride_bytes +
           slot * layout[group].slot_stride_bytes + place % layout[group].window_tokens * 32;
  }
  // Writes the rows of the last frame and acknowledges it.
  void RunDecoder() {
    Plan();
    kvrm_frame frame = {};
    frame.size = sizeof frame;
    ASSERT_EQ(kvrm_get_frame(*this, &frame), KVRM_OK);
    for (uint32_t i = 0; i < frame.num_rows; ++i) {
      for (uint32_t side = 0; side < 4; ++side) {
        std::memset(Entry(side / 2, side % 2, frame.rows[i].slot, frame.rows[i].kv_index),
                    static_cast<int>(frame.rows[i].kv_index * 4 + side), 32);
      }
    }
    const kvrm_train* trains = nullptr;
    uint32_t num_trains = 0;
    ASSERT_EQ(kvrm_window_acknowledge(*this, epoch(), &trains, &num_trains), KVRM_OK) << error();
    ASSERT_EQ(kvrm_run_trains(*this, trains, num_trains), KVRM_OK) << error();
    ASSERT_EQ(kvrm_step_done(*this, epoch()), KVRM_OK);
  }
  // Returns how many bytes were staged.
  uint64_t Plan() {
    const kvrm_train* trains = nullptr;
    uint32_t num_trains = 0;
    EXPECT_EQ(kvrm_get_page_copies(*this, &trains, &num_trains), KVRM_OK);
    EXPECT_EQ(kvrm_run_trains(*this, trains, num_trains), KVRM_OK) << error();
    EXPECT_EQ(kvrm_window_plan(*this, &trains, &num_trains), KVRM_OK) << error();
    EXPECT_EQ(kvrm_run_trains(*this, trains, num_trains), KVRM_OK) << error();
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < num_trains; ++i) bytes += trains[i].bytes;
    return bytes;
  }
  void Decode(const std::vector<kvrm_seq>& seqs) {
    std::vector<kvrm_row_input> rows;
    for (const kvrm_seq seq : seqs) AddRows(seq, rows);
    ASSERT_EQ(Commit(rows), KVRM_OK) << error();
    RunDecoder();
  }
  kvrm_seq Decoded(uint32_t num_tokens) {
    Begin();
    const kvrm_seq seq = Open();
    EXPECT_EQ(Reserve(seq, num_tokens), KVRM_OK);
    Decode({seq});
    return seq;
  }
  void ExpectWindow(kvrm_seq seq, uint32_t places) {
    const uint32_t slot = Info(seq).slot;
    for (uint32_t place = 0; place < places; ++place) {
      for (uint32_t side = 0; side < 4; ++side) {
        if (side >= 2 && place + 24 < places) continue;  // out of the sliding group's sight
        EXPECT_EQ(*Entry(side / 2, side % 2, slot, place), (place * 4 + side) % 256)
            << "place " << place << ", group " << side / 2;
      }
    }
  }

  kvrm_window_config layout[2] = {};
  std::vector<unsigned char> memory[2];

 private:
  static RuntimeConfig& ConfigOf(uint32_t publish_age_steps) {
    static std::unique_ptr<RuntimeConfig> made;
    made = std::make_unique<RuntimeConfig>(/*sliding=*/true, /*windows=*/true);
    made->config.publish_age_steps = publish_age_steps;
    return *made;
  }
};

TEST(CapiWindow, DefaultsAreTheLeastThatServes) {
  WindowedRuntime rt;
  EXPECT_EQ(rt.layout[0].window_tokens, 128u);
  EXPECT_EQ(rt.layout[1].window_tokens, 96u);  // 24 + 64, rounded up to pages
  EXPECT_EQ(rt.layout[0].slot_stride_bytes, 128u * 32);
  EXPECT_EQ(rt.layout[0].part_stride_bytes, 4u * 128 * 32);
  EXPECT_EQ(rt.memory[0].size(), 2u * 4 * 128 * 32);
  unsigned char byte = 0;
  EXPECT_EQ(kvrm_bind_window(rt, 0, &byte, 1), KVRM_INVALID);
  EXPECT_EQ(kvrm_bind_window(rt, 2, &byte, 1), KVRM_INVALID);
  TestRuntime without;
  const kvrm_train* trains = nullptr;
  uint32_t num_trains = 0;
  EXPECT_EQ(kvrm_window_plan(without, &trains, &num_trains), KVRM_INVALID);
  EXPECT_EQ(kvrm_bind_window(without, 0, &byte, 1), KVRM_INVALID);
}

// A host whose parts are allocations of their own asks for a rest between them. A sequence that
// fills its superblock and its window is adjacent at both ends over both parts.
TEST(CapiWindow, WithARestBetweenPartsNoTrainReachesFromOneIntoTheNext) {
  for (const uint64_t rest : {0u, 32u}) {
    RuntimeConfig made(/*sliding=*/false, /*windows=*/true);
    made.groups[0].pages_per_superblock = 8;
    made.groups[0].superblock_bytes = 8 * 1024;
    made.config.max_slots = 1;
    made.config.max_step_tokens = 128;
    kvrm_window_config window = {};
    window.size = sizeof window;
    window.part_stride_bytes = 128 * 32 + rest;
    made.config.windows = &window;
    TestRuntime rt(made.config);
    rt.Begin();
    const kvrm_seq seq = rt.Open();
    ASSERT_EQ(rt.Reserve(seq, 128), KVRM_OK);
    std::vector<kvrm_row_input> rows;
    rt.AddRows(seq, rows);
    ASSERT_EQ(rt.Commit(rows), KVRM_OK) << rt.error();
    const kvrm_train* trains = nullptr;
    uint32_t num_trains = 0;
    ASSERT_EQ(kvrm_window_plan(rt, &trains, &num_trains), KVRM_OK) << rt.error();
    ASSERT_EQ(kvrm_window_acknowledge(rt, 1, &trains, &num_trains), KVRM_OK) << rt.error();
    ASSERT_EQ(num_trains, rest == 0 ? 1u : 2u);
    for (uint32_t i = 0; i < num_trains; ++i) {
      EXPECT_EQ(trains[i].source_offset % window.part_stride_bytes, 0u);
      EXPECT_EQ(trains[i].bytes, 128u * 32 * 2 / num_trains);
    }
  }
}

TEST(CapiWindow, AForkFindsItsOriginsBytes) {
  WindowedRuntime rt;
  const kvrm_seq src = rt.Decoded(50);
  rt.Begin();
  const kvrm_seq fork = rt.Open();
  ASSERT_EQ(kvrm_alias(rt, fork, src, 50), KVRM_OK) << rt.error();
  ASSERT_EQ(rt.Reserve(fork, 51), KVRM_OK);
  rt.Decode({fork});
  rt.ExpectWindow(fork, 51);
  rt.ExpectWindow(src, 50);
  uint32_t first = 9, end = 9;
  ASSERT_EQ(kvrm_window_resident(rt, 0, rt.Info(fork).slot, &first, &end), KVRM_OK);
  EXPECT_EQ(first, 0u);
  EXPECT_EQ(end, 51u);
  EXPECT_EQ(kvrm_window_resident(rt, 0, 4, &first, &end), KVRM_INVALID);
}

TEST(CapiWindow, SteadyDecodingStagesNothing) {
  WindowedRuntime rt;
  const kvrm_seq seq = rt.Decoded(20);
  for (uint32_t tokens = 21; tokens < 60; ++tokens) {
    rt.Begin();
    ASSERT_EQ(rt.Reserve(seq, tokens), KVRM_OK);
    std::vector<kvrm_row_input> rows;
    rt.AddRows(seq, rows);
    ASSERT_EQ(rt.Commit(rows), KVRM_OK);
    EXPECT_EQ(rt.Plan(), 0u);
    rt.RunDecoder();
  }
  rt.ExpectWindow(seq, 59);
}

TEST(CapiWindow, AnEpochThatDidNotRunIsTrimmedBeforeItsSequenceGoesOn) {
  WindowedRuntime rt;
  const kvrm_seq seq = rt.Decoded(20);
  rt.Begin();
  ASSERT_EQ(rt.Reserve(seq, 24), KVRM_OK);
  std::vector<kvrm_row_input> rows;
  rt.AddRows(seq, rows);
  ASSERT_EQ(rt.Commit(rows), KVRM_OK);
  ASSERT_EQ(kvrm_step_done(rt, rt.epoch()), KVRM_OK);  // the decoder failed: no acknowledge
  EXPECT_EQ(rt.Info(seq).completed_tokens, 20u);
  rt.Begin();
  const kvrm_seq fork = rt.Open();
  EXPECT_EQ(kvrm_alias(rt, fork, seq, 24), KVRM_INVALID);
  EXPECT_EQ(kvrm_alias(rt, fork, seq, 20), KVRM_OK) << rt.error();
  ASSERT_EQ(rt.Reserve(seq, 25), KVRM_OK);
  EXPECT_EQ(rt.Commit({TestRuntime::Row(seq, 24)}), KVRM_INVALID);
  EXPECT_NE(rt.error().find("from 20 on were not acknowledged"), std::string::npos) << rt.error();
  ASSERT_EQ(kvrm_trim(rt, seq, 20), KVRM_OK);
  ASSERT_EQ(rt.Reserve(seq, 25), KVRM_OK);
  rt.Decode({seq});
  rt.ExpectWindow(seq, 25);
}

TEST(CapiWindow, AForkWhoseFirstEpochIsGivenUpStillFindsItsOriginsBytes) {
  WindowedRuntime rt;
  const kvrm_seq src = rt.Decoded(20);
  rt.Begin();
  const kvrm_seq fork = rt.Open();
  ASSERT_EQ(kvrm_alias(rt, fork, src, 20), KVRM_OK);
  ASSERT_EQ(rt.Reserve(fork, 21), KVRM_OK);
  std::vector<kvrm_row_input> rows;
  rt.AddRows(fork, rows);
  ASSERT_EQ(rt.Commit(rows), KVRM_OK) << rt.error();
  EXPECT_EQ(kvrm_step_done(rt, rt.epoch()), KVRM_INVALID);  // the decoder failed, and nothing ran
  EXPECT_GT(rt.RunPageCopies(), 0u);
  ASSERT_EQ(kvrm_step_done(rt, rt.epoch()), KVRM_OK) << rt.error();
  rt.Begin();
  ASSERT_EQ(kvrm_trim(rt, fork, 20), KVRM_OK);
  ASSERT_EQ(rt.Reserve(fork, 21), KVRM_OK);
  rt.Decode({fork});
  rt.ExpectWindow(fork, 21);
  rt.ExpectWindow(src, 20);
}

TEST(CapiWindow, RowsThatAPlanPublishesAreNotForgottenWithTheirEpoch) {
  WindowedRuntime rt(/*publish_age_steps=*/3);
  const kvrm_seq seq = rt.Decoded(40);
  rt.Begin();
  ASSERT_EQ(rt.Reserve(seq, 80), KVRM_OK);
  rt.Decode({seq});
  rt.Begin();
  ASSERT_EQ(rt.Reserve(seq, 120), KVRM_OK);  // the ring of 96 goes round: the first rows must leave
  std::vector<kvrm_row_input> rows;
  rt.AddRows(seq, rows);
  ASSERT_EQ(rt.Commit(rows), KVRM_OK) << rt.error();
  EXPECT_EQ(kvrm_begin_step(rt), KVRM_INVALID);
  EXPECT_NE(rt.error().find("kvrm_window_plan"), std::string::npos) << rt.error();
  EXPECT_GT(rt.Plan(), 0u);
  ASSERT_EQ(kvrm_step_done(rt, rt.epoch()), KVRM_OK);
  rt.Begin();
  ASSERT_EQ(kvrm_trim(rt, seq, 80), KVRM_OK) << rt.error();
  ASSERT_EQ(rt.Reserve(seq, 81), KVRM_OK);
  rt.Decode({seq});
  rt.ExpectWindow(seq, 81);
}

// Rows of `seq` that wait are made due by a publish call, and carried out.
uint32_t PublishAndRun(WindowedRuntime& rt, kvrm_seq seq) {
  const kvrm_train* trains = nullptr;
  uint32_t num_trains = 0;
  EXPECT_EQ(kvrm_window_publish(rt, seq, &trains, &num_trains), KVRM_OK) << rt.error();
  EXPECT_EQ(kvrm_run_trains(rt, trains, num_trains), KVRM_OK) << rt.error();
  return num_trains;
}

// A commit that drops pages drops what waited for them, though nobody asked for its plan.
TEST(CapiWindow, RowsThatWaitDieWithTheirPages) {
  for (const bool closes : {true, false}) {
    WindowedRuntime rt(/*publish_age_steps=*/8);
    const kvrm_seq old_one = rt.Decoded(16);
    const kvrm_seq stays = rt.Decoded(16);
    const uint32_t slot = rt.Info(old_one).slot;
    const uint32_t* pages = nullptr;
    uint32_t num_pages = 0, first = 0;
    ASSERT_EQ(kvrm_get_sequence_pages(rt, old_one, 0, &pages, &num_pages, &first), KVRM_OK);
    const uint32_t lost_page = pages[0];
    rt.Begin();
    ASSERT_EQ(closes ? kvrm_close(rt, old_one) : kvrm_trim(rt, old_one, 0), KVRM_OK);
    ASSERT_EQ(rt.Commit({}), KVRM_OK) << rt.error();
    ASSERT_EQ(kvrm_step_done(rt, rt.epoch()), KVRM_OK);
    rt.Begin();
    kvrm_seq in_slot = old_one;
    if (closes) in_slot = rt.Open();
    ASSERT_EQ(rt.Info(in_slot).slot, slot);
    const kvrm_seq heir = rt.Open();
    ASSERT_EQ(rt.Reserve(heir, 16), KVRM_OK);
    ASSERT_EQ(kvrm_get_sequence_pages(rt, heir, 0, &pages, &num_pages, &first), KVRM_OK);
    ASSERT_EQ(pages[0], lost_page);
    EXPECT_EQ(PublishAndRun(rt, in_slot), 0u);
    EXPECT_GT(PublishAndRun(rt, stays), 0u);
  }
}

// The plan is made by the commit: what others publish before it is asked for takes nothing from it.
TEST(CapiWindow, RowsThatTheRingOverwritesArriveThoughThePlanIsAskedLast) {
  WindowedRuntime rt(/*publish_age_steps=*/200);
  const kvrm_seq seq = rt.Decoded(60);
  rt.Begin();
  ASSERT_EQ(rt.Reserve(seq, 100), KVRM_OK);  // places from 96 on go where 0 to 3 are
  std::vector<kvrm_row_input> rows;
  rt.AddRows(seq, rows);
  ASSERT_EQ(rt.Commit(rows), KVRM_OK) << rt.error();
  EXPECT_EQ(PublishAndRun(rt, seq), 0u);  // they stand in the plan
  EXPECT_EQ(kvrm_begin_step(rt), KVRM_INVALID);
  EXPECT_GT(rt.Plan(), 0u);
  EXPECT_EQ(rt.Plan(), 0u);
  rt.RunDecoder();
  PublishAndRun(rt, seq);
  rt.Begin();
  const kvrm_seq fork = rt.Open();
  ASSERT_EQ(kvrm_alias(rt, fork, seq, 100), KVRM_OK) << rt.error();
  ASSERT_EQ(rt.Reserve(fork, 101), KVRM_OK);
  rt.Decode({fork});
  rt.ExpectWindow(fork, 101);
}

// Pages of 128 places stay long after the model's window of 24 has left them.
TEST(CapiWindow, RowsThatSeeMoreThanAWindowHoldsAreRefused) {
  RuntimeConfig made(/*sliding=*/true, /*windows=*/true);
  for (kvrm_group_config& group : made.groups) {
    group.page_tokens = 128;
    group.part_page_bytes = 128;
    group.superblock_bytes = 16 * 256;
  }
  made.config.max_seq_tokens = 256;
  made.config.max_step_tokens = 64;
  TestRuntime rt(made.config);
  rt.Begin();
  const kvrm_seq seq = rt.Open();
  const kvrm_train* trains = nullptr;
  uint32_t num_trains = 0;
  for (const uint32_t tokens : {64, 128, 140}) {
    if (tokens > 64) rt.Begin();
    ASSERT_EQ(rt.Reserve(seq, tokens), KVRM_OK);
    std::vector<kvrm_row_input> rows;
    rt.AddRows(seq, rows);
    ASSERT_EQ(rt.Commit(rows), KVRM_OK) << rt.error();
    ASSERT_EQ(kvrm_window_plan(rt, &trains, &num_trains), KVRM_OK) << rt.error();
    ASSERT_EQ(kvrm_window_acknowledge(rt, rt.epoch(), &trains, &num_trains), KVRM_OK);
    ASSERT_EQ(kvrm_step_done(rt, rt.epoch()), KVRM_OK);
  }
  rt.Begin();
  ASSERT_EQ(rt.Reserve(seq, 141), KVRM_OK);
  EXPECT_EQ(rt.Commit({TestRuntime::Row(seq, 10, KVRM_ROW_NO_WRITE), TestRuntime::Row(seq, 140)}),
            KVRM_INVALID);
  EXPECT_NE(rt.error().find("sees 141 places, a window of group 1 holds 128"), std::string::npos)
      << rt.error();
  ASSERT_EQ(rt.Commit({TestRuntime::Row(seq, 100, KVRM_ROW_NO_WRITE), TestRuntime::Row(seq, 140)}),
            KVRM_OK)
      << rt.error();
  EXPECT_EQ(kvrm_window_plan(rt, &trains, &num_trains), KVRM_OK) << rt.error();
}

TEST(CapiWindow, PlansAndAcknowledgesComeInOrder) {
  WindowedRuntime rt;
  const kvrm_train* trains = nullptr;
  uint32_t num_trains = 0;
  EXPECT_EQ(kvrm_window_plan(rt, &trains, &num_trains), KVRM_INVALID);
  rt.Begin();
  const kvrm_seq seq = rt.Open();
  ASSERT_EQ(rt.Reserve(seq, 20), KVRM_OK);
  std::vector<kvrm_row_input> rows;
  rt.AddRows(seq, rows);
  ASSERT_EQ(rt.Commit(rows), KVRM_OK);
  EXPECT_EQ(kvrm_window_acknowledge(rt, 1, &trains, &num_trains), KVRM_INVALID);  // not planned
  EXPECT_EQ(kvrm_window_plan(rt, &trains, &num_trains), KVRM_OK);
  EXPECT_EQ(kvrm_window_plan(rt, &trains, &num_trains), KVRM_OK);  // the same again
  EXPECT_EQ(kvrm_window_acknowledge(rt, 2, &trains, &num_trains), KVRM_INVALID);
  EXPECT_EQ(kvrm_window_acknowledge(rt, 1, &trains, &num_trains), KVRM_OK);
  EXPECT_GT(num_trains, 0u);
  EXPECT_EQ(kvrm_window_acknowledge(rt, 1, &trains, &num_trains), KVRM_INVALID);
  EXPECT_EQ(kvrm_window_plan(rt, &trains, &num_trains), KVRM_INVALID);
  EXPECT_EQ(kvrm_window_plan(rt, nullptr, &num_trains), KVRM_INVALID);
}

TEST(CapiWindow, RowsThatWaitArePublishedBeforeTheyAreShared) {
  WindowedRuntime rt(/*publish_age_steps=*/3);
  const kvrm_seq src = rt.Decoded(40);
  const kvrm_salt salt = {};
  const std::vector<int32_t> tokens(40, 1);
  EXPECT_EQ(kvrm_prefix_index(rt, src, &salt, tokens.data(), 40, nullptr), KVRM_INVALID);
  rt.Begin();
  const kvrm_seq fork = rt.Open();
  EXPECT_EQ(kvrm_alias(rt, fork, src, 40), KVRM_INVALID);
  EXPECT_NE(rt.error().find("kvrm_window_publish"), std::string::npos) << rt.error();
  const kvrm_train* trains = nullptr;
  uint32_t num_trains = 0;
  ASSERT_EQ(kvrm_window_publish(rt, src, &trains, &num_trains), KVRM_OK) << rt.error();
  EXPECT_GT(num_trains, 0u);
  ASSERT_EQ(kvrm_run_trains(rt, trains, num_trains), KVRM_OK);
  ASSERT_EQ(kvrm_alias(rt, fork, src, 40), KVRM_OK) << rt.error();
  ASSERT_EQ(rt.Reserve(fork, 41), KVRM_OK);
  rt.Decode({fork});
  rt.ExpectWindow(fork, 41);
}

TEST(CapiWindow, AnAdoptedPrefixArrivesInTheWindow) {
  WindowedRuntime rt;
  const kvrm_salt salt = {7, 7};
  const std::vector<int32_t> tokens(50, 3);
  const kvrm_seq first = rt.Decoded(50);
  uint32_t pages = 0, matched = 0;
  ASSERT_EQ(kvrm_prefix_index(rt, first, &salt, tokens.data(), 50, &pages), KVRM_OK) << rt.error();
  EXPECT_GT(pages, 0u);
  rt.Begin();
  ASSERT_EQ(kvrm_close(rt, first), KVRM_OK);
  rt.Decode({});
  ASSERT_EQ(kvrm_prefix_match(rt, &salt, tokens.data(), 48, &matched), KVRM_OK);
  ASSERT_EQ(matched, 48u);
  rt.Begin();
  const kvrm_seq second = rt.Open();
  EXPECT_EQ(kvrm_prefix_adopt(rt, second, &salt, tokens.data(), 50, 51), KVRM_INVALID);
  EXPECT_EQ(kvrm_prefix_adopt(rt, second, &salt, tokens.data(), 50, 50), KVRM_UNSERVICEABLE);
  ASSERT_EQ(kvrm_prefix_adopt(rt, second, &salt, tokens.data(), 48, 48), KVRM_OK) << rt.error();
  ASSERT_EQ(rt.Commit({TestRuntime::Row(second, 47, KVRM_ROW_NO_WRITE)}), KVRM_OK) << rt.error();
  EXPECT_GT(rt.Plan(), 0u);
  rt.ExpectWindow(second, 48);
  ASSERT_EQ(kvrm_prefix_clear(rt), KVRM_OK);
  ASSERT_EQ(kvrm_prefix_match(rt, &salt, tokens.data(), 48, &matched), KVRM_OK);
  EXPECT_EQ(matched, 0u);
}

TEST(CapiWindow, CalibrationSetsTheTrainLength) {
  WindowedRuntime rt;
  uint64_t bytes = 0;
  ASSERT_EQ(kvrm_calibrate_trains(rt, &bytes), KVRM_OK);
  EXPECT_GE(bytes, 16u << 10);
  EXPECT_LE(bytes, 1u << 20);
}

}  // namespace
}  // namespace kvrm
