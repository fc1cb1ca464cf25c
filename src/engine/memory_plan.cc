#include "engine/memory_plan.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>

namespace kvrm {
namespace {

// "512.0 MiB (536870912 bytes)": both what people read and what they can compute with.
std::string Size(uint64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  char text[64];
  std::snprintf(text, sizeof(text), "%.1f %s (%llu bytes)", value, kUnits[unit],
                static_cast<unsigned long long>(bytes));
  return text;
}

// Token places of a pool: its superblocks shared evenly, less each group's null page.
uint64_t TokensOf(const KvGeometry& geometry, uint64_t kv_bytes) {
  uint64_t superblock_bytes = 0;
  for (const KvGroupGeometry& group : geometry.groups) superblock_bytes += group.superblock_bytes;
  const uint64_t rounds = kv_bytes / superblock_bytes;
  uint64_t tokens = std::numeric_limits<uint64_t>::max();
  for (const KvGroupGeometry& group : geometry.groups) {
    const uint64_t pages = rounds * group.pages_per_superblock;
    tokens = std::min(tokens, pages == 0 ? 0 : (pages - 1) * group.page_tokens);
  }
  return tokens;
}

}  // namespace

Result<MemoryPlan> PlanMemory(const KvGeometry& geometry, const MemoryRequest& request) {
  MemoryPlan plan;
  plan.kv_bytes = request.kv_bytes > 0 ? request.kv_bytes : request.limit_bytes / 4;
  plan.kv_tokens = TokensOf(geometry, plan.kv_bytes);
  if (request.weight_bytes > request.limit_bytes ||
      plan.kv_bytes > request.limit_bytes - request.weight_bytes) {
    return NoRoom("memory: the weights need " + Size(request.weight_bytes) + " and kv_bytes is " +
                  Size(plan.kv_bytes) + ", but this process may use " + Size(request.limit_bytes) +
                  " in all");
  }
  if (plan.kv_tokens < 2) {
    uint64_t least = 0;
    for (const KvGroupGeometry& group : geometry.groups) least += group.superblock_bytes;
    return NoRoom("kv_bytes is " + Size(plan.kv_bytes) + ", which holds " +
                  std::to_string(plan.kv_tokens) + " tokens; one superblock is " + Size(least));
  }
  if (request.ctx > request.model_context) {
    return InvalidInput("ctx is " + std::to_string(request.ctx) + ", but the model's context is " +
                        std::to_string(request.model_context));
  }
  if (request.ctx > plan.kv_tokens) {
    return NoRoom("ctx is " + std::to_string(request.ctx) + " tokens of " +
                  std::to_string(geometry.bytes_per_token()) + " bytes, but kv_bytes is " +
                  Size(plan.kv_bytes) + ", which holds " + std::to_string(plan.kv_tokens) +
                  " tokens");
  }
  if (request.ctx == 1) return InvalidInput("ctx is 1, but must be at least 2");
  plan.ctx = request.ctx > 0
                 ? request.ctx
                 : static_cast<uint32_t>(std::min<uint64_t>(request.model_context, plan.kv_tokens));
  return plan;
}

}  // namespace kvrm
