#include "bench/ceilings.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/worker_pool.h"

namespace kvrm::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

double SecondsSince(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

constexpr uint32_t kStreams = 4;
constexpr size_t kLine = 64;

typedef uint64_t Line __attribute__((vector_size(kLine)));

// Reads [begin, begin + bytes) as four streams; bytes is a multiple of 4 lines.
__attribute__((always_inline)) inline uint64_t ReadStreams(const std::byte* begin, size_t bytes) {
  const size_t stride = bytes / kStreams;
  const auto* s0 = reinterpret_cast<const Line*>(begin);
  const auto* s1 = reinterpret_cast<const Line*>(begin + stride);
  const auto* s2 = reinterpret_cast<const Line*>(begin + 2 * stride);
  const auto* s3 = reinterpret_cast<const Line*>(begin + 3 * stride);
  Line sum0{}, sum1{}, sum2{}, sum3{};
  for (size_t i = 0; i < stride / kLine; ++i) {
    sum0 ^= s0[i];
    sum1 ^= s1[i];
    sum2 ^= s2[i];
    sum3 ^= s3[i];
  }
  const Line all = sum0 ^ sum1 ^ sum2 ^ sum3;
  uint64_t folded = 0;
  for (size_t i = 0; i < kLine / sizeof(uint64_t); ++i) folded ^= all[i];
  return folded;
}

uint64_t ReadPortable(const std::byte* begin, size_t bytes) { return ReadStreams(begin, bytes); }

#if defined(__x86_64__)
__attribute__((target("avx512f"))) uint64_t ReadAvx512(const std::byte* begin, size_t bytes) {
  return ReadStreams(begin, bytes);
}
__attribute__((target("avx2"))) uint64_t ReadAvx2(const std::byte* begin, size_t bytes) {
  return ReadStreams(begin, bytes);
}
#endif

using ReadFunction = uint64_t (*)(const std::byte*, size_t);

ReadFunction WidestRead() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return ReadAvx512;
  if (__builtin_cpu_supports("avx2")) return ReadAvx2;
#endif
  return ReadPortable;
}

struct ReadJob {
  std::byte* data = nullptr;
  size_t bytes_per_thread = 0;
  ReadFunction read = nullptr;
  std::vector<uint64_t> folded;  // [threads]; keeps the loads alive

  static void Touch(void* self, uint32_t worker) {
    const auto& job = *static_cast<ReadJob*>(self);
    std::memset(job.data + worker * job.bytes_per_thread, 1, job.bytes_per_thread);
  }
  static void Read(void* self, uint32_t worker) {
    auto& job = *static_cast<ReadJob*>(self);
    job.folded[worker] = job.read(job.data + worker * job.bytes_per_thread, job.bytes_per_thread);
  }
};

struct PeakJob {
  uint64_t (*rounds_of)(uint64_t) = nullptr;
  uint64_t rounds = 0;
  std::vector<uint64_t> operations;  // [threads]

  static void Run(void* self, uint32_t worker) {
    auto& job = *static_cast<PeakJob*>(self);
    job.operations[worker] = job.rounds_of(job.rounds);
  }
};

double MeasurePeak(uint64_t (*rounds_of)(uint64_t), WorkerPool& pool) {
  constexpr uint64_t kRounds = 2'000'000;  // some 10 ms
  constexpr int kPasses = 9;
  PeakJob job{rounds_of, kRounds, std::vector<uint64_t>(pool.num_threads())};
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto begin = SteadyClock::now();
    pool.Run(PeakJob::Run, &job);
    const double seconds = SecondsSince(begin);
    uint64_t operations = 0;
    for (uint64_t one : job.operations) operations += one;
    if (operations == 0) return 0;
    best = std::max(best, static_cast<double>(operations) / seconds);
  }
  return best;
}

}  // namespace

double MeasureReadBandwidth(uint64_t bytes, uint32_t num_threads) {
  constexpr size_t kHugePage = size_t{2} << 20;
  constexpr double kSeconds = 0.5;
  constexpr int kMinPasses = 5;
  WorkerPool pool(num_threads);
  ReadJob job;
  job.read = WidestRead();
  job.folded.resize(num_threads);
  constexpr size_t kUnit = kStreams * kLine;
  job.bytes_per_thread = std::max<size_t>(bytes / num_threads / kUnit, 1) * kUnit;
  const size_t used = job.bytes_per_thread * num_threads;
  const size_t mapped = used + kHugePage;
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
  const uintptr_t aligned =
      (reinterpret_cast<uintptr_t>(memory) + kHugePage - 1) / kHugePage * kHugePage;
  job.data = reinterpret_cast<std::byte*>(aligned);
#if defined(MADV_HUGEPAGE)
  madvise(job.data, used, MADV_HUGEPAGE);
#endif
  pool.Run(ReadJob::Touch, &job);

  double best = 0, total = 0;
  for (int pass = 0; pass < kMinPasses || total < kSeconds; ++pass) {
    const auto begin = SteadyClock::now();
    pool.Run(ReadJob::Read, &job);
    const double seconds = SecondsSince(begin);
    total += seconds;
    best = std::max(best, static_cast<double>(used) / seconds);
  }
  munmap(memory, mapped);
  return best;
}

ArithmeticPeak MeasureArithmeticPeak(uint32_t num_threads) {
  WorkerPool pool(num_threads);
  return {MeasurePeak(Int8PeakRounds, pool), MeasurePeak(FloatPeakRounds, pool)};
}

}  // namespace kvrm::cli
