// From a model file to a running engine: the one place where the parts are put together, shared by
// every command. Thread-compatible.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/run_delay.h"
#include "base/worker_pool.h"
#include "engine/engine.h"
#include "engine/modes.h"
#include "exec/cpu_executor.h"
#include "model/model.h"

namespace kvrm {

struct RuntimeOptions {
  std::string model_path;
  // In place of the file's; folders of safetensors have none of their own (text/tokenizer_json.h).
  std::optional<TokenizerSpec> tokenizer;
  WeightChoice weights = WeightChoice::kAuto;
  KvFormat kv_format = KvFormat::kF16;
  Mode mode = Mode::kKvrm;
  bool strict_shape = false;   // steps compute all rows of their program, live or not
  std::string view = "dense";  // as ParseView reads it
  uint32_t num_threads = 0;    // 0 = CPUs allowed to this process
  uint32_t max_slots = 32;
  uint32_t ctx = 0;                    // per sequence; 0 = the model's, capped at what fits
  uint64_t kv_bytes = 0;               // 0 = a quarter of the memory that the cgroup allows
  uint64_t kv_keep_bytes = 32u << 20;  // cached pages that stay when idle
  bool prefix_cache = true;            // refused in modes with slot runs
  uint64_t memory_limit_bytes = 0;     // tests; 0 = MemoryLimitBytes()
  uint32_t chunk_rows = 0;
  int64_t max_itl_us = kAutoMaxItl;
  SimdLevel simd = SimdLevel::kAuto;
  // Replays of a record: what its warm-up measured, and a clock that shows what its own did. Empty,
  // nullptr: measured here, the system's. The clock is not owned.
  std::vector<StepSample> step_samples;
  Clock* clock = nullptr;
  bool validate_each_step = false;
  uint64_t scatter_seed = 0;     // tests: no two adjacent pages
  bool poison_freed = false;     // tests
  bool protect_program = false;  // tests
  std::function<void(double)> progress;
};

// Everything that a run owns, destroyed in the right order.
struct Runtime {
  std::unique_ptr<const Model> model;
  std::unique_ptr<WorkerPool> pool;
  std::unique_ptr<Clock> clock;
  std::unique_ptr<RunDelay> run_delay;  // of the pool's threads and the engine's
  std::unique_ptr<Engine> engine;
  Mode mode = Mode::kKvrm;
  bool strict_shape = false;
  ModelView view;
  uint64_t kv_bytes = 0;  // as chosen
  uint32_t ctx = 0;       // as chosen
};

// Errors: those of the file, the model and the pager; options that exclude each other; too little
// memory, with the arithmetic, or because the system refused it after all; threads that the system
// refused.
Result<std::unique_ptr<Runtime>> LoadRuntime(const RuntimeOptions& options);
// The same over an opened file (tests write models in memory).
Result<std::unique_ptr<Runtime>> LoadRuntime(const GgufFile& file, const RuntimeOptions& options);

// Bytes that this process may use: the least of cgroup v2/v1 limit and physical memory.
uint64_t MemoryLimitBytes();
// CPUs that this process may run on.
uint32_t AllowedCpus();

}  // namespace kvrm
