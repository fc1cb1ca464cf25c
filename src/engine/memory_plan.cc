#include "engine/memory_plan.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>

namespace kvrm {
namespace {

// The longest sequence of a pool of its own: in each group whole superblocks for its pages and the
// null page.
uint64_t TokensOf(const KvGeometry& geometry, uint64_t kv_bytes, uint32_t step_tokens) {
  const auto bytes_for = [&](uint64_t tokens) {
    uint64_t bytes = 0;
    for (const KvGroupGeometry& group : geometry.groups) {
      const uint64_t pages = group.MostPages(tokens, step_tokens) + /*null page*/ 1;
      const uint64_t per = group.pages_per_superblock;
      bytes += (pages + per - 1) / per * group.superblock_bytes;
    }
    return bytes;
  };
  uint64_t fits = 0, too_many = uint64_t{std::numeric_limits<uint32_t>::max()} + 1;
  while (fits + 1 < too_many) {
    const uint64_t middle = fits + (too_many - fits) / 2;
    (bytes_for(middle) <= kv_bytes ? fits : too_many) = middle;
  }
  return fits;
}

// The longest sequence of which the pool holds `slots`, in whole pages of each group.
uint64_t ShareOf(const KvGeometry& geometry, uint64_t kv_tokens, uint32_t slots) {
  uint64_t share = kv_tokens;
  for (const KvGroupGeometry& group : geometry.groups) {
    const uint64_t pages = kv_tokens / group.page_tokens / slots;
    share = std::min(share, pages * group.page_tokens);
  }
  return share;
}

Error RefuseSlotRuns(const KvGeometry& geometry, const MemoryRequest& request,
                     const MemoryPlan& plan, uint64_t share) {
  const uint64_t ctx = std::max(request.ctx, 2u);
  const uint64_t bytes = request.slot_runs * ctx * geometry.bytes_per_token();
  return NoRoom("slots x ctx: " + std::to_string(request.slot_runs) + " x " + std::to_string(ctx) +
                " tokens of " + std::to_string(geometry.bytes_per_token()) +
                " bytes are reserved at start, " + SizeText(bytes) + ", but kv_bytes is " +
                SizeText(plan.kv_bytes) + ": a ctx of at most " + std::to_string(share) +
                " with so many slots, or " + std::to_string(plan.kv_tokens / ctx) +
                " slots with such a ctx");
}

}  // namespace

std::string SizeText(uint64_t bytes) {
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

Result<MemoryPlan> PlanMemory(const KvGeometry& geometry, const MemoryRequest& request) {
  MemoryPlan plan;
  plan.kv_bytes = request.kv_bytes > 0 ? request.kv_bytes : request.limit_bytes / 4;
  // A slot run is gained in one step, so that no window keeps it short.
  plan.kv_tokens = TokensOf(geometry, plan.kv_bytes,
                            request.slot_runs > 0 ? request.model_context : request.step_tokens);
  if (request.weight_bytes > request.limit_bytes ||
      plan.kv_bytes > request.limit_bytes - request.weight_bytes) {
    return NoRoom("memory: the weights need " + SizeText(request.weight_bytes) +
                  " and kv_bytes is " + SizeText(plan.kv_bytes) + ", but this process may use " +
                  SizeText(request.limit_bytes) + " in all");
  }
  if (plan.kv_tokens < 2) {
    uint64_t least = 0;
    for (const KvGroupGeometry& group : geometry.groups) least += group.superblock_bytes;
    return NoRoom("kv_bytes is " + SizeText(plan.kv_bytes) + ", which holds " +
                  std::to_string(plan.kv_tokens) + " tokens; one superblock is " + SizeText(least));
  }
  if (request.ctx > request.model_context) {
    return InvalidInput("ctx is " + std::to_string(request.ctx) + ", but the model's context is " +
                        std::to_string(request.model_context));
  }
  if (request.ctx > plan.kv_tokens) {
    return NoRoom("ctx is " + std::to_string(request.ctx) + " tokens of " +
                  std::to_string(geometry.bytes_per_token()) + " bytes, but kv_bytes is " +
                  SizeText(plan.kv_bytes) + ", which holds " + std::to_string(plan.kv_tokens) +
                  " tokens");
  }
  if (request.ctx == 1) return InvalidInput("ctx is 1, but must be at least 2");
  const uint64_t most =
      request.slot_runs > 0 ? ShareOf(geometry, plan.kv_tokens, request.slot_runs) : plan.kv_tokens;
  if (most < std::max(request.ctx, 2u)) return RefuseSlotRuns(geometry, request, plan, most);
  plan.ctx = request.ctx > 0
                 ? request.ctx
                 : static_cast<uint32_t>(std::min<uint64_t>(request.model_context, most));
  plan.buffer_bytes = request.buffer_bytes ? request.buffer_bytes(plan) : 0;
  if (plan.buffer_bytes > request.limit_bytes - request.weight_bytes - plan.kv_bytes) {
    return NoRoom("memory: the weights need " + SizeText(request.weight_bytes) + ", kv_bytes is " +
                  SizeText(plan.kv_bytes) + " and the buffers for ctx " + std::to_string(plan.ctx) +
                  " need " + SizeText(plan.buffer_bytes) + ", but this process may use " +
                  SizeText(request.limit_bytes) + " in all");
  }
  return plan;
}

uint64_t ControlPlaneBytes(const KvGeometry& geometry, const MemoryPlan& plan,
                           const ControlPlaneShape& shape) {
  uint64_t pages = 0, entries = 0;
  for (const KvGroupGeometry& group : geometry.groups) {
    pages += plan.kv_bytes / group.superblock_bytes * group.pages_per_superblock;
    entries += (uint64_t{plan.ctx} + group.page_tokens - 1) / group.page_tokens * shape.max_slots;
  }
  // A page's states and links; two nodes of the prefix index with their tokens and up to six
  // buckets; an entry's page, and its segment and dense entry in a frame.
  const uint64_t node = 52 + sizeof(TokenId) * geometry.groups[0].page_tokens +
                        sizeof(PageId) * geometry.groups.size();
  const uint64_t tables = pages * (52 + 2 * node + 6 * 8) + entries * (4 + sizeof(Segment) + 4);
  // The edits that a step is likely to make at most: a journal of 36 bytes each, deltas of two
  // epochs in pager and frames.
  const uint64_t edits = std::min<uint64_t>(2 * entries, 1 << 16) +
                         uint64_t{8} * shape.max_slots * geometry.groups.size();
  const uint64_t step = edits * (36 + 4 * sizeof(Delta)) +
                        3 * (uint64_t{shape.max_rows} * sizeof(Row) + shape.max_slots * 128u);
  // Edited logits, candidates, weights, marks and panel maxima of the sampler.
  const uint64_t sampler = uint64_t{shape.vocab} * 21;
  const uint64_t requests = uint64_t{shape.max_slots} * plan.ctx * sizeof(TokenId);
  return tables + step + sampler + requests;
}

}  // namespace kvrm
