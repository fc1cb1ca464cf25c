// Pairs of neighbouring lanes, on the three machines of lanes.h. Included once per machine after
// it.
#pragma once

#include "ops/lanes.h"

namespace kvrm::ops::KVRM_LANES_NS {

#if defined(KVRM_LANES_AVX512)

// Lane 2i and lane 2i + 1 both become lane 2i; or both lane 2i + 1.
inline F EvenOfPairs(F a) { return {_mm512_moveldup_ps(a.v)}; }
inline F OddOfPairs(F a) { return {_mm512_movehdup_ps(a.v)}; }
// Lane 2i is even[i], lane 2i + 1 is odd[i]. Reads eight of each.
inline F MakePairs(const float* even, const float* odd) {
  const __m512 low = _mm512_castps256_ps512(_mm256_loadu_ps(even));
  const __m512 high = _mm512_castps256_ps512(_mm256_loadu_ps(odd));
  const __m512i order = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  return {_mm512_permutex2var_ps(low, order, high)};
}

#elif defined(KVRM_LANES_AVX2)

inline F EvenOfPairs(F a) { return {_mm256_moveldup_ps(a.lo), _mm256_moveldup_ps(a.hi)}; }
inline F OddOfPairs(F a) { return {_mm256_movehdup_ps(a.lo), _mm256_movehdup_ps(a.hi)}; }
inline F MakePairs(const float* even, const float* odd) {
  const __m256 e = _mm256_loadu_ps(even);
  const __m256 o = _mm256_loadu_ps(odd);
  const __m256 first = _mm256_unpacklo_ps(e, o);   // pairs 0, 1 and 4, 5
  const __m256 second = _mm256_unpackhi_ps(e, o);  // pairs 2, 3 and 6, 7
  return {_mm256_permute2f128_ps(first, second, 0x20), _mm256_permute2f128_ps(first, second, 0x31)};
}

#else  // portable

inline F EvenOfPairs(F a) {
  F r;
  for (uint32_t i = 0; i < kLanes; ++i) r.v[i] = a.v[i & ~1u];
  return r;
}
inline F OddOfPairs(F a) {
  F r;
  for (uint32_t i = 0; i < kLanes; ++i) r.v[i] = a.v[i | 1u];
  return r;
}
inline F MakePairs(const float* even, const float* odd) {
  F r;
  for (uint32_t i = 0; i < kLanes; ++i) r.v[i] = i % 2 == 0 ? even[i / 2] : odd[i / 2];
  return r;
}

#endif

}  // namespace kvrm::ops::KVRM_LANES_NS
