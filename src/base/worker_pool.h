// A fixed set of threads that run one parallel region per step. The calling (engine) thread is
// worker 0; the pool never has a third runnable thread on two cores.
//
// Thread class: Run() from one thread at a time; inside a region all methods are thread-safe.
// Work is claimed through atomic cursors (WorkCursor), so who does what is decided at run time and
// never shows in a result (law I5). Barriers spin for kSpinUs, then sleep on a futex: a core that
// is taken away costs one gap, not a collapse.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.h"

namespace kvrm {

// One claim counter per op of a program, each on a cache line of its own.
struct alignas(64) WorkCursor {
  std::atomic<uint32_t> next{0};
  // Returns the next unclaimed item; >= num_items means nothing is left.
  uint32_t Claim() { return next.fetch_add(1, std::memory_order_relaxed); }
};

class WorkerPool {
 public:
  // Starts `num_threads - 1` threads (1 <= num_threads <= 256), pinned to the allowed CPUs in turn
  // when `pin` is set and there are as many. MXCSR is set to its default (no FTZ, no DAZ, round to
  // nearest) on each worker; on worker 0 by Run(). Error kNoRoom: the system refused a thread.
  static Result<std::unique_ptr<WorkerPool>> Create(uint32_t num_threads, bool pin = false);
  // The same for tests and tools, where a refused thread stops the process.
  explicit WorkerPool(uint32_t num_threads, bool pin = false);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  uint32_t num_threads() const;

  // Runs fn(arg, worker) on every worker, worker in [0, num_threads), and returns when all have
  // returned. No allocation, no system call while the workers are awake.
  using Region = void (*)(void* arg, uint32_t worker);
  void Run(Region fn, void* arg);

  // Inside a region: returns when every worker has arrived. Establishes happens-before.
  void Barrier();

 private:
  struct State;
  explicit WorkerPool(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Sets MXCSR (or FPCR) of this thread to the contract's value. num-1, rule 9.
void SetFloatEnvironment();
// True when this thread's float environment is the contract's.
bool FloatEnvironmentIsSet();

}  // namespace kvrm
