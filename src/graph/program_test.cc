#include "graph/program.h"

#include <gtest/gtest.h>

namespace kvrm {
namespace {

// x -> norm -> h -> linear -> y -> activation -> a -> linear (+ x) -> x -> norm -> l -> head ->
// logits
Graph SmallGraph() {
  Graph graph;
  graph.values = {{"x", ValueKind::kFloatRows, RowSet::kLive, 64},
                  {"h", ValueKind::kActivationRows, RowSet::kLive, 64},
                  {"y", ValueKind::kFloatRows, RowSet::kLive, 256},
                  {"a", ValueKind::kActivationRows, RowSet::kLive, 128},
                  {"l", ValueKind::kActivationRows, RowSet::kLogits, 64},
                  {"logits", ValueKind::kFloatRows, RowSet::kLogits, 512}};
  const auto op = [](OpKind kind, RowSet rows, ValueIdx in, ValueIdx add, ValueIdx out) {
    Op o;
    o.kind = kind;
    o.rows = rows;
    o.in = in;
    o.add = add;
    o.out = out;
    return o;
  };
  graph.ops = {op(OpKind::kEmbed, RowSet::kLive, kNoValue, kNoValue, 0),
               op(OpKind::kNorm, RowSet::kLive, 0, kNoValue, 1),
               op(OpKind::kLinear, RowSet::kLive, 1, kNoValue, 2),
               op(OpKind::kActivation, RowSet::kLive, 2, kNoValue, 3),
               op(OpKind::kLinear, RowSet::kLive, 3, 0, 0),
               op(OpKind::kNorm, RowSet::kLogits, 0, kNoValue, 4),
               op(OpKind::kHead, RowSet::kLogits, 4, kNoValue, 5)};
  return graph;
}

TEST(Program, PlannedProgramIsSound) {
  const Program program = PlanProgram(SmallGraph(), {8, 4});
  EXPECT_TRUE(ValidateProgram(program).empty());
  EXPECT_EQ(program.values[0].row_bytes, 256u);
}

TEST(Program, ValuesThatDoNotLiveTogetherShareBytes) {
  const Program program = PlanProgram(SmallGraph(), {8, 4});
  uint64_t sum = 0;
  for (const Value& value : program.values) {
    sum += value.row_bytes * (value.rows == RowSet::kLive ? 8 : 4);
  }
  EXPECT_LT(program.arena_bytes, sum);
}

TEST(Program, ValidatorFindsSharedBytes) {
  Program program = PlanProgram(SmallGraph(), {8, 4});
  program.values[1].offset = program.values[0].offset;  // h over x, both live at the norm
  EXPECT_FALSE(ValidateProgram(program).empty());
}

TEST(Program, ValidatorFindsReadBeforeWrite) {
  Program program = PlanProgram(SmallGraph(), {8, 4});
  program.ops.erase(program.ops.begin() + 1);  // the norm that writes h
  EXPECT_FALSE(ValidateProgram(program).empty());
}

TEST(Program, ValidatorFindsDisagreeingRowSets) {
  Program program = PlanProgram(SmallGraph(), {8, 4});
  program.ops[5].rows = RowSet::kLive;
  EXPECT_FALSE(ValidateProgram(program).empty());
}

TEST(Program, PlanningIsDeterministic) {
  EXPECT_EQ(DumpProgram(PlanProgram(SmallGraph(), {8, 4})),
            DumpProgram(PlanProgram(SmallGraph(), {8, 4})));
}

}  // namespace
}  // namespace kvrm
