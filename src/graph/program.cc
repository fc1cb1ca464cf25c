#include "graph/program.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "base/check.h"
#include "tensor/encoding.h"

namespace kvrm {
namespace {

constexpr uint64_t kAlign = 64;

uint64_t AlignUp(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

uint64_t RowBytes(const Value& value, bool integer_activations) {
  if (value.kind == ValueKind::kActivationRows && integer_activations) {
    return AlignUp(ActivationLayout{value.width}.row_bytes());
  }
  return AlignUp(uint64_t{value.width} * sizeof(float));
}

uint64_t ValueBytes(const Value& value, const ProgramCapacity& capacity) {
  const uint32_t rows = value.rows == RowSet::kLive ? capacity.max_rows : capacity.max_logits;
  return value.row_bytes * rows;
}

// First and last op that touches a value; empty when first > last.
struct LiveRange {
  uint32_t first = 0xFFFF'FFFFu;
  uint32_t last = 0;
};

template <class Fn>
void ForEachUse(const Op& op, Fn&& fn) {
  if (op.in != kNoValue) fn(op.in);
  if (op.add != kNoValue) fn(op.add);
  if (op.out != kNoValue) fn(op.out);
}

std::vector<LiveRange> LiveRanges(const std::vector<Value>& values, const std::vector<Op>& ops) {
  std::vector<LiveRange> ranges(values.size());
  for (uint32_t i = 0; i < ops.size(); ++i) {
    ForEachUse(ops[i], [&](ValueIdx v) {
      KVRM_CHECK(v < ranges.size(), "I1: an op names a value of its graph");
      ranges[v].first = std::min(ranges[v].first, i);
      ranges[v].last = std::max(ranges[v].last, i);
    });
  }
  // What the step leaves behind lives to the end.
  if (!ops.empty() && ops.back().out != kNoValue) {
    ranges[ops.back().out].last = static_cast<uint32_t>(ops.size());
  }
  return ranges;
}

bool Overlap(const LiveRange& a, const LiveRange& b) {
  return a.first <= b.last && b.first <= a.last;
}

// The lowest offset at which `bytes` fit beside the placed values that live at the same time.
uint64_t FirstFit(std::vector<std::pair<uint64_t, uint64_t>> busy, uint64_t bytes) {
  std::sort(busy.begin(), busy.end());
  uint64_t at = 0;
  for (const auto& [begin, end] : busy) {
    if (at + bytes <= begin) break;
    at = std::max(at, end);
  }
  return at;
}

std::string Line(const char* format, auto... args) {
  char buffer[256];
  std::snprintf(buffer, sizeof(buffer), format, args...);
  return buffer;
}

}  // namespace

const char* OpName(OpKind kind) {
  switch (kind) {
    case OpKind::kEmbed:
      return "embed";
    case OpKind::kNorm:
      return "norm";
    case OpKind::kLinear:
      return "linear";
    case OpKind::kRopeWrite:
      return "rope_write";
    case OpKind::kAttention:
      return "attention";
    case OpKind::kHead:
      return "head";
    case OpKind::kHeadNorm:
      return "head_norm";
    case OpKind::kGatedLinear:
      return "gated_linear";
  }
  return "unknown";
}

Program PlanProgram(const Graph& graph, const ProgramCapacity& capacity) {
  KVRM_CHECK(capacity.max_rows > 0 && capacity.max_logits > 0, "I1: a program has capacity");
  Program program{capacity, graph.integer_activations, graph.values, graph.ops, 0};
  const std::vector<LiveRange> ranges = LiveRanges(program.values, program.ops);
  std::vector<uint32_t> order(program.values.size());
  for (uint32_t i = 0; i < order.size(); ++i) {
    order[i] = i;
    program.values[i].row_bytes = RowBytes(program.values[i], program.integer_activations);
  }
  // Large values first: they leave the fewest holes.
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const uint64_t x = ValueBytes(program.values[a], capacity);
    const uint64_t y = ValueBytes(program.values[b], capacity);
    return x != y ? x > y : a < b;
  });
  std::vector<uint32_t> placed;
  for (const uint32_t v : order) {
    std::vector<std::pair<uint64_t, uint64_t>> busy;
    for (const uint32_t other : placed) {
      if (!Overlap(ranges[v], ranges[other])) continue;
      const Value& value = program.values[other];
      busy.emplace_back(value.offset, value.offset + ValueBytes(value, capacity));
    }
    const uint64_t bytes = ValueBytes(program.values[v], capacity);
    program.values[v].offset = FirstFit(std::move(busy), bytes);
    program.arena_bytes = std::max(program.arena_bytes, program.values[v].offset + bytes);
    placed.push_back(v);
  }
  return program;
}

std::vector<std::string> ValidateProgram(const Program& program) {
  std::vector<std::string> violations;
  const std::vector<LiveRange> ranges = LiveRanges(program.values, program.ops);
  std::vector<bool> written(program.values.size(), false);
  for (uint32_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    for (const ValueIdx v : {op.in, op.add}) {
      if (v == kNoValue) continue;
      if (!written[v]) {
        violations.push_back(Line("I1: op %u (%s) reads %s before it is written", i,
                                  OpName(op.kind), program.values[v].name.c_str()));
      }
      if (program.values[v].rows != op.rows &&
          !(v == op.add ? op.CanGatherAdd() : op.CanGatherIn())) {
        violations.push_back(Line("I1: op %u (%s) and its input %s run over different rows", i,
                                  OpName(op.kind), program.values[v].name.c_str()));
      }
    }
    if (op.out == kNoValue) continue;
    written[op.out] = true;
    if (program.values[op.out].rows != op.rows) {
      violations.push_back(Line("I1: op %u (%s) and its output %s run over different rows", i,
                                OpName(op.kind), program.values[op.out].name.c_str()));
    }
  }
  for (uint32_t a = 0; a < program.values.size(); ++a) {
    const Value& x = program.values[a];
    if (x.row_bytes % kAlign != 0 || x.offset % kAlign != 0) {
      violations.push_back(Line("I1: value %s is not aligned to 64 bytes", x.name.c_str()));
    }
    for (uint32_t b = a + 1; b < program.values.size(); ++b) {
      const Value& y = program.values[b];
      const bool share = x.offset < y.offset + ValueBytes(y, program.capacity) &&
                         y.offset < x.offset + ValueBytes(x, program.capacity);
      if (share && Overlap(ranges[a], ranges[b])) {
        violations.push_back(Line("I1: values %s and %s live at once and share bytes",
                                  x.name.c_str(), y.name.c_str()));
      }
    }
  }
  return violations;
}

std::string DumpProgram(const Program& program) {
  std::string text =
      Line("program rows=%u logits=%u ops=%zu arena_bytes=%" PRIu64 "\n", program.capacity.max_rows,
           program.capacity.max_logits, program.ops.size(), program.arena_bytes);
  const auto name = [&](ValueIdx v) {
    if (v == kNoValue) return std::string("-");
    const Value& value = program.values[v];
    return value.name + Line("@%" PRIu64 "x%" PRIu64, value.offset, value.row_bytes);
  };
  for (uint32_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    text +=
        Line("%4u %-10s layer=%d rows=%s", i, OpName(op.kind), op.layer == kNoLayer ? -1 : op.layer,
             op.rows == RowSet::kLive ? "live" : "logits");
    text += " in=" + name(op.in) + " add=" + name(op.add) + " out=" + name(op.out) + "\n";
  }
  return text;
}

}  // namespace kvrm
