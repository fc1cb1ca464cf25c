// A histogram of durations with fixed bounds, 1-2-5 from 1 us to 100 s, for metrics: one thread
// adds, any thread reads. Adding is a search among 25 numbers and two stores; it never allocates or
// waits.
//
// Thread class: Add from one thread; Load thread-safe. A Load beside an Add may lack that one
// duration in its sum or in its buckets; counts are always those of the buckets.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace kvrm {

inline constexpr std::array<int64_t, 25> kHistogramBoundsUs = {
    1,          2,          5,          10,         20,        50,        100,
    200,        500,        1'000,      2'000,      5'000,     10'000,    20'000,
    50'000,     100'000,    200'000,    500'000,    1'000'000, 2'000'000, 5'000'000,
    10'000'000, 20'000'000, 50'000'000, 100'000'000};

// What a histogram held when it was read.
struct HistogramCounts {
  // [bounds + 1]: durations at most bound i and above bound i - 1; the last: above all bounds.
  std::array<uint64_t, kHistogramBoundsUs.size() + 1> buckets{};
  int64_t sum_us = 0;
};

class Histogram {
 public:
  // Negative durations count as 0.
  void Add(int64_t us) {
    us = std::max<int64_t>(us, 0);
    const auto bound = std::lower_bound(kHistogramBoundsUs.begin(), kHistogramBoundsUs.end(), us);
    Raise(buckets_[static_cast<size_t>(bound - kHistogramBoundsUs.begin())], uint64_t{1});
    Raise(sum_us_, us);
  }

  HistogramCounts Load() const {
    HistogramCounts counts;
    for (size_t i = 0; i < buckets_.size(); ++i) {
      counts.buckets[i] = buckets_[i].load(std::memory_order_relaxed);
    }
    counts.sum_us = sum_us_.load(std::memory_order_relaxed);
    return counts;
  }

 private:
  // One writer: no read-modify-write is needed.
  template <class T>
  static void Raise(std::atomic<T>& total, T by) {
    total.store(total.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  std::array<std::atomic<uint64_t>, kHistogramBoundsUs.size() + 1> buckets_{};
  std::atomic<int64_t> sum_us_{0};
};

}  // namespace kvrm
