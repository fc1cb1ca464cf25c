#include "base/worker_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cfenv>
#include <climits>
#include <ctime>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/check.h"

namespace kvrm {
namespace {

// How long a worker spins before it sleeps. Long enough that the gaps inside a step (barriers of
// 0.2 to 50 us) never sleep, short enough that a stolen core costs one gap (performance.md, 8.5).
constexpr int64_t kSpinNs = 50'000;

#if defined(__x86_64__)
// Masks all exceptions, round to nearest, no flush-to-zero, no denormals-are-zero.
constexpr uint32_t kMxcsr = 0x1F80;
constexpr uint32_t kMxcsrControlMask = 0xFFC0;
#endif

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int64_t NowNs() {
  timespec ts{};
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
}

void FutexWait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr,
          nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
          nullptr, 0);
}

// A counter that waiters watch for a change: spin first, then sleep.
class alignas(64) EventCount {
 public:
  uint32_t Read() const { return word_.load(std::memory_order_acquire); }

  void WaitChange(uint32_t seen) {
    const int64_t deadline = NowNs() + kSpinNs;
    for (uint32_t spins = 1; word_.load(std::memory_order_acquire) == seen; ++spins) {
      Pause();
      if (spins % 64 != 0 || NowNs() < deadline) continue;
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      while (word_.load(std::memory_order_seq_cst) == seen) FutexWait(word_, seen);
      sleepers_.fetch_sub(1, std::memory_order_relaxed);
      return;
    }
  }

  void Advance() {
    word_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) FutexWakeAll(word_);
  }

 private:
  std::atomic<uint32_t> word_{0};
  std::atomic<uint32_t> sleepers_{0};
};

std::vector<int> AllowedCpuList() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void PinThread(pthread_t thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(thread, sizeof(set), &set);  // best effort: a container may forbid it
}

}  // namespace

void SetFloatEnvironment() {
#if defined(__x86_64__)
  _mm_setcsr(kMxcsr);
#else
  std::fesetenv(FE_DFL_ENV);
#endif
}

bool FloatEnvironmentIsSet() {
#if defined(__x86_64__)
  return (_mm_getcsr() & kMxcsrControlMask) == kMxcsr;
#else
  return std::fegetround() == FE_TONEAREST;
#endif
}

struct WorkerPool::State {
  uint32_t num_threads = 1;
  std::vector<std::thread> threads;
  Region fn = nullptr;  // written before start.Advance(), read after
  void* arg = nullptr;
  bool stop = false;
  EventCount start;    // advanced once per region
  EventCount barrier;  // advanced once per barrier
  alignas(64) std::atomic<uint32_t> arrived{0};

  ~State() {
    stop = true;
    start.Advance();
    for (auto& thread : threads) thread.join();
  }

  // Starts the workers beside the caller, as many as the system gives. Returns whether all run.
  bool Start(bool pin) {
    const std::vector<int> cpus = pin ? AllowedCpuList() : std::vector<int>{};
    const bool can_pin = cpus.size() >= num_threads;
    const uint32_t seen = start.Read();
    try {
      threads.reserve(num_threads - 1);
      for (uint32_t worker = 1; worker < num_threads; ++worker) {
        threads.emplace_back([this, worker, seen] { Loop(worker, seen); });
        if (can_pin) PinThread(threads.back().native_handle(), cpus[worker]);
      }
    } catch (const std::system_error&) {
    } catch (const std::bad_alloc&) {
    }  // no thread, or no memory to keep it: both show in the count
    return threads.size() + 1 == num_threads;
  }

  void Loop(uint32_t worker, uint32_t seen) {
    SetFloatEnvironment();
    for (;;) {
      start.WaitChange(seen);
      seen = start.Read();
      if (stop) return;
      fn(arg, worker);
      Barrier();
    }
  }

  void Barrier() {
    if (num_threads == 1) return;
    const uint32_t seen = barrier.Read();
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads) {
      arrived.store(0, std::memory_order_relaxed);
      barrier.Advance();
    } else {
      barrier.WaitChange(seen);
    }
  }
};

Result<std::unique_ptr<WorkerPool>> WorkerPool::Create(uint32_t num_threads, bool pin) {
  KVRM_CHECK(num_threads >= 1 && num_threads <= 256, "worker pool of 1..256 threads");
  auto state = std::make_unique<State>();
  state->num_threads = num_threads;
  if (!state->Start(pin)) {
    const size_t given = state->threads.size() + 1;
    state.reset();  // first, so that the message finds the memory that the threads had
    return NoRoom("threads: " + std::to_string(num_threads) + " asked, the system gave " +
                  std::to_string(given));
  }
  return std::unique_ptr<WorkerPool>(new WorkerPool(std::move(state)));
}

WorkerPool::WorkerPool(std::unique_ptr<State> state) : state_(std::move(state)) {}

WorkerPool::WorkerPool(uint32_t num_threads, bool pin) {
  auto pool = Create(num_threads, pin);
  KVRM_CHECK(pool.ok(), "the system gives a worker pool its threads");
  state_ = std::move(pool.value()->state_);
}

WorkerPool::~WorkerPool() = default;

uint32_t WorkerPool::num_threads() const { return state_->num_threads; }

void WorkerPool::Run(Region fn, void* arg) {
  SetFloatEnvironment();
  state_->fn = fn;
  state_->arg = arg;
  if (state_->num_threads > 1) state_->start.Advance();
  fn(arg, 0);
  state_->Barrier();
}

void WorkerPool::Barrier() { state_->Barrier(); }

}  // namespace kvrm
