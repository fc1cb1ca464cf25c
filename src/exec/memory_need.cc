#include "exec/memory_need.h"

#include <algorithm>

#include "exec/bound_program.h"
#include "exec/executor.h"
#include "graph/program.h"
#include "model/family.h"
#include "ops/op_args.h"

namespace kvrm {
namespace {

// As Arena::Create rounds.
uint64_t ArenaBytes(uint64_t bytes) {
  constexpr uint64_t kRoundedTo = uint64_t{2} << 20;
  const uint64_t unit = bytes >= kRoundedTo ? kRoundedTo : 4096;
  return (bytes + unit - 1) / unit * unit;
}

// Activations and logits share one arena, as large as the widest program; each program's ops have
// pages of their own.
uint64_t ProgramBytes(const ModelConfig& model, const CpuExecutorConfig& config,
                      bool integer_activations) {
  const Graph graph = BuildGraph(model, config.geometry, integer_activations);
  uint64_t activations = 0, ops = 0;
  for (const uint32_t prompt_rows : {0u, config.mixed_rows, config.prefill_rows}) {
    const Program program =
        PlanProgram(graph, {config.max_slots + prompt_rows, /*max_logits=*/config.max_slots});
    activations = std::max(activations, program.arena_bytes);
    ops += ArenaBytes(program.ops.size() * sizeof(BoundOp));
    if (config.exact_shapes && prompt_rows == 0) {
      ops += ArenaBytes(program.ops.size() * sizeof(BoundOp));  // one more, bound anew each step
    }
  }
  return ArenaBytes(activations) + ops;
}

}  // namespace

ops::ScratchNeed ScratchNeedOf(const ModelConfig& model) {
  return {.num_heads = model.num_heads,
          .num_kv_heads = model.num_kv_heads,
          .head_dim = model.head_dim,
          .max_k = std::max({model.hidden, model.ffn, model.num_heads * model.head_dim})};
}

uint64_t StepTablesBytes(const StepTablesConfig& config) {
  const uint64_t max_chunks = (config.max_seq_tokens + ops::kChunkTokens - 1) / ops::kChunkTokens;
  const uint64_t split_rows = std::min<uint64_t>(32, uint64_t{4} * config.num_threads);
  const auto task_list = [&](uint64_t rows) {
    const uint64_t tasks = (rows + split_rows * max_chunks) * config.num_kv_heads;
    return tasks * sizeof(ops::AttentionTask) + split_rows * sizeof(ops::SplitRow);
  };
  const uint64_t group = config.max_rows * sizeof(uint64_t) + config.max_slots * sizeof(uint32_t) +
                         task_list(config.max_rows);
  const uint64_t partial_floats =
      split_rows * max_chunks * config.num_heads * (config.head_dim + 2);
  return group * config.geometry.groups.size() + task_list(config.max_logits) +
         config.max_logits * sizeof(uint32_t) + config.max_rows * (1 + sizeof(Row)) +
         split_rows * sizeof(uint32_t) + partial_floats * sizeof(float);
}

uint64_t CpuExecutorBytes(const ModelConfig& model, const CpuExecutorConfig& config,
                          uint32_t num_threads, bool integer_activations) {
  StepTablesConfig step;
  step.geometry = config.geometry;
  step.max_rows = config.max_slots + config.prefill_rows;
  step.max_logits = config.max_slots;
  step.max_slots = config.max_slots;
  step.max_seq_tokens = config.max_seq_tokens;
  step.num_threads = num_threads;
  step.num_heads = model.num_heads;
  step.num_kv_heads = model.num_kv_heads;
  step.head_dim = model.head_dim;
  const uint64_t rope_floats =
      uint64_t{config.max_seq_tokens} * (model.rope_dims / 2) * (model.UsesLocalRope() ? 4 : 2);
  const uint64_t panel_floats = uint64_t{config.max_slots} * ((model.vocab + 255) / 256);
  const uint64_t scratch = ops::ScratchBytes(ScratchNeedOf(model));
  return ProgramBytes(model, config, integer_activations) +
         ArenaBytes((rope_floats + panel_floats) * sizeof(float)) +
         ArenaBytes(scratch * num_threads) + StepTablesBytes(step);
}

}  // namespace kvrm
