// The loops behind MeasureArithmeticPeak: enough independent accumulators to hide the latency of
// the widest multiply-add that this CPU has, no loads. x86 here; other architectures report 0.
#include "bench/ceilings.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvrm::cli {

#if defined(__x86_64__)
namespace {

constexpr int kAccumulators = 10;  // the unroll pragmas keep them in registers

// Tells the compiler that `value` may have changed: the loop cannot be folded away. A macro,
// because the register class must be one of the enclosing function's target.
#define KVRM_OPAQUE(value) asm volatile("" : "+v"(value))

__attribute__((target("avx512f,avx512bw,avx512vnni"))) uint64_t VnniRounds(uint64_t rounds) {
  __m512i sums[kAccumulators];
#pragma GCC unroll 10
  for (int i = 0; i < kAccumulators; ++i) {
    sums[i] = _mm512_setzero_si512();
    KVRM_OPAQUE(sums[i]);  // each its own chain: equal ones would be computed once
  }
  __m512i left = _mm512_set1_epi8(3), right = _mm512_set1_epi8(2);
  for (uint64_t round = 0; round < rounds; ++round) {
    KVRM_OPAQUE(left);
#pragma GCC unroll 10
    for (int i = 0; i < kAccumulators; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], left, right);
  }
#pragma GCC unroll 10
  for (int i = 0; i < kAccumulators; ++i) KVRM_OPAQUE(sums[i]);
  return rounds * kAccumulators * 64 * 2;
}

__attribute__((target("avx512f"))) uint64_t Fma512Rounds(uint64_t rounds) {
  __m512 sums[kAccumulators];
#pragma GCC unroll 10
  for (int i = 0; i < kAccumulators; ++i) {
    sums[i] = _mm512_setzero_ps();
    KVRM_OPAQUE(sums[i]);  // each its own chain: equal ones would be computed once
  }
  __m512 left = _mm512_set1_ps(0.5f), right = _mm512_set1_ps(0.25f);
  for (uint64_t round = 0; round < rounds; ++round) {
    KVRM_OPAQUE(left);
#pragma GCC unroll 10
    for (int i = 0; i < kAccumulators; ++i) sums[i] = _mm512_fmadd_ps(sums[i], left, right);
  }
#pragma GCC unroll 10
  for (int i = 0; i < kAccumulators; ++i) KVRM_OPAQUE(sums[i]);
  return rounds * kAccumulators * 16 * 2;
}

__attribute__((target("avx2,fma"))) uint64_t Fma256Rounds(uint64_t rounds) {
  __m256 sums[kAccumulators];
#pragma GCC unroll 10
  for (int i = 0; i < kAccumulators; ++i) {
    sums[i] = _mm256_setzero_ps();
    KVRM_OPAQUE(sums[i]);  // each its own chain: equal ones would be computed once
  }
  __m256 left = _mm256_set1_ps(0.5f), right = _mm256_set1_ps(0.25f);
  for (uint64_t round = 0; round < rounds; ++round) {
    KVRM_OPAQUE(left);
#pragma GCC unroll 10
    for (int i = 0; i < kAccumulators; ++i) sums[i] = _mm256_fmadd_ps(sums[i], left, right);
  }
#pragma GCC unroll 10
  for (int i = 0; i < kAccumulators; ++i) KVRM_OPAQUE(sums[i]);
  return rounds * kAccumulators * 8 * 2;
}

#undef KVRM_OPAQUE

}  // namespace

uint64_t Int8PeakRounds(uint64_t rounds) {
  return __builtin_cpu_supports("avx512vnni") ? VnniRounds(rounds) : 0;
}

uint64_t FloatPeakRounds(uint64_t rounds) {
  if (__builtin_cpu_supports("avx512f")) return Fma512Rounds(rounds);
  return __builtin_cpu_supports("fma") ? Fma256Rounds(rounds) : 0;
}

#else

uint64_t Int8PeakRounds(uint64_t) { return 0; }
uint64_t FloatPeakRounds(uint64_t) { return 0; }

#endif

}  // namespace kvrm::cli
