#include "exec/memory_need.h"

#include <gtest/gtest.h>

#include "exec/test_stack.h"

namespace kvrm {
namespace {

// What the tables of a real StepTables hold; partials and split counters cannot be seen from here,
// their sizes follow from the split rows.
TEST(MemoryNeed, OfStepTablesIsThatOfTheirVectors) {
  for (const uint32_t threads : {1u, 3u, 64u}) {
    StepTablesConfig config;
    config.geometry.groups.resize(2);
    config.max_rows = 100;
    config.max_logits = 7;
    config.max_slots = 5;
    config.max_seq_tokens = 3 * ops::kChunkTokens + 1;
    config.num_threads = threads;
    config.num_heads = 6;
    config.num_kv_heads = 2;
    config.head_dim = 32;
    const StepTables tables(config);
    uint64_t bytes =
        config.max_logits * sizeof(uint32_t) + config.max_rows * (sizeof(uint8_t) + sizeof(Row));
    for (uint32_t g = 0; g < 2; ++g) {
      const StepTables::Group& group = tables.group(g);
      bytes += group.write_offset.size() * sizeof(group.write_offset[0]) +
               group.num_segments.size() * sizeof(group.num_segments[0]);
      for (const StepTables::TaskList* list : {&group.all, &group.with_logits}) {
        bytes += list->tasks.size() * sizeof(list->tasks[0]) +
                 list->split_rows.size() * sizeof(list->split_rows[0]);
      }
    }
    const uint64_t splits = tables.group(0).all.split_rows.size();
    bytes += splits * sizeof(uint32_t) + splits * 4 * 6 * (32 + 2) * sizeof(float);
    EXPECT_EQ(StepTablesBytes(config), bytes) << threads << " threads";
  }
}

TEST(MemoryNeed, OfAnExecutorGrowsWithContextSlotsAndThreads) {
  const testing::TestStack stack{testing::TestStackConfig{}};
  const ModelConfig& model = stack.model().config();
  CpuExecutorConfig config;
  config.geometry = stack.geometry();
  config.max_slots = 8;
  config.max_seq_tokens = 1 << 16;
  const uint64_t base = CpuExecutorBytes(model, config, 2, true);
  // At least rows x widest float value, and the logits.
  EXPECT_GT(base, uint64_t{520} * model.hidden * sizeof(float) + 8 * model.vocab * sizeof(float));
  EXPECT_GT(CpuExecutorBytes(model, config, 2, false), base);
  EXPECT_GT(CpuExecutorBytes(model, config, 4, true), base);
  config.max_seq_tokens *= 8;
  const uint64_t cos_sin = uint64_t{7} * (1 << 16) * model.rope_dims * sizeof(float);
  EXPECT_GT(CpuExecutorBytes(model, config, 2, true), base + cos_sin);
  config.max_seq_tokens /= 8;
  config.max_slots = 800;
  const uint64_t more_slots = CpuExecutorBytes(model, config, 2, true);
  EXPECT_GT(more_slots, base);
  EXPECT_GT(more_slots, 800u * model.vocab * sizeof(float));
}

}  // namespace
}  // namespace kvrm
