// What this machine can do, one thread: the figures that kernels are measured against.
#include <cstdint>
#include <string>

#include "ops_bench.h"
#if defined(__AVX512VNNI__)
#include <immintrin.h>
#endif

namespace kvrm::bench {
namespace {

#if defined(__AVX512VNNI__)

// Sixteen independent chains: more than latency times issue width on any machine so far.
constexpr int kChains = 16;

// An empty statement that the compiler takes for a use and a change of x.
template <class T>
inline void Keep(T& x) {
  asm volatile("" : "+v"(x));
}

void DotPeak(benchmark::State& state) {
  __m512i acc[kChains] = {};
  __m512i a = _mm512_set1_epi8(3);
  __m512i b = _mm512_set1_epi8(1);
  for (__m512i& x : acc) Keep(x);  // so that no chain is known to equal another
  for (auto _ : state) {
    for (int repeat = 0; repeat < 1000; ++repeat) {
      for (__m512i& x : acc) x = _mm512_dpbusd_epi32(x, a, b);
    }
  }
  for (__m512i& x : acc) Keep(x);
  state.counters["ops"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * 1000 * kChains * 64 * 2,
                         benchmark::Counter::kIsRate);
}
BENCHMARK(DotPeak)->Name("peak/int8 dot, 512 bit")->Apply(ReportExtremes);

void FmaPeak(benchmark::State& state) {
  __m512 acc[kChains] = {};
  __m512 a = _mm512_set1_ps(0.5f);
  __m512 b = _mm512_set1_ps(0.25f);
  for (__m512& x : acc) Keep(x);
  for (auto _ : state) {
    for (int repeat = 0; repeat < 1000; ++repeat) {
      for (__m512& x : acc) x = _mm512_fmadd_ps(a, b, x);
    }
  }
  for (__m512& x : acc) Keep(x);
  state.counters["ops"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * 1000 * kChains * 16 * 2,
                         benchmark::Counter::kIsRate);
}
BENCHMARK(FmaPeak)->Name("peak/float fma, 512 bit")->Apply(ReportExtremes);

#endif

// Reads `kib` KiB as four streams side by side, as a kernel reads four panels.
void Read(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0)) * 1024;
  AlignedBytes memory(bytes);
  const size_t stream = bytes / 4;
  for (auto _ : state) {
    const std::byte* p = memory.data();
#if defined(__AVX512VNNI__)
    __m512i sum[4] = {};
    for (size_t i = 0; i < stream; i += 64) {
      for (size_t s = 0; s < 4; ++s) {
        _mm_prefetch(reinterpret_cast<const char*>(p + s * stream + i + 4096), _MM_HINT_T0);
        sum[s] = _mm512_xor_si512(sum[s], _mm512_loadu_si512(p + s * stream + i));
      }
    }
    for (__m512i& x : sum) Keep(x);
#else
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes; i += 8) {
      uint64_t x;
      __builtin_memcpy(&x, p + i, 8);
      sum ^= x;
    }
    benchmark::DoNotOptimize(sum);
#endif
  }
  state.counters["bytes"] =
      benchmark::Counter(static_cast<double>(bytes) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}
BENCHMARK(Read)
    ->Name("peak/read, KiB")
    ->Arg(24)
    ->Arg(512)
    ->Arg(4 << 10)
    ->Arg(16 << 10)
    ->Arg(96 << 10)
    ->Arg(512 << 10)
    ->Apply(ReportExtremes);

}  // namespace
}  // namespace kvrm::bench
