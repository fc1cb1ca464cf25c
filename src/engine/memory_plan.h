// How the memory of a run is shared out before anything is allocated: pure arithmetic over what the
// model needs, what the user asked for and what the process may use.
#pragma once

#include <cstdint>

#include "base/kv_view.h"
#include "base/result.h"

namespace kvrm {

struct MemoryRequest {
  uint64_t limit_bytes = 0;   // what this process may use
  uint64_t weight_bytes = 0;  // of the model, re-laid
  uint64_t kv_bytes = 0;      // asked for; 0 = a quarter of the limit
  uint32_t ctx = 0;           // asked for; 0 = the model's, capped at what fits
  uint32_t model_context = 0;
};
struct MemoryPlan {
  uint64_t kv_bytes = 0;
  uint64_t kv_tokens = 0;  // token places of the pool
  uint32_t ctx = 0;        // longest sequence
};

// Errors: a pool below one superblock a group, a context above the model's or above the pool,
// weights and pool together above the limit; with the arithmetic.
Result<MemoryPlan> PlanMemory(const KvGeometry& geometry, const MemoryRequest& request);

}  // namespace kvrm
