// Static programs: a model's step as a plain list of ops over buffers of fixed capacity.
//
// A *graph* is what a family's builder writes (model/families/): values and ops in order, no
// sizes in rows. A *program* is a graph planned for given row capacities: every value has a place
// in one arena, and nothing about it changes afterwards (law I1). Live counts are data.
//
// No op spans two layers, or more than one of {norm, linear, rope + KV write, attention, head}: an
// Op has one kind and one layer, so that it can say no more. Gates belong to the linear whose
// outputs they are.
//
// Plain data; thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace kvrm {

// Frozen: they stand in replay hashes and dumps.
enum class OpKind : uint16_t {
  kEmbed = 0,
  kNorm = 1,
  kLinear = 2,
  kRopeWrite = 3,
  kAttention = 4,
  kHead = 6,
  kHeadNorm = 7,
  kGatedLinear = 8,
};
const char* OpName(OpKind kind);

// Which rows of a step an op runs over.
enum class RowSet : uint8_t {
  kLive,    // every row
  kLogits,  // the rows whose logits are wanted
};

enum class ValueKind : uint8_t {
  kFloatRows,       // float32 [rows, width]
  kActivationRows,  // what a linear reads: float32 or int8 groups of 32 (tensor/encoding.h)
};

// Weights that an op names; the executor resolves them.
enum class WeightRole : uint8_t {
  kNone,
  kEmbedding,
  kAttnNorm,
  kQkv,
  kHeadNorms,  // of queries, of keys
  kAttnOut,
  kPostAttnNorm,
  kFfnNorm,
  kGateUp,
  kDown,
  kPostFfnNorm,
  kOutputNorm,
  kHead,
};

// How a rope op rotates.
enum class RopeKind : uint8_t {
  kGlobal,  // by the model's frequencies
  kLocal,   // by those of its sliding layers
  kNone,    // not at all
};

// What a gated linear does to the gate.
enum class Gating : uint8_t { kSilu, kGeluTanh };

using ValueIdx = uint32_t;
inline constexpr ValueIdx kNoValue = 0xFFFF'FFFFu;
inline constexpr uint16_t kNoLayer = 0xFFFF;

struct Value {
  std::string name;
  ValueKind kind = ValueKind::kFloatRows;
  RowSet rows = RowSet::kLive;
  uint32_t width = 0;  // values of a row
  // Planned:
  uint64_t row_bytes = 0;  // a multiple of 64
  uint64_t offset = 0;     // within the arena, a multiple of 64
};

struct Op {
  OpKind kind = OpKind::kEmbed;
  uint16_t layer = kNoLayer;
  RowSet rows = RowSet::kLive;
  WeightRole weight = WeightRole::kNone;
  uint8_t kv_group = 0;  // of rope + KV write and attention
  uint16_t kv_part = 0;  // part of the page within that group
  ValueIdx in = kNoValue;
  ValueIdx add = kNoValue;  // kLinear, kNorm of floats: added (a residual); may equal `out`
  ValueIdx out = kNoValue;  // kRopeWrite, kHeadNorm: equal to `in`, worked on in place
  // Parameters that belong to the layer or the model, not to the layout.
  float scale = 1;                    // kEmbed
  Gating gating = Gating::kSilu;      // kGatedLinear
  RopeKind rope = RopeKind::kGlobal;  // kRopeWrite
  float soft_cap = 0;                 // kAttention, kHead
  uint32_t window = 0;
  bool sinks = false;        // a learnt logit per head joins the softmax; no executor offers it yet
  bool chunk_stats = false;  // (m, l) of each chunk as an output; no executor offers it yet

  // Whether an op over the rows with logits finds them in an input that has every row.
  bool CanGatherIn() const {
    return rows == RowSet::kLogits && (kind == OpKind::kNorm || kind == OpKind::kAttention);
  }
  bool CanGatherAdd() const {
    return rows == RowSet::kLogits && (kind == OpKind::kNorm || kind == OpKind::kLinear);
  }
};

struct Graph {
  bool integer_activations = true;
  std::vector<Value> values;
  std::vector<Op> ops;
};

struct ProgramCapacity {
  uint32_t max_rows = 0;
  uint32_t max_logits = 0;
};

struct Program {
  ProgramCapacity capacity;
  bool integer_activations = true;
  std::vector<Value> values;
  std::vector<Op> ops;
  uint64_t arena_bytes = 0;
};

// Plans `graph`: row strides, then arena offsets by first fit over live ranges (a value lives from
// the op that first writes it to the op that last touches it). Requires: a well-formed graph.
Program PlanProgram(const Graph& graph, const ProgramCapacity& capacity);

// Every violation, one line each; empty = sound: values read before written, live ranges that share
// bytes, ops whose row sets disagree with their values, rows not a multiple of 64 bytes. Pure.
std::vector<std::string> ValidateProgram(const Program& program);

// One op a line: index, kind, layer, buffers with offset and capacity.
std::string DumpProgram(const Program& program);

}  // namespace kvrm
