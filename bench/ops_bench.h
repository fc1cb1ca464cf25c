// What the kernel benchmarks share. Rates are per second of this thread's CPU time, so that a
// machine shared with others gives the kernel's own figure; still take the best of repetitions:
//   ops_bench --benchmark_repetitions=5 --benchmark_report_aggregates_only=true
// and read times (and `token`) from the rows `least`, rates from the rows `most`.
#pragma once

#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

#include "ops/op_args.h"

namespace kvrm::bench {

inline const ops::KernelTable& BestMachine() {
  if (ops::AmxKernels() != nullptr) return *ops::AmxKernels();
  if (ops::Avx512Kernels() != nullptr) return *ops::Avx512Kernels();
  if (ops::Avx2Kernels() != nullptr) return *ops::Avx2Kernels();
  return ops::PortableKernels();
}

// Zeroed memory on large OS pages where there are any, as weights and pools lie.
class AlignedBytes {
 public:
  explicit AlignedBytes(size_t size)
      : data_(static_cast<std::byte*>(
            std::aligned_alloc(kLargePage, (size + kLargePage - 1) / kLargePage * kLargePage))) {
#if defined(MADV_HUGEPAGE)
    madvise(data_.get(), size, MADV_HUGEPAGE);
#endif
    std::fill_n(data_.get(), size, std::byte{0});
  }
  std::byte* data() const { return data_.get(); }

 private:
  static constexpr size_t kLargePage = size_t{2} << 20;
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
};

inline void ReportExtremes(benchmark::internal::Benchmark* b) {
  using Values = std::vector<double>;
  b->ComputeStatistics("least",
                       [](const Values& v) { return *std::min_element(v.begin(), v.end()); });
  b->ComputeStatistics("most",
                       [](const Values& v) { return *std::max_element(v.begin(), v.end()); });
}

}  // namespace kvrm::bench
