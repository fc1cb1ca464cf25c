// The llama family as a graph: one short builder a family (docs/architecture.md, section 4).
#pragma once

#include "base/kv_view.h"
#include "graph/program.h"
#include "model/config.h"

namespace kvrm {

// The ops of one step. `integer_activations`: what linears read is int8 groups of 32, else float32.
// Requires: `config` and `geometry` agree (ReadConfig, KvGeometryOf).
Graph BuildLlamaGraph(const ModelConfig& config, const KvGeometry& geometry,
                      bool integer_activations);

}  // namespace kvrm
