// How the memory of a run is shared out before anything is allocated: pure arithmetic over what the
// model needs, what the user asked for and what the process may use.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/kv_view.h"
#include "base/result.h"

namespace kvrm {

struct MemoryPlan {
  uint64_t kv_bytes = 0;
  uint64_t kv_tokens = 0;     // token places of the pool
  uint64_t buffer_bytes = 0;  // beside weights and KV
  uint32_t ctx = 0;           // longest sequence
};
struct MemoryRequest {
  uint64_t limit_bytes = 0;   // what this process may use
  uint64_t weight_bytes = 0;  // of the model, re-laid
  uint64_t kv_bytes = 0;      // asked for; 0 = a quarter of the limit
  uint32_t ctx = 0;           // asked for; 0 = the model's, capped at what fits
  uint32_t model_context = 0;
  uint32_t step_tokens = 0;  // most that one sequence gains in a step; sliding groups hold them
  uint32_t slot_runs = 0;    // sequences that are reserved at ctx each, from start on; 0 = none is
  // What else a run with the plan's kv_bytes and ctx takes; empty = nothing.
  std::function<uint64_t(const MemoryPlan&)> buffer_bytes;
};

// Errors: a pool below one superblock a group, a context above the model's or above the pool (with
// slot_runs: above a slot's share of it), weights, pool and buffers together above the limit; with
// the arithmetic.
Result<MemoryPlan> PlanMemory(const KvGeometry& geometry, const MemoryRequest& request);

struct ControlPlaneShape {
  uint32_t max_slots = 0;
  uint32_t max_rows = 0;  // of the widest program
  uint32_t vocab = 0;
};
// What pager, frame builder, sampler and running requests take beside the KV pages.
uint64_t ControlPlaneBytes(const KvGeometry& geometry, const MemoryPlan& plan,
                           const ControlPlaneShape& shape);

// "512.0 MiB (536870912 bytes)": both what people read and what they can compute with.
std::string SizeText(uint64_t bytes);

}  // namespace kvrm
