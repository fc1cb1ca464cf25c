// What the CPU executor will take, before it is made: the arithmetic of its buffers. Pure.
#pragma once

#include <cstdint>

#include "exec/cpu_executor.h"
#include "exec/step_tables.h"
#include "model/config.h"
#include "ops/op_args.h"

namespace kvrm {

ops::ScratchNeed ScratchNeedOf(const ModelConfig& model);

// Bytes of the vectors of a StepTables of this shape.
uint64_t StepTablesBytes(const StepTablesConfig& config);

// Bytes that CreateCpuExecutor touches beside weights and KV: activations and logits, programs, cos
// and sin tables, panel maxima, scratch of `num_threads` workers, step tables.
// `integer_activations`: the weights' encoding is not f32. Requires: `config.geometry` is the
// model's.
uint64_t CpuExecutorBytes(const ModelConfig& model, const CpuExecutorConfig& config,
                          uint32_t num_threads, bool integer_activations);

}  // namespace kvrm
