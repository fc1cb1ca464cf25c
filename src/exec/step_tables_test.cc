// What a step reads and computes beside what is live: widths and filled rows.
#include "exec/step_tables.h"

#include <gtest/gtest.h>

#include "exec/warm_up_frame.h"

namespace kvrm {
namespace {

constexpr uint32_t kSeqTokens = 2000, kMaxRows = 40, kMaxLogits = 8;

StepTablesConfig Config(KvWidth width) {
  StepTablesConfig config;
  config.geometry.groups = {{.num_parts = 1, .pages_per_superblock = 8},
                            {.kind = KvGroupKind::kSliding,
                             .num_parts = 1,
                             .pages_per_superblock = 8,
                             .window_tokens = 64}};
  config.max_rows = kMaxRows;
  config.max_logits = kMaxLogits;
  config.max_slots = 1;
  config.max_seq_tokens = kSeqTokens;
  config.kv_width = width;
  config.num_threads = 2;
  config.num_heads = config.num_kv_heads = 2;
  config.head_dim = 16;
  return config;
}

// One row at `position`, in a slot whose table covers `table_tokens`.
struct OneRow {
  OneRow(const StepTablesConfig& config, uint32_t position, uint32_t table_tokens = kSeqTokens)
      : frame(config.geometry, kMaxRows, kMaxLogits, position, table_tokens) {}
  WarmUpFrame frame;
};

uint32_t EndOf(const StepTables::Group& group) {
  uint32_t end = 0;
  const StepTables::TaskList& all = group.all;
  for (uint32_t i = 0; i < all.num_tasks; ++i) end = std::max(end, all.tasks[i].chunk_end);
  return end;
}

TEST(KvWidth, FullReadsAllAndLiveWhatIsSeen) {
  for (const uint32_t position : {0u, 255u, 256u, 1999u}) {
    for (const KvWidth width : {KvWidth::kLive, KvWidth::kFull}) {
      StepTables step(Config(width));
      OneRow row(Config(width), position);
      step.Build(row.frame.View(1, position));
      const bool full = width == KvWidth::kFull;
      EXPECT_EQ(step.group(0).width, full ? kSeqTokens : 0u);
      EXPECT_EQ(EndOf(step.group(0)), full ? 8u : position / 256 + 1);
      EXPECT_EQ(step.group(1).width, 0u) << "a window is what its layers read";
      EXPECT_EQ(EndOf(step.group(1)), position / 256 + 1);
    }
  }
}

TEST(AttentionTasks, ManyRowsMakeTasksOfAsManyAsAllowedFewAreCutFiner) {
  const auto longest = [](uint32_t rows, uint32_t task_rows) {
    StepTablesConfig config = Config(KvWidth::kLive);
    config.num_threads = 1;
    config.task_rows = task_rows;
    StepTables step(config);
    WarmUpFrame frame(config.geometry, kMaxRows, kMaxLogits, 0, kSeqTokens);
    step.Build(frame.View(rows));
    uint32_t most = 0, sum = 0;
    const StepTables::TaskList& all = step.group(0).all;
    for (uint32_t i = 0; i < all.num_tasks; ++i) {
      most = std::max<uint32_t>(most, all.tasks[i].num_rows);
      sum += all.tasks[i].num_rows * (all.tasks[i].kv_head_end - all.tasks[i].kv_head_begin);
    }
    EXPECT_EQ(sum, 2 * rows) << "each row and KV head once";
    return most;
  };
  EXPECT_EQ(longest(40, 16), 10u);
  EXPECT_EQ(longest(8, 16), 4u);
  EXPECT_EQ(longest(40, 4), 4u);
}

TEST(KvWidth, ABucketIsTheLeastOfFourThatHoldsTheLongest) {
  StepTables step(Config(KvWidth::kBucket));
  const std::pair<uint32_t, uint32_t> cases[] = {{0, 250},     {249, 250},  {250, 500},
                                                 {499, 500},   {500, 1000}, {999, 1000},
                                                 {1000, 2000}, {1999, 2000}};
  for (const auto& [position, width] : cases) {
    OneRow row(Config(KvWidth::kBucket), position);
    step.Build(row.frame.View(1, position));
    EXPECT_EQ(step.group(0).width, width) << position;
  }
}

TEST(KvWidthDeathTest, ATableThatDoesNotCoverTheWidthIsABug) {
  StepTables step(Config(KvWidth::kFull));
  OneRow row(Config(KvWidth::kFull), 100, /*table_tokens=*/1000);
  EXPECT_DEATH(step.Build(row.frame.View(1, 100)), "covers the width");
}

TEST(RowFill, RowsPastTheLiveOnesWriteNothingAndReadPlaceZero) {
  StepTables step(Config(KvWidth::kLive));
  WarmUpFrame frame(Config(KvWidth::kLive).geometry, kMaxRows, kMaxLogits, 600);
  const FrameView view = frame.View(3, 600);
  step.Build(view, {.rows = kMaxRows, .logits = kMaxLogits});
  ASSERT_EQ(step.num_rows(), kMaxRows);
  ASSERT_EQ(step.num_logits(), kMaxLogits);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(step.rows()[i].kv_index, 598 + i);
  for (uint32_t i = 3; i < kMaxRows; ++i) {
    EXPECT_EQ(step.rows()[i].kv_index, 0u);
    EXPECT_EQ(step.rows()[i].flags, kRowNoWrite);
  }
  for (uint32_t i = 3; i < kMaxRows; ++i) {
    const uint32_t logits_idx = i < kMaxLogits ? i : kNone32;
    EXPECT_EQ(step.rows()[i].logits_idx, logits_idx);
    if (i < kMaxLogits) {
      EXPECT_EQ(step.logits_rows()[i], i);
    }
  }
  // No task holds rows of both kinds: its chunks would be those of the last one.
  const StepTables::TaskList& all = step.group(0).all;
  std::vector<uint32_t> covered(kMaxRows);
  for (uint32_t t = 0; t < all.num_tasks; ++t) {
    const ops::AttentionTask& task = all.tasks[t];
    EXPECT_EQ(task.row_begin < 3, task.row_begin + task.num_rows <= 3);
    for (uint32_t i = 0; i < task.num_rows; ++i) {
      covered[task.row_begin + i] +=
          (task.kv_head_end - task.kv_head_begin) * (task.chunk_end - task.chunk_begin);
    }
  }
  for (uint32_t i = 0; i < kMaxRows; ++i) EXPECT_EQ(covered[i], i < 3 ? 2u * 3 : 2u) << i;
}

// The page of place 0 has left the window of a long sequence: whoever read it would read through a
// hole.
TEST(RowFill, WherePlaceZeroLeftAWindowRowsReadWhatTheFirstLiveOneReads) {
  StepTables step(Config(KvWidth::kLive));
  WarmUpFrame frame(Config(KvWidth::kLive).geometry, kMaxRows, kMaxLogits, 600);
  const FrameView view = frame.View(3, 600);
  const_cast<Segment&>(view.SlotSegments(1, view.rows[0].slot)[0]).first_token = 528;
  step.Build(view, {.rows = kMaxRows, .logits = kMaxLogits});
  for (uint32_t i = 3; i < kMaxRows; ++i) {
    EXPECT_EQ(step.rows()[i].kv_index, view.rows[0].kv_index);
    EXPECT_EQ(step.rows()[i].flags, kRowNoWrite);
  }
}

// Rows may be fewer than the logits that a program has room for.
TEST(RowFill, LogitsThatNoRowIsLeftForAreTheLastRows) {
  StepTables step(Config(KvWidth::kLive));
  WarmUpFrame frame(Config(KvWidth::kLive).geometry, kMaxRows, /*max_logits=*/1);
  step.Build(frame.View(kMaxRows - 2), {.rows = kMaxRows, .logits = kMaxLogits});
  ASSERT_EQ(step.num_logits(), kMaxLogits);
  EXPECT_EQ(step.logits_rows()[0], 0u);
  EXPECT_EQ(step.logits_rows()[1], kMaxRows - 2);
  for (uint32_t i = 2; i < kMaxLogits; ++i) EXPECT_EQ(step.logits_rows()[i], kMaxRows - 1);
}

// A lone row is cut by chunks and heads, or where chunks suffice for all threads by chunks alone;
// each head of each chunk is in one task, and the split counts them.
TEST(SplitRows, AreCutByChunksAloneWhereThoseSuffice) {
  for (const auto& [position, heads_a_task] : {std::pair{600u, 1u}, {1791u, 1u}, {1792u, 2u}}) {
    StepTables step(Config(KvWidth::kLive));
    OneRow row(Config(KvWidth::kLive), position);
    step.Build(row.frame.View(1, position));
    const StepTables::TaskList& all = step.group(0).all;
    ASSERT_EQ(all.num_splits, 1u);
    EXPECT_EQ(all.split_rows[0].num_tasks, all.num_tasks);
    std::vector<uint32_t> covered(2 * (position / 256 + 1));
    for (uint32_t i = 0; i < all.num_tasks; ++i) {
      const ops::AttentionTask& task = all.tasks[i];
      ASSERT_EQ(task.chunk_end, task.chunk_begin + 1);
      EXPECT_EQ(task.kv_head_end - task.kv_head_begin, heads_a_task) << position;
      for (uint32_t head = task.kv_head_begin; head < task.kv_head_end; ++head) {
        ++covered[2 * task.chunk_begin + head];
      }
    }
    for (const uint32_t count : covered) EXPECT_EQ(count, 1u);
  }
}

// What the last layer's attention is cut into: the rows with logits, each once per head and chunk,
// and where their outputs go.
TEST(LogitsTasks, CoverTheRowsWithLogitsAndNoOthers) {
  for (const uint32_t num_rows : {1u, 3u, 20u, kMaxRows}) {
    for (const uint32_t every : {1u, 2u, 7u, 100u}) {
      StepTables step(Config(KvWidth::kLive));
      WarmUpFrame frame(Config(KvWidth::kLive).geometry, kMaxRows, kMaxLogits, 600);
      const FrameView view = frame.View(num_rows, 600);
      uint32_t num_logits = 0;
      for (uint32_t i = 0; i < num_rows; ++i) {
        const bool wanted = (num_rows - 1 - i) % every == 0 && num_logits < kMaxLogits;
        const_cast<Row&>(view.rows[i]).logits_idx = wanted ? num_logits++ : kNone32;
      }
      const_cast<FrameHead*>(view.head)->num_logits = num_logits;
      step.Build(view);
      const StepTables::TaskList& list = step.group(0).with_logits;
      std::vector<uint32_t> covered(num_logits);
      for (uint32_t t = 0; t < list.num_tasks; ++t) {
        const ops::AttentionTask& task = list.tasks[t];
        for (uint32_t i = 0; i < task.num_rows; ++i) {
          const uint32_t logits_idx = step.rows()[task.row_begin + i].logits_idx;
          ASSERT_NE(logits_idx, kNone32);
          ASSERT_EQ(logits_idx, task.out_begin + i);
          covered[logits_idx] +=
              (task.kv_head_end - task.kv_head_begin) * (task.chunk_end - task.chunk_begin);
        }
      }
      for (const uint32_t count : covered) EXPECT_EQ(count, 2u * 3) << num_rows << " " << every;
      EXPECT_EQ(step.group(1).with_logits.num_tasks, 0u) << "of no layer";
    }
  }
}

TEST(RowFill, NothingIsFilledUpWhereNothingIsLive) {
  StepTables step(Config(KvWidth::kLive));
  WarmUpFrame frame(Config(KvWidth::kLive).geometry, kMaxRows, kMaxLogits);
  step.Build(frame.View(0), {.rows = kMaxRows, .logits = kMaxLogits});
  EXPECT_EQ(step.num_rows(), 0u);
}

}  // namespace
}  // namespace kvrm
