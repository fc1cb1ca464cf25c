#include "engine/loader.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "base/clock.h"
#include "engine/memory_plan.h"
#include "exec/memory_need.h"
#include "model/config.h"
#include "model/weight_plan.h"

namespace kvrm {
namespace {

constexpr uint32_t kMaxThreads = 256;
constexpr uint32_t kMaxSlots = 1024;

// What a mode is meant to show must not be undone by another option.
Status CheckMode(const RuntimeOptions& options) {
  const ModeTraits& mode = TraitsOf(options.mode);
  const std::string name = "mode " + std::string(mode.name);
  if (mode.slot_runs && options.prefix_cache) {
    return InvalidInput(name + " with prefix_cache on: each of its " +
                        std::to_string(options.max_slots) +
                        " slots keeps pages of its own, of which none can be shared");
  }
  if ((mode.slot_runs || !mode.placement) && options.scatter_seed != 0) {
    return InvalidInput(name + " with scatter_seed " + std::to_string(options.scatter_seed) +
                        ": the mode itself says where pages lie");
  }
  if (mode.exact_shapes && options.strict_shape) {
    return InvalidInput(name + " with strict_shape: its programs have as many rows as a step, so " +
                        "there are none to fill");
  }
  return Ok();
}

Status CheckOptions(const RuntimeOptions& options) {
  if (options.num_threads > kMaxThreads) {
    return InvalidInput("threads is " + std::to_string(options.num_threads) +
                        ", but must be at most " + std::to_string(kMaxThreads));
  }
  if (options.max_slots == 0 || options.max_slots > kMaxSlots) {
    return InvalidInput("slots is " + std::to_string(options.max_slots) + ", but must be 1 to " +
                        std::to_string(kMaxSlots));
  }
  KVRM_RETURN_IF_ERROR(ParseView(options.view));
  return CheckMode(options);
}

CpuExecutorConfig ExecutorConfigOf(const KvGeometry& geometry, uint32_t ctx,
                                   const RuntimeOptions& options) {
  CpuExecutorConfig config;
  config.max_slots = options.max_slots;
  config.max_seq_tokens = ctx;
  config.geometry = geometry;
  config.simd = options.simd;
  config.protect_program = options.protect_program;
  config.kv_width = TraitsOf(options.mode).width;
  config.exact_shapes = TraitsOf(options.mode).exact_shapes;
  config.strict_shape = options.strict_shape;
  return config;
}

uint32_t NumThreads(const RuntimeOptions& options) {
  return options.num_threads > 0 ? options.num_threads : std::min(AllowedCpus(), kMaxThreads);
}

uint64_t LimitOf(const RuntimeOptions& options) {
  return options.memory_limit_bytes > 0 ? options.memory_limit_bytes : MemoryLimitBytes();
}

// What is needed and whether there is room for it, before anything is allocated.
Result<MemoryPlan> Plan(const GgufFile& file, const ModelConfig& model, const KvGeometry& geometry,
                        const RuntimeOptions& options) {
  KVRM_ASSIGN_OR_RETURN(const WeightPlan weights, PlanWeights(file, model, options.weights));
  const Encoding encoding = (weights.head ? *weights.head : weights.embedding).shape.encoding;
  const auto buffer_bytes = [&](const MemoryPlan& plan) {
    const CpuExecutorConfig executor = ExecutorConfigOf(geometry, plan.ctx, options);
    return CpuExecutorBytes(model, executor, NumThreads(options), encoding != Encoding::kF32) +
           ControlPlaneBytes(geometry, plan,
                             {.max_slots = options.max_slots,
                              .max_rows = options.max_slots + executor.prefill_rows,
                              .vocab = model.vocab});
  };
  return PlanMemory(geometry,
                    {.limit_bytes = LimitOf(options),
                     .weight_bytes = weights.arena_bytes,
                     .kv_bytes = options.kv_bytes,
                     .ctx = options.ctx,
                     .model_context = model.max_context,
                     .slot_runs = TraitsOf(options.mode).slot_runs ? options.max_slots : 0,
                     .buffer_bytes = buffer_bytes});
}

Result<std::unique_ptr<Runtime>> Load(const GgufFile& file, const RuntimeOptions& options) {
  KVRM_ASSIGN_OR_RETURN(const ModelView view, ParseView(options.view));
  KVRM_ASSIGN_OR_RETURN(const ModelConfig asked, ReadConfig(file));
  ModelConfig model = asked;
  ApplyView(view, model);
  KVRM_ASSIGN_OR_RETURN(const KvGeometry geometry, KvGeometryOf(model, options.kv_format));
  KVRM_ASSIGN_OR_RETURN(const MemoryPlan memory, Plan(file, model, geometry, options));
  const ModeTraits& mode = TraitsOf(options.mode);
  auto runtime = std::make_unique<Runtime>();
  runtime->mode = options.mode;
  runtime->strict_shape = options.strict_shape;
  runtime->view = view;
  runtime->kv_bytes = memory.kv_bytes;
  runtime->ctx = memory.ctx;
  const CpuExecutorConfig rows = ExecutorConfigOf(geometry, memory.ctx, options);
  KVRM_ASSIGN_OR_RETURN(
      auto pager, Pager::Create({.geometry = geometry,
                                 .kv_bytes = memory.kv_bytes,
                                 .max_slots = options.max_slots,
                                 .max_seq_tokens = memory.ctx,
                                 .max_step_tokens = mode.slot_runs ? memory.ctx : rows.prefill_rows,
                                 .prefix_index = options.prefix_cache,
                                 .kv_keep_bytes = options.kv_keep_bytes,
                                 .poison_freed = options.poison_freed,
                                 .placement = mode.placement,
                                 .lazy_memory = mode.lazy_memory,
                                 .scatter_seed = options.scatter_seed}));
  // Before the weights, which take longest: threads that are refused are told at once.
  KVRM_ASSIGN_OR_RETURN(runtime->pool, WorkerPool::Create(NumThreads(options)));
  KVRM_ASSIGN_OR_RETURN(runtime->model, Model::Load(file, {.weights = options.weights,
                                                           .num_threads = NumThreads(options),
                                                           .progress = options.progress,
                                                           .tokenizer = options.tokenizer,
                                                           .view = view}));
  runtime->clock = std::make_unique<SystemClock>();
  CpuExecutorConfig config = rows;
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) config.kv_base[g] = pager->base(g);
  KVRM_ASSIGN_OR_RETURN(auto executor, CreateCpuExecutor(*runtime->model, config, *runtime->pool));
  executor->WarmUp();
  runtime->run_delay = std::make_unique<RunDelay>(*runtime->pool);
  KVRM_ASSIGN_OR_RETURN(
      runtime->engine,
      Engine::Create({.max_slots = options.max_slots,
                      .max_seq_tokens = memory.ctx,
                      .chunk_rows = options.chunk_rows,
                      .max_itl_us = options.max_itl_us,
                      .prefix_cache = options.prefix_cache,
                      .slot_runs = mode.slot_runs,
                      .return_memory = mode.lazy_memory,
                      .merge_copies = mode.placement,
                      .validate_each_step = options.validate_each_step,
                      .step_samples = options.step_samples,
                      .lossy_view = IsLossy(view, asked, memory.ctx) ? ViewName(view) : "",
                      .stolen_us = [delay = runtime->run_delay.get()] { return delay->ReadUs(); }},
                     std::move(pager), std::move(executor),
                     options.clock == nullptr ? *runtime->clock : *options.clock));
  return runtime;
}

// No exception crosses a folder: memory that the system refused, whatever the plan said.
template <class LoadFn>
Result<std::unique_ptr<Runtime>> OrNoRoom(const RuntimeOptions& options, const LoadFn& load) {
  try {
    return load();
  } catch (const std::bad_alloc&) {
    return NoRoom("memory: an allocation failed while the model was loaded; this process may use " +
                  SizeText(LimitOf(options)) + " in all");
  }
}

}  // namespace

Result<std::unique_ptr<Runtime>> LoadRuntime(const RuntimeOptions& options) {
  KVRM_RETURN_IF_ERROR(CheckOptions(options));  // before the file: a wrong flag is told at once
  return OrNoRoom(options, [&]() -> Result<std::unique_ptr<Runtime>> {
    KVRM_ASSIGN_OR_RETURN(const auto file, GgufFile::Open(options.model_path));
    return Load(*file, options);
  });
}

Result<std::unique_ptr<Runtime>> LoadRuntime(const GgufFile& file, const RuntimeOptions& options) {
  KVRM_RETURN_IF_ERROR(CheckOptions(options));
  return OrNoRoom(options, [&] { return Load(file, options); });
}

}  // namespace kvrm
