#include "engine/loader.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/clock.h"
#include "engine/memory_plan.h"
#include "model/config.h"
#include "model/weight_plan.h"

namespace kvrm {
namespace {

constexpr uint32_t kMaxThreads = 256;
constexpr uint32_t kMaxSlots = 1024;

Status CheckOptions(const RuntimeOptions& options) {
  if (options.num_threads > kMaxThreads) {
    return InvalidInput("threads is " + std::to_string(options.num_threads) +
                        ", but must be at most " + std::to_string(kMaxThreads));
  }
  if (options.max_slots == 0 || options.max_slots > kMaxSlots) {
    return InvalidInput("slots is " + std::to_string(options.max_slots) + ", but must be 1 to " +
                        std::to_string(kMaxSlots));
  }
  return Ok();
}

Result<std::unique_ptr<Executor>> MakeExecutor(const Runtime& runtime, const KvGeometry& geometry,
                                               const Pager& pager, const RuntimeOptions& options) {
  CpuExecutorConfig config;
  config.max_slots = options.max_slots;
  config.max_seq_tokens = runtime.ctx;
  config.geometry = geometry;
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) config.kv_base[g] = pager.base(g);
  config.simd = options.simd;
  config.protect_program = options.protect_program;
  return CreateCpuExecutor(*runtime.model, config, *runtime.pool);
}

}  // namespace

Result<std::unique_ptr<Runtime>> LoadRuntime(const RuntimeOptions& options) {
  KVRM_RETURN_IF_ERROR(CheckOptions(options));  // before the file: a wrong flag is told at once
  KVRM_ASSIGN_OR_RETURN(const auto file, GgufFile::Open(options.model_path));
  return LoadRuntime(*file, options);
}

Result<std::unique_ptr<Runtime>> LoadRuntime(const GgufFile& file, const RuntimeOptions& options) {
  KVRM_RETURN_IF_ERROR(CheckOptions(options));
  // What is needed and whether there is room for it, before anything is allocated.
  KVRM_ASSIGN_OR_RETURN(const ModelConfig model, ReadConfig(file));
  KVRM_ASSIGN_OR_RETURN(const KvGeometry geometry, KvGeometryOf(model, options.kv_format));
  KVRM_ASSIGN_OR_RETURN(const WeightPlan weights, PlanWeights(file, model, options.weights));
  KVRM_ASSIGN_OR_RETURN(const MemoryPlan memory,
                        PlanMemory(geometry, {.limit_bytes = MemoryLimitBytes(),
                                              .weight_bytes = weights.arena_bytes,
                                              .kv_bytes = options.kv_bytes,
                                              .ctx = options.ctx,
                                              .model_context = model.max_context}));
  auto runtime = std::make_unique<Runtime>();
  runtime->kv_bytes = memory.kv_bytes;
  runtime->ctx = memory.ctx;
  KVRM_ASSIGN_OR_RETURN(auto pager, Pager::Create({.geometry = geometry,
                                                   .kv_bytes = memory.kv_bytes,
                                                   .max_slots = options.max_slots,
                                                   .max_seq_tokens = memory.ctx,
                                                   .poison_freed = options.poison_freed,
                                                   .scatter_seed = options.scatter_seed}));
  const uint32_t num_threads =
      options.num_threads > 0 ? options.num_threads : std::min(AllowedCpus(), kMaxThreads);
  KVRM_ASSIGN_OR_RETURN(runtime->model, Model::Load(file, {.weights = options.weights,
                                                           .num_threads = num_threads,
                                                           .progress = options.progress}));
  runtime->pool = std::make_unique<WorkerPool>(num_threads);
  runtime->clock = std::make_unique<SystemClock>();
  KVRM_ASSIGN_OR_RETURN(auto executor, MakeExecutor(*runtime, geometry, *pager, options));
  executor->WarmUp();
  KVRM_ASSIGN_OR_RETURN(runtime->engine,
                        Engine::Create({.max_slots = options.max_slots,
                                        .max_seq_tokens = memory.ctx,
                                        .chunk_rows = options.chunk_rows,
                                        .validate_each_step = options.validate_each_step},
                                       std::move(pager), std::move(executor), *runtime->clock));
  return runtime;
}

}  // namespace kvrm
