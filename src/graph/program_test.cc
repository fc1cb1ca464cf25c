#include "graph/program.h"

#include <gtest/gtest.h>

namespace kvrm {
namespace {

// x -> norm -> h -> linear -> y -> norm -> a -> linear (+ x) -> x -> norm -> l -> head -> logits
Graph SmallGraph() {
  Graph graph;
  graph.values = {{"x", ValueKind::kFloatRows, RowSet::kLive, 64},
                  {"h", ValueKind::kActivationRows, RowSet::kLive, 64},
                  {"y", ValueKind::kFloatRows, RowSet::kLive, 256},
                  {"a", ValueKind::kActivationRows, RowSet::kLive, 256},
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
               op(OpKind::kNorm, RowSet::kLive, 2, kNoValue, 3),
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

// Rows are found by an index where they are fewer than those of an input, and nowhere else.
TEST(Program, ValidatorFindsInputsOfOtherRows) {
  const auto violations = [](const Graph& graph) {
    return ValidateProgram(PlanProgram(graph, {8, 4}));
  };
  Graph wide_head = SmallGraph();
  wide_head.ops[6].in = 1;  // h has all rows, and a head gathers none
  EXPECT_EQ(violations(wide_head).size(), 1u);
  Graph narrow_input = SmallGraph();
  narrow_input.ops.push_back(narrow_input.ops[4]);  // over all rows, from those with logits
  narrow_input.ops.back().in = 4;
  EXPECT_EQ(violations(narrow_input).size(), 1u);
  Graph gathered = SmallGraph();
  gathered.values.push_back({"z", ValueKind::kFloatRows, RowSet::kLogits, 64});
  Op op = gathered.ops[4];  // z = linear(l) + the rows of x with logits
  op.rows = RowSet::kLogits;
  op.in = 4;
  op.out = 6;
  gathered.ops.push_back(op);
  EXPECT_EQ(violations(gathered), std::vector<std::string>{});
}

TEST(Program, PlanningIsDeterministic) {
  EXPECT_EQ(DumpProgram(PlanProgram(SmallGraph(), {8, 4})),
            DumpProgram(PlanProgram(SmallGraph(), {8, 4})));
}

}  // namespace
}  // namespace kvrm
