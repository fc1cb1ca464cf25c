// What the int8 KV kernels do with bytes, on the three machines of lanes.h. Included once per
// machine after it.
//
// Four rows of up to 64 signed bytes are interleaved by fours, so that one dot instruction takes
// four tokens of sixteen d. The order of the d within a block of 64 is the one that needs no
// shuffle across 128-bit quarters: lane 4 * c + i of block j holds d = 16 * c + 4 * j + i, and
// StoreQuarters puts it right. Sums are exact, so the order shows nowhere else.
#pragma once

#include "ops/lanes.h"

namespace kvrm::ops::KVRM_LANES_NS {

#if defined(KVRM_LANES_AVX512)

// The greater magnitude of each lane, NaN being greater than all.
inline F MaxMagnitudes(F a, F b) {
  const __m512i mask = _mm512_set1_epi32(0x7FFFFFFF);
  return {_mm512_castsi512_ps(_mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(a.v), mask),
                                               _mm512_and_si512(_mm512_castps_si512(b.v), mask)))};
}
// The seven upper and the seven lower bits of numbers in 0..16383, a byte each: [16] and [16].
inline void StoreSevens(int8_t* p, I a) {
  const __m512i low = _mm512_and_si512(a.v, _mm512_set1_epi32(127));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_srli_epi32(a.v, 7)));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 16), _mm512_cvtepi32_epi8(low));
}
#if defined(KVRM_LANES_AMX)
// The same of 64 numbers: all upper bytes in their order, and all lower.
inline void StoreSevensOf64(uint8_t* upper, uint8_t* lower, const I* a) {
  const __m512i low = _mm512_set1_epi16(127);
  // Packing works within 128-bit quarters: fours come out as those of a[0], a[1], a[2], a[3].
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i x = _mm512_packs_epi32(a[0].v, a[1].v);
  const __m512i y = _mm512_packs_epi32(a[2].v, a[3].v);
  const __m512i up = _mm512_packus_epi16(_mm512_srli_epi16(x, 7), _mm512_srli_epi16(y, 7));
  const __m512i down = _mm512_packus_epi16(_mm512_and_si512(x, low), _mm512_and_si512(y, low));
  _mm512_storeu_si512(upper, _mm512_permutexvar_epi32(order, up));
  _mm512_storeu_si512(lower, _mm512_permutexvar_epi32(order, down));
}
// The greater as numbers without a sign: of values that are not negative, or NaN, the greater, NaN
// being greater than all.
inline F MaxBits(F a, F b) {
  return {
      _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(a.v), _mm512_castps_si512(b.v)))};
}
// x < bound ? 0 : a * 2^n, n whole; a NaN counts as not less.
inline F ScaleUnlessLess(F x, F bound, F a, F n) {
  return {_mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x.v, bound.v, _CMP_NLT_UQ), a.v, n.v)};
}
#endif
// The first n bytes, the others 0. n is a multiple of 16 up to 64.
inline B LoadFirstBytes(const int8_t* p, uint32_t n) {
  const __mmask64 mask = ~uint64_t{0} >> (64 - n);
  return {_mm512_maskz_loadu_epi8(mask, p)};
}
// Blocks 2 * kHalf and 2 * kHalf + 1 of four rows.
template <int kHalf>
inline void Interleave(const B* rows, B* blocks) {
  __m512i a, b;
  if constexpr (kHalf == 0) {
    a = _mm512_unpacklo_epi8(rows[0].v, rows[1].v);
    b = _mm512_unpacklo_epi8(rows[2].v, rows[3].v);
  } else {
    a = _mm512_unpackhi_epi8(rows[0].v, rows[1].v);
    b = _mm512_unpackhi_epi8(rows[2].v, rows[3].v);
  }
  blocks[0].v = _mm512_unpacklo_epi16(a, b);
  blocks[1].v = _mm512_unpackhi_epi16(a, b);
}
// acc[lane] += sum over i in 0..3 of byte i of `a` (0..127) * bytes[4 lane + i] (signed). Exact.
inline I DotSigned(I acc, int32_t a, B bytes) {
  return {_mm512_dpbusd_epi32(acc.v, _mm512_set1_epi32(a), bytes.v)};
}
// 128 * upper + lower.
inline I JoinSevens(I upper, I lower) {
  return {_mm512_add_epi32(_mm512_slli_epi32(upper.v, 7), lower.v)};
}
// The quarters of a block at p, p + 16, p + 32, p + 48; those from n on are left out.
inline void StoreQuarters(float* p, F a, uint32_t n) {
  _mm_storeu_ps(p, _mm512_castps512_ps128(a.v));
  if (n > 16) _mm_storeu_ps(p + 16, _mm512_maskz_extractf32x4_ps(0xF, a.v, 1));
  if (n > 32) _mm_storeu_ps(p + 32, _mm512_maskz_extractf32x4_ps(0xF, a.v, 2));
  if (n > 48) _mm_storeu_ps(p + 48, _mm512_maskz_extractf32x4_ps(0xF, a.v, 3));
}

#elif defined(KVRM_LANES_AVX2)

inline __m256 MaxMagnitudesOf(__m256 a, __m256 b) {
  const __m256i mask = _mm256_set1_epi32(0x7FFFFFFF);
  return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_and_si256(_mm256_castps_si256(a), mask),
                                              _mm256_and_si256(_mm256_castps_si256(b), mask)));
}
inline F MaxMagnitudes(F a, F b) {
  return {MaxMagnitudesOf(a.lo, b.lo), MaxMagnitudesOf(a.hi, b.hi)};
}
inline void StoreSevens(int8_t* p, I a) {
  const __m256i mask = _mm256_set1_epi32(127);
  StoreLowBytes(p, {_mm256_srli_epi32(a.lo, 7), _mm256_srli_epi32(a.hi, 7)},
                {_mm256_and_si256(a.lo, mask), _mm256_and_si256(a.hi, mask)});
}
inline B LoadFirstBytes(const int8_t* p, uint32_t n) {
  const auto quarter = [&](uint32_t at) {
    return at < n ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + at)) : _mm_setzero_si128();
  };
  return {_mm256_set_m128i(quarter(16), quarter(0)), _mm256_set_m128i(quarter(48), quarter(32))};
}
template <int kHalf>
inline void InterleaveHalf(__m256i r0, __m256i r1, __m256i r2, __m256i r3, __m256i* low,
                           __m256i* high) {
  __m256i a, b;
  if constexpr (kHalf == 0) {
    a = _mm256_unpacklo_epi8(r0, r1);
    b = _mm256_unpacklo_epi8(r2, r3);
  } else {
    a = _mm256_unpackhi_epi8(r0, r1);
    b = _mm256_unpackhi_epi8(r2, r3);
  }
  *low = _mm256_unpacklo_epi16(a, b);
  *high = _mm256_unpackhi_epi16(a, b);
}
template <int kHalf>
inline void Interleave(const B* rows, B* blocks) {
  InterleaveHalf<kHalf>(rows[0].lo, rows[1].lo, rows[2].lo, rows[3].lo, &blocks[0].lo,
                        &blocks[1].lo);
  InterleaveHalf<kHalf>(rows[0].hi, rows[1].hi, rows[2].hi, rows[3].hi, &blocks[0].hi,
                        &blocks[1].hi);
}
// vpmaddubsw cannot saturate: 127 * 128 * 2 = 32,512.
inline I DotSigned(I acc, int32_t a, B bytes) {
  const __m256i wide = _mm256_set1_epi32(a);
  const __m256i ones = _mm256_set1_epi16(1);
  const __m256i lo = _mm256_madd_epi16(_mm256_maddubs_epi16(wide, bytes.lo), ones);
  const __m256i hi = _mm256_madd_epi16(_mm256_maddubs_epi16(wide, bytes.hi), ones);
  return {_mm256_add_epi32(acc.lo, lo), _mm256_add_epi32(acc.hi, hi)};
}
inline I JoinSevens(I upper, I lower) {
  return {_mm256_add_epi32(_mm256_slli_epi32(upper.lo, 7), lower.lo),
          _mm256_add_epi32(_mm256_slli_epi32(upper.hi, 7), lower.hi)};
}
inline void StoreQuarters(float* p, F a, uint32_t n) {
  _mm_storeu_ps(p, _mm256_castps256_ps128(a.lo));
  if (n > 16) _mm_storeu_ps(p + 16, _mm256_extractf128_ps(a.lo, 1));
  if (n > 32) _mm_storeu_ps(p + 32, _mm256_castps256_ps128(a.hi));
  if (n > 48) _mm_storeu_ps(p + 48, _mm256_extractf128_ps(a.hi, 1));
}

#else  // portable

inline F MaxMagnitudes(F a, F b) {
  F r;
  for (uint32_t i = 0; i < kLanes; ++i) {
    const uint32_t x = FloatToBits(a.v[i]) & 0x7FFFFFFFu;
    const uint32_t y = FloatToBits(b.v[i]) & 0x7FFFFFFFu;
    r.v[i] = BitsToFloat(x > y ? x : y);
  }
  return r;
}
inline void StoreSevens(int8_t* p, I a) {
  for (uint32_t i = 0; i < kLanes; ++i) {
    p[i] = static_cast<int8_t>(a.v[i] >> 7);
    p[kLanes + i] = static_cast<int8_t>(a.v[i] & 127);
  }
}
inline B LoadFirstBytes(const int8_t* p, uint32_t n) {
  B r;
  for (uint32_t i = 0; i < 64; ++i) r.v[i] = i < n ? static_cast<uint8_t>(p[i]) : uint8_t{0};
  return r;
}
template <int kHalf>
inline void Interleave(const B* rows, B* blocks) {
  for (uint32_t j = 0; j < 2; ++j) {
    for (uint32_t i = 0; i < 64; ++i) {
      const uint32_t lane = i / 4;
      const uint32_t d = lane / 4 * 16 + (2 * kHalf + j) * 4 + lane % 4;
      blocks[j].v[i] = rows[i % 4].v[d];
    }
  }
}
inline I DotSigned(I acc, int32_t a, B bytes) {
  const uint32_t bits = static_cast<uint32_t>(a);
  for (uint32_t byte = 0; byte < 4; ++byte) {
    const int32_t x = static_cast<int8_t>(bits >> (8 * byte));
    for (uint32_t i = 0; i < kLanes; ++i) {
      acc.v[i] += int32_t{static_cast<int8_t>(bytes.v[4 * i + byte])} * x;
    }
  }
  return acc;
}
inline I JoinSevens(I upper, I lower) {
  I r;
  for (uint32_t i = 0; i < kLanes; ++i) r.v[i] = upper.v[i] * 128 + lower.v[i];
  return r;
}
inline void StoreQuarters(float* p, F a, uint32_t n) {
  for (uint32_t i = 0; i < kLanes; ++i) {
    if (i / 4 * 16 < n) p[i / 4 * 16 + i % 4] = a.v[i];
  }
}

#endif

}  // namespace kvrm::ops::KVRM_LANES_NS
