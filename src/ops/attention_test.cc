#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ops/attention_test_world.h"
#include "ops/kernel_test_support.h"
#include "ops/op_args.h"

namespace kvrm::ops {
namespace {

using testing::AllMachines;
using testing::kKvFormats;
using testing::kNaN;
using testing::kUntouched;
using testing::NameOf;
using testing::Pick;
using testing::SameBytes;
using testing::Shape;
using testing::VectorMachines;
using testing::World;

constexpr uint32_t kContexts[] = {1,   2,   15,  16,  17,  31,  100, 128, 129,
                                  255, 256, 257, 300, 511, 512, 513, 600};

Shape RandomShape(std::mt19937& rng) {
  Shape shape;
  shape.format = kKvFormats[rng() % 3];
  shape.group = Pick({1, 2, 3, 4, 7, 8}, rng);
  shape.num_kv_heads = Pick({1, 2, 3}, rng);
  shape.head_dim = Pick({32, 64, 80, 96, 128}, rng);
  shape.window = Pick({0, 0, 0, 1, 8, 100, 256, 300}, rng);
  shape.soft_cap = rng() % 4 == 0 ? 5.0f : 0.0f;
  // int8 rows are made of groups of 32 per KV head; the model loader asks for the same.
  const bool can_int8 = shape.group * shape.head_dim % 32 == 0;
  shape.kind = can_int8 && rng() % 2 == 0 ? ActivationKind::kInt8 : ActivationKind::kFloat;
  return shape;
}

std::string Describe(const KernelTable& machine, const Shape& s, size_t tokens, size_t rows) {
  return std::string(machine.name) + " " + NameOf(s.format) + " group " + std::to_string(s.group) +
         " dim " + std::to_string(s.head_dim) + " window " + std::to_string(s.window) + " tokens " +
         std::to_string(tokens) + " rows " + std::to_string(rows);
}

// Cuts the chunks of every row into tasks at random, and the KV heads of each cut too.
struct Split {
  std::vector<AttentionTask> tasks;
  std::vector<SplitRow> rows;
};
Split RandomSplit(World& world, uint32_t num_kv_heads) {
  Split split;
  const uint32_t num_chunks = world.NumChunks();
  for (uint32_t r = 0; r < world.rows.size(); ++r) {
    uint32_t num_tasks = 0;
    for (uint32_t chunk = 0; chunk < num_chunks;) {
      const uint32_t end = chunk + 1 + world.rng() % (num_chunks - chunk);
      const uint32_t cut = world.rng() % (num_kv_heads + 1);
      for (const auto& [first, last] : {std::pair{0u, cut}, std::pair{cut, num_kv_heads}}) {
        if (first == last) continue;
        AttentionTask task = world.WholeTask(r, 1);
        task.kv_head_begin = static_cast<uint16_t>(first);
        task.kv_head_end = static_cast<uint16_t>(last);
        task.chunk_begin = chunk;
        task.chunk_end = end;
        task.split = r;
        split.tasks.push_back(task);
        ++num_tasks;
      }
      chunk = end;
    }
    split.rows.push_back({r, r, num_chunks, num_tasks, r * num_chunks});
  }
  std::shuffle(split.tasks.begin(), split.tasks.end(), world.rng);
  return split;
}

// One NaN for all, as the contract does not tell them apart.
std::vector<std::byte> NaNsAlike(std::vector<std::byte> out) {
  for (size_t i = 0; i < out.size(); i += sizeof(float)) {
    float value;
    std::memcpy(&value, out.data() + i, sizeof value);
    if (std::isnan(value)) std::memcpy(out.data() + i, &kNaN, sizeof kNaN);
  }
  return out;
}

// Includes the spare row and the padding of every row, which no task may write (B026), and pages
// that are NaN wherever no visible token lives.
TEST(Attention, EveryMachineEqualsTheReference) {
  std::mt19937 rng(1);
  for (uint32_t repeat = 0; repeat < 260; ++repeat) {
    Shape shape = RandomShape(rng);
    if (repeat >= 200) {  // what a matrix unit takes
      shape.format = KvFormat::kInt8;
      shape.head_dim = Pick({64, 128, 192}, rng);
      shape.soft_cap = 0.0f;
    }
    const uint32_t tokens = kContexts[repeat % std::size(kContexts)];
    const uint32_t most_rows = repeat >= 200 ? kMaxTaskRows : kFloatTaskRows;
    const uint32_t rows = 1 + rng() % std::min(tokens, most_rows);
    World world(shape, tokens, rows, repeat);
    const auto want = world.Run(ReferenceKernels(), world.Whole());
    for (const KernelTable* machine : VectorMachines()) {
      EXPECT_TRUE(SameBytes(world.Run(*machine, world.Whole()), want))
          << Describe(*machine, shape, tokens, rows);
    }
  }
}

TEST(Attention, ResultIsTheSoftmaxOfTheVisibleTokens) {
  std::mt19937 rng(2);
  for (uint32_t repeat = 0; repeat < 40; ++repeat) {
    Shape shape = RandomShape(rng);
    shape.kind = ActivationKind::kFloat;
    const uint32_t tokens = kContexts[repeat % std::size(kContexts)];
    const uint32_t rows = std::min(tokens, 3u);
    World world(shape, tokens, rows, repeat);
    // int8: p times V's scale has 14 bits; 600 tokens, values below 2.
    const double tolerance = shape.format == KvFormat::kInt8 ? 1e-3 : 1e-5;
    const auto out = world.Run(ReferenceKernels(), world.Whole());
    for (uint32_t r = 0; r < rows; ++r) {
      for (uint32_t h = 0; h < world.NumHeads(); ++h) {
        const auto got = world.HeadOf(out, r, h);
        const auto want = world.Oracle(r, h);
        for (uint32_t d = 0; d < shape.head_dim; ++d) {
          ASSERT_NEAR(got[d], want[d], tolerance)
              << Describe(ReferenceKernels(), shape, tokens, rows) << " head " << h;
        }
      }
    }
  }
}

TEST(Attention, RowAloneEqualsTheRowInATile) {
  std::mt19937 rng(3);
  for (uint32_t repeat = 0; repeat < 40; ++repeat) {
    const Shape shape = RandomShape(rng);
    const uint32_t tokens = Pick({4, 17, 257, 258, 300, 513}, rng);
    World world(shape, tokens, 4, repeat);
    std::vector<AttentionTask> alone;
    for (uint32_t r = 0; r < 4; ++r) alone.push_back(world.WholeTask(r, 1));
    const std::vector<AttentionTask> pairs = {world.WholeTask(2, 2), world.WholeTask(0, 2)};
    for (const KernelTable* machine : AllMachines()) {
      const auto want = world.Run(*machine, world.Whole());
      EXPECT_TRUE(SameBytes(world.Run(*machine, alone), want))
          << Describe(*machine, shape, tokens, 4);
      EXPECT_TRUE(SameBytes(world.Run(*machine, pairs), want))
          << Describe(*machine, shape, tokens, 4);
    }
  }
}

TEST(Attention, SplitTasksEqualWholeTasks) {
  std::mt19937 rng(4);
  for (uint32_t repeat = 0; repeat < 60; ++repeat) {
    const Shape shape = RandomShape(rng);
    const uint32_t tokens = Pick({1, 256, 257, 600, 769, 1030}, rng);
    const uint32_t rows = 1 + rng() % std::min(tokens, 2u);
    World world(shape, tokens, rows, repeat);
    const Split split = RandomSplit(world, shape.num_kv_heads);
    for (const KernelTable* machine : AllMachines()) {
      EXPECT_TRUE(SameBytes(world.Run(*machine, split.tasks, split.rows),
                            world.Run(*machine, world.Whole())))
          << Describe(*machine, shape, tokens, rows);
    }
  }
}

TEST(Attention, SegmentsDoNotShow) {
  std::mt19937 rng(5);
  for (uint32_t repeat = 0; repeat < 10; ++repeat) {
    const Shape shape = RandomShape(rng);
    World world(shape, 600, 3, repeat);
    for (const KernelTable* machine : AllMachines()) {
      World cut = world;
      cut.CutSegments();
      EXPECT_TRUE(SameBytes(cut.Run(*machine, cut.Whole()), world.Run(*machine, world.Whole())))
          << Describe(*machine, shape, 600, 3);
    }
  }
}

// A backend of fixed width reads places that no row sees yet. They are NaN here, and change no bit,
// in whole tasks and in split ones.
TEST(Attention, AWidthChangesNoBit) {
  std::mt19937 rng(77);
  for (uint32_t repeat = 0; repeat < 60; ++repeat) {
    Shape shape = RandomShape(rng);
    shape.window = 0;
    const uint32_t tokens = 40 + rng() % 700;
    const uint32_t rows = 1 + rng() % kFloatTaskRows;
    World world(shape, tokens, rows, repeat);
    const uint32_t live = rows + rng() % (tokens - rows);
    for (uint32_t r = 0; r < rows; ++r) world.rows[r].kv_index = live - rows + r;
    const size_t seen = size_t{live} * shape.num_kv_heads * shape.head_dim;
    std::fill(world.keys.begin() + static_cast<ptrdiff_t>(seen), world.keys.end(), kNaN);
    std::fill(world.values.begin() + static_cast<ptrdiff_t>(seen), world.values.end(), kNaN);
    world.Fill();
    const Split split = RandomSplit(world, shape.num_kv_heads);
    for (const KernelTable* machine : VectorMachines()) {
      world.read_width = 0;
      const auto want = world.Run(*machine, world.Whole());
      for (const uint32_t width : {live, live + 1, (live + tokens) / 2, tokens}) {
        world.read_width = std::min(width, tokens);
        const std::string name = Describe(*machine, shape, tokens, rows);
        EXPECT_TRUE(SameBytes(world.Run(*machine, world.Whole()), want)) << name;
        EXPECT_TRUE(SameBytes(world.Run(*machine, split.tasks, split.rows), want)) << name;
      }
    }
  }
}

// And it is really read: where the places behind lie at no address, the process ends.
TEST(AttentionDeathTest, AWidthIsRead) {
  for (const KvFormat format : kKvFormats) {
    World world({.format = format}, 600, 1, 3);
    world.rows[0].kv_index = 20;
    for (Segment& segment : world.segments) {
      if (segment.first_token > 500) segment.offset_bytes = uint64_t{1} << 60;
    }
    for (const KernelTable* machine : VectorMachines()) {
      world.read_width = 0;
      world.Run(*machine, world.Whole());
      world.read_width = 600;
      EXPECT_DEATH(world.Run(*machine, world.Whole()), "") << machine->name;
    }
  }
}

TEST(Attention, TaskWritesItsOwnHeadsAndRowsOnly) {
  Shape shape;
  shape.num_kv_heads = 3;
  for (const KernelTable* machine : AllMachines()) {
    World world(shape, 40, 3, 6);
    AttentionTask task = world.WholeTask(1, 1);
    task.kv_head_begin = 1;
    task.kv_head_end = 2;
    const auto out = world.Run(*machine, {task});
    const size_t head_bytes = size_t{shape.group} * shape.head_dim * sizeof(float);
    const size_t begin = world.OutStride() + head_bytes;
    for (size_t i = 0; i < out.size(); ++i) {
      if (i < begin || i >= begin + head_bytes) {
        ASSERT_EQ(out[i], kUntouched) << machine->name << " byte " << i;
      }
    }
  }
}

// Where fewer rows are kept than there are, a task says which row of the output is its own.
TEST(Attention, TaskSaysWhereItsRowsGo) {
  for (const KernelTable* machine : AllMachines()) {
    for (const uint32_t split : {kNone32, 0u}) {
      Shape shape;
      World world(shape, 600, 3, 6);
      AttentionTask task = world.WholeTask(1, 1);
      task.split = split;
      const auto run = [&](uint32_t out_row) {
        task.out_begin = out_row;
        return world.Run(*machine, {task}, {{1, out_row, world.NumChunks(), 1, 0}});
      };
      const auto own = run(1);
      const auto moved = run(0);
      const auto stride = static_cast<std::ptrdiff_t>(world.OutStride());
      EXPECT_TRUE(std::equal(moved.begin(), moved.begin() + stride, own.begin() + stride));
      EXPECT_TRUE(std::all_of(moved.begin() + stride, moved.end(),
                              [](std::byte b) { return b == kUntouched; }));
    }
  }
}

TEST(Attention, NaNThatARowSeesReachesItsOutput) {
  for (const KernelTable* machine : AllMachines()) {
    for (KvFormat format : kKvFormats) {
      for (bool in_key : {true, false}) {
        Shape shape;
        shape.format = format;
        World world(shape, 300, 2, 7);
        (in_key ? world.Key(20, 1, 3) : world.Value(20, 1, 3)) = kNaN;
        world.Fill();
        const auto out = world.Run(*machine, world.Whole());
        EXPECT_TRUE(std::isnan(world.HeadOf(out, 1, shape.group)[3])) << machine->name;
        EXPECT_FALSE(std::isnan(world.HeadOf(out, 1, 0)[3])) << "the other KV head is clean";
      }
    }
  }
}

// Magnitudes of tokens, queries and scale from one end of float32 to the other: scores that are not
// finite, weights that are 0; and few tokens that have values, of which the greatest weight may be
// below 2^-100. Tiles of one query and of sixteen.
TEST(Attention, AnyMagnitudesGiveWhatTheReferenceGives) {
  std::mt19937 rng(78);
  const auto magnitude = [&](int most) {
    return rng() % 8 == 0
               ? 0.0f
               : std::pow(10.0f, static_cast<float>(static_cast<int>(rng() % (2 * most)) - most));
  };
  for (uint32_t repeat = 0; repeat < 50; ++repeat) {
    const int most = Pick({1, 1, 4, 15, 38}, rng);
    const uint32_t valued = Pick({1, 60}, rng);  // one of so many
    const Shape shape{.format = KvFormat::kInt8, .window = Pick({0, 0, 40}, rng)};
    const uint32_t rows = Pick({1, 2, 7, kMaxTaskRows}, rng);
    World world(shape, Pick({16, 250, 300, 520}, rng), rows, repeat);
    const size_t width = size_t{shape.num_kv_heads} * shape.head_dim;
    for (size_t at = 0; at < world.keys.size(); at += width) {
      const float k = magnitude(most), v = rng() % valued == 0 ? magnitude(most) : 0.0f;
      for (size_t d = at; d < at + width; ++d) world.keys[d] *= k, world.values[d] *= v;
    }
    world.Fill();
    const float spread = most == 1 ? 300.0f : 1.0f;
    for (float& q : world.queries) q *= magnitude(most / 4 + 1) * spread;
    world.scale = Pick({0, 1}, rng) == 0 ? 0.125f : -magnitude(most);
    const auto want = NaNsAlike(world.Run(ReferenceKernels(), world.Whole()));
    for (const KernelTable* machine : VectorMachines()) {
      EXPECT_TRUE(SameBytes(NaNsAlike(world.Run(*machine, world.Whole())), want))
          << Describe(*machine, shape, 0, rows) << " repeat " << repeat;
    }
  }
}

// All codes at the ends of their range, all weights at theirs: bytes whose sums of products are the
// greatest that a chunk has.
TEST(Attention, GreatestBytesDoNotSaturate) {
  for (const KernelTable* machine : AllMachines()) {
    for (const auto& [head_dim, rows] : {std::pair{64u, 1u}, {256u, 1u}, {64u, 2u}, {256u, 2u}}) {
      for (float sign : {1.0f, -1.0f}) {
        Shape shape;
        shape.format = KvFormat::kInt8;
        shape.head_dim = head_dim;
        World world(shape, 512, rows, 12);
        std::fill(world.queries.begin(), world.queries.end(), 1.0f);
        std::fill(world.keys.begin(), world.keys.end(), 1.5f * sign);
        std::fill(world.values.begin(), world.values.end(), -2.0f * sign);
        world.Fill();
        const auto out = world.Run(*machine, world.Whole());
        for (uint32_t h = 0; h < world.NumHeads(); ++h) {
          for (float y : world.HeadOf(out, 0, h)) {
            EXPECT_NEAR(y, -2.0f * sign, 2e-3) << machine->name << " dim " << head_dim;
          }
        }
      }
    }
  }
}

// Weights are rounded to 14 bits of the greatest: a token that weighs less than half of one is 0,
// and the others are as near as that.
TEST(Attention, SmallWeightsOfAChunkAreRoundedNotLost) {
  Shape shape;
  shape.format = KvFormat::kInt8;
  World world(shape, 256, 1, 13);
  for (uint32_t t = 0; t < 256; ++t) {  // one token of much greater values, seen little
    for (uint32_t d = 0; d < shape.head_dim; ++d) {
      if (t == 100) world.Value(t, 0, d) = 500.0f;
    }
  }
  world.Fill();
  for (const KernelTable* machine : AllMachines()) {
    const auto out = world.Run(*machine, world.Whole());
    const auto want = world.Oracle(0, 0);
    const auto got = world.HeadOf(out, 0, 0);
    for (uint32_t d = 0; d < shape.head_dim; ++d) {
      EXPECT_NEAR(got[d], want[d], 2e-3 * std::max(1.0, std::abs(want[d]))) << machine->name;
    }
  }
}

// "Window of W sees W + 1 tokens": it sees the current token and the W - 1 before it, in every
// path: one row, a tile of rows, split tasks; and also when older pages are gone.
TEST(B078, WindowSeesTheCurrentTokenAndTheOnesJustBefore) {
  constexpr uint32_t kTokens = 300;
  for (const KernelTable* machine : AllMachines()) {
    for (uint32_t window : {1u, 8u, 40u, 260u}) {
      Shape shape;
      shape.format = window == 40 ? KvFormat::kInt8 : KvFormat::kF16;
      shape.window = window;
      World world(shape, kTokens, 4, 8);
      const Split split = RandomSplit(world, shape.num_kv_heads);
      const std::vector<AttentionTask> alone = {world.WholeTask(0, 1), world.WholeTask(1, 1),
                                                world.WholeTask(2, 1), world.WholeTask(3, 1)};
      const auto before = world.Run(*machine, world.Whole());
      for (uint32_t distance : {0u, 6u, 7u, 8u, 9u, window - 1, window, window + 1}) {
        World changed = world;
        const uint32_t token = kTokens - 1 - distance;
        for (uint32_t d = 0; d < shape.head_dim; ++d) changed.Value(token, 0, d) += 5.0f;
        changed.Fill();
        for (const auto& out :
             {changed.Run(*machine, changed.Whole()), changed.Run(*machine, alone),
              changed.Run(*machine, split.tasks, split.rows)}) {
          for (uint32_t r = 0; r < 4; ++r) {
            const bool visible =
                token <= world.rows[r].kv_index && world.rows[r].kv_index - token < window;
            EXPECT_EQ(world.HeadOf(out, r, 0) != world.HeadOf(before, r, 0), visible)
                << machine->name << " window " << window << " distance " << distance << " row "
                << r;
          }
        }
      }
      World trimmed = world;
      trimmed.DropPagesBefore(world.rows[0].kv_index + 1 - window);
      EXPECT_TRUE(SameBytes(trimmed.Run(*machine, trimmed.Whole()), before)) << machine->name;
      EXPECT_TRUE(SameBytes(trimmed.Run(*machine, split.tasks, split.rows), before))
          << machine->name;
    }
  }
}

// "Real but very negative scores give zero": no finite stand-in for minus infinity may be reached.
TEST(B076, VeryNegativeScoresAreANormalSoftmax) {
  for (const KernelTable* machine : AllMachines()) {
    for (KvFormat format : kKvFormats) {
      Shape shape;
      shape.format = format;
      World world(shape, 270, 2, 9);
      for (uint32_t h = 0; h < shape.num_kv_heads; ++h) {
        for (uint32_t t = 0; t < 270; ++t) {
          for (uint32_t d = 0; d < shape.head_dim; ++d) {
            world.Key(t, h, d) = d == 0 ? -1000.0f : d == 1 ? static_cast<float>(t % 3) : 0.0f;
          }
        }
      }
      world.Fill();
      for (uint32_t r = 0; r < 2; ++r) {
        for (uint32_t h = 0; h < world.NumHeads(); ++h) {
          world.queries[r * world.QueryStride() + h * shape.head_dim] = 400.0f;
          world.queries[r * world.QueryStride() + h * shape.head_dim + 1] = 1.0f;
        }
      }
      const auto out = world.Run(*machine, world.Whole());
      for (uint32_t h = 0; h < world.NumHeads(); ++h) {
        const auto got = world.HeadOf(out, 1, h);
        const auto want = world.Oracle(1, h);
        // Scores near -1e5 have steps of 1/128 in float: p is that near to the truth, no nearer.
        for (uint32_t d = 0; d < shape.head_dim; ++d) {
          EXPECT_NEAR(got[d], want[d], 0.02) << machine->name;
        }
      }
    }
  }
}

TEST(B076, RowThatSeesNothingGivesExactZeros) {
  for (const KernelTable* machine : AllMachines()) {
    for (ActivationKind kind : {ActivationKind::kFloat, ActivationKind::kInt8}) {
      Shape shape;
      shape.kind = kind;
      shape.window = 8;
      World world(shape, 600, 1, 10);
      AttentionTask none = world.WholeTask(0, 1);
      none.chunk_end = 0;
      AttentionTask too_old = world.WholeTask(0, 1);  // the window lies in chunk 2
      too_old.chunk_end = 2;
      const std::vector<SplitRow> splits = {{0, 0, 2, 2, 0}};
      AttentionTask first = too_old;
      first.split = 0;
      first.chunk_end = 1;
      AttentionTask second = first;
      second.chunk_begin = 1;
      second.chunk_end = 2;
      for (const auto& out : {world.Run(*machine, {none}), world.Run(*machine, {too_old}),
                              world.Run(*machine, {first, second}, splits)}) {
        const ActivationLayout layout{world.Width()};
        const size_t used = kind == ActivationKind::kFloat
                                ? world.Width() * sizeof(float)
                                : layout.offset_offset() + layout.groups() * sizeof(int32_t);
        for (size_t i = 0; i < used; ++i) ASSERT_EQ(out[i], std::byte{0}) << machine->name;
      }
    }
  }
}

// A part of a split that holds no visible token has no say in the whole.
TEST(B076, EmptyPartOfASplitHasNoEffect) {
  for (const KernelTable* machine : AllMachines()) {
    Shape shape;
    shape.window = 100;
    World world(shape, 600, 1, 11);  // visible: 500..599, chunks 1 and 2 of 0..2
    std::vector<AttentionTask> tasks;
    for (uint32_t chunk : {1u, 0u, 2u}) {
      AttentionTask task = world.WholeTask(0, 1);
      task.chunk_begin = chunk;
      task.chunk_end = chunk + 1;
      task.split = 0;
      tasks.push_back(task);
    }
    const auto want = world.Run(*machine, world.Whole());
    EXPECT_TRUE(SameBytes(world.Run(*machine, tasks, {{0, 0, 3, 3, 0}}), want)) << machine->name;
    tasks.erase(tasks.begin() + 1);  // chunk 0 may as well have no task
    EXPECT_TRUE(SameBytes(world.Run(*machine, tasks, {{0, 0, 3, 2, 0}}), want)) << machine->name;
  }
}

}  // namespace
}  // namespace kvrm::ops
