// Sixteen lanes: the vector that contract num-1 is written in (docs/numerics.md), on three
// machines.
//
// A translation unit defines KVRM_LANES_AVX512 or KVRM_LANES_AVX2, or neither (portable), and
// KVRM_LANES_NS, the namespace that keeps its copies apart from those of the other units: code in
// here and in the *_kernel.h files is compiled once for each machine. For the same reason neither
// may use std:: templates, whose out-of-line copies the linker would share across machines.
//
// F = 16 float, I = 16 int32, B = 64 bytes. Every operation is one IEEE rounding per lane, so all
// three give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(KVRM_LANES_AVX512) || defined(KVRM_LANES_AVX2)
#include <immintrin.h>
#endif

namespace kvrm::ops::KVRM_LANES_NS {

inline constexpr uint32_t kLanes = 16;

#if defined(KVRM_LANES_AVX512) || defined(KVRM_LANES_AVX2)

// Halves of eight floats: lanes 0..7 and 8..15 of a vector.
inline float TreeSumHalves(__m256 lo, __m256 hi) {
  const __m256 eight = _mm256_add_ps(lo, hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float MaxOfHalves(__m256 lo, __m256 hi) {
  const __m256 eight = _mm256_max_ps(lo, hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
inline float MaxBitsOfHalves(__m256i lo, __m256i hi) {
  const __m256i eight = _mm256_max_epi32(lo, hi);
  const __m128i four =
      _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  const __m128i one = _mm_max_epi32(two, _mm_shuffle_epi32(two, 0xB1));
  return __builtin_bit_cast(float, _mm_cvtsi128_si32(one));
}
inline int32_t SumInts(__m256i a) {
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xB1)));
}

#endif

#if defined(KVRM_LANES_AVX512)

struct F {
  __m512 v;
};
struct I {
  __m512i v;
};
struct B {
  __m512i v;
};

inline F Zero() { return {_mm512_setzero_ps()}; }
inline F Set(float x) { return {_mm512_set1_ps(x)}; }
inline F Load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void Store(float* p, F a) { _mm512_storeu_ps(p, a.v); }
inline F Add(F a, F b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F Sub(F a, F b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F Mul(F a, F b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F Div(F a, F b) { return {_mm512_div_ps(a.v, b.v)}; }
inline F Fma(F a, F b, F c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline F Max(F a, F b) { return {_mm512_max_ps(a.v, b.v)}; }  // b where either is NaN
inline F Min(F a, F b) { return {_mm512_min_ps(a.v, b.v)}; }
// Eight lanes of 16. (Masked by all ones: g++ 12 warns of its own header at the plain intrinsic.)
template <int kHalf>
inline __m256 HalfOf(F a) {
  return _mm512_maskz_extractf32x8_ps(0xFF, a.v, kHalf);
}
template <int kHalf>
inline __m256i HalfOf(__m512i a) {
  return _mm512_maskz_extracti32x8_epi32(0xFF, a, kHalf);
}
// The fixed tree over 16 lanes: i + (i + 8), then + 4, + 2, + 1.
inline float TreeSum(F a) { return TreeSumHalves(HalfOf<0>(a), HalfOf<1>(a)); }
// The greatest lane. Requires: no NaN. The sign of a zero is unspecified.
inline float MaxLane(F a) { return MaxOfHalves(HalfOf<0>(a), HalfOf<1>(a)); }
// The greatest magnitude in a and b, NaN being the greatest of all.
inline float MaxMagnitude(F a, F b) {
  const __m512i mask = _mm512_set1_epi32(0x7FFFFFFF);
  const __m512i max = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(a.v), mask),
                                       _mm512_and_si512(_mm512_castps_si512(b.v), mask));
  return MaxBitsOfHalves(HalfOf<0>(max), HalfOf<1>(max));
}
inline F ToFloat(I a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline I RoundToInt(F a) { return {_mm512_cvtps_epi32(a.v)}; }
inline F LoadHalf(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline void StoreHalf(uint16_t* p, F a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// a < b ? x : y, per lane; false for NaN.
inline F SelectLess(F a, F b, F x, F y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
}
// The first n lanes of x, the others of y. n in 0..16.
inline F SelectFirst(uint32_t n, F x, F y) {
  return {_mm512_mask_blend_ps(static_cast<__mmask16>((1u << n) - 1u), y.v, x.v)};
}
// 2^n as float, n per lane in -126..127.
inline F PowerOfTwo(I n) {
  return {
      _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n.v, _mm512_set1_epi32(127)), 23))};
}
inline I ZeroInt() { return {_mm512_setzero_si512()}; }
inline I SetInt(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline void StoreInt(int32_t* p, I a) { _mm512_storeu_si512(p, a.v); }
inline I LoadInts(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
// Stores the low bytes of a's lanes, then of b's, and returns their sum.
inline int32_t StoreLowBytes(int8_t* p, I a, I b) {
  const __m256i codes = _mm256_set_m128i(_mm512_cvtepi32_epi8(b.v), _mm512_cvtepi32_epi8(a.v));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), codes);
  const __m256i fours = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), codes);
  return SumInts(fours);
}
inline B LoadBytes(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
inline void StoreBytes(uint8_t* p, B a) { _mm512_storeu_si512(p, a.v); }
inline B LowNibbles(B a) { return {_mm512_and_si512(a.v, _mm512_set1_epi8(15))}; }
inline B HighNibbles(B a) {
  return {_mm512_and_si512(_mm512_srli_epi16(a.v, 4), _mm512_set1_epi8(15))};
}
// Codes counted from -128.
inline B SignedBytes(B a) { return {_mm512_xor_si512(a.v, _mm512_set1_epi8(-128))}; }
// acc[lane] += sum over i in 0..3 of codes[4 lane + i] (unsigned) * byte i of `a` (signed). Exact.
inline I Dot(I acc, B codes, int32_t a) {
  return {_mm512_dpbusd_epi32(acc.v, codes.v, _mm512_set1_epi32(a))};
}
// The same where every code is below 16.
inline I DotNibbles(I acc, B codes, int32_t a) { return Dot(acc, codes, a); }
inline void Prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
// Into the second-level cache.
inline void PrefetchNear(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

#elif defined(KVRM_LANES_AVX2)

struct F {
  __m256 lo, hi;
};
struct I {
  __m256i lo, hi;
};
struct B {
  __m256i lo, hi;
};

inline F Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void Store(float* p, F a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline F Add(F a, F b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline F Sub(F a, F b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline F Mul(F a, F b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline F Div(F a, F b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline F Fma(F a, F b, F c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline F Max(F a, F b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline F Min(F a, F b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline float TreeSum(F a) { return TreeSumHalves(a.lo, a.hi); }
inline float MaxLane(F a) { return MaxOfHalves(a.lo, a.hi); }
inline float MaxMagnitude(F a, F b) {
  const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
  const auto bits = [&](__m256 x) { return _mm256_castps_si256(_mm256_and_ps(x, mask)); };
  return MaxBitsOfHalves(_mm256_max_epi32(bits(a.lo), bits(b.lo)),
                         _mm256_max_epi32(bits(a.hi), bits(b.hi)));
}
inline F ToFloat(I a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline I RoundToInt(F a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
inline F LoadHalf(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline void StoreHalf(uint16_t* p, F a) {
  constexpr int kRound = _MM_FROUND_TO_NEAREST_INT;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.lo, kRound));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(a.hi, kRound));
}
inline F SelectLess(F a, F b, F x, F y) {
  return {_mm256_blendv_ps(y.lo, x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.hi, x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
inline F SelectFirst(uint32_t n, F x, F y) {
  const __m256i limit = _mm256_set1_epi32(static_cast<int>(n));
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i upper = _mm256_add_epi32(lanes, _mm256_set1_epi32(8));
  return {_mm256_blendv_ps(y.lo, x.lo, _mm256_castsi256_ps(_mm256_cmpgt_epi32(limit, lanes))),
          _mm256_blendv_ps(y.hi, x.hi, _mm256_castsi256_ps(_mm256_cmpgt_epi32(limit, upper)))};
}
inline F PowerOfTwo(I n) {
  const __m256i bias = _mm256_set1_epi32(127);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.lo, bias), 23)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.hi, bias), 23))};
}
inline I ZeroInt() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline I SetInt(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline void StoreInt(int32_t* p, I a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), a.hi);
}
inline int32_t StoreLowBytes(int8_t* p, I a, I b) {
  const __m256i low = _mm256_set1_epi32(0xFF);
  const auto words = [&](__m256i x, __m256i y) {
    return _mm256_packus_epi32(_mm256_and_si256(x, low), _mm256_and_si256(y, low));
  };
  const __m256i bytes = _mm256_packus_epi16(words(a.lo, a.hi), words(b.lo, b.hi));
  // Packing works within 128-bit halves: fours of bytes come out as a0 a2 b0 b2 | a1 a3 b1 b3.
  const __m256i codes =
      _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), codes);
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
  return SumInts(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
inline B LoadBytes(const uint8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
inline void StoreBytes(uint8_t* p, B a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), a.hi);
}
inline B LowNibbles(B a) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(a.lo, mask), _mm256_and_si256(a.hi, mask)};
}
inline B HighNibbles(B a) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(_mm256_srli_epi16(a.lo, 4), mask),
          _mm256_and_si256(_mm256_srli_epi16(a.hi, 4), mask)};
}
// vpmaddubsw would saturate (255 * 127 * 2), so bytes are widened to 16 bits first.
inline __m256i DotHalf(__m256i acc, __m256i codes, __m256i a) {
  const __m256i even = _mm256_madd_epi16(_mm256_and_si256(codes, _mm256_set1_epi16(0xFF)),
                                         _mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8));
  const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(codes, 8), _mm256_srai_epi16(a, 8));
  return _mm256_add_epi32(acc, _mm256_add_epi32(even, odd));
}
inline I Dot(I acc, B codes, int32_t a) {
  const __m256i wide = _mm256_set1_epi32(a);
  return {DotHalf(acc.lo, codes.lo, wide), DotHalf(acc.hi, codes.hi, wide)};
}
// Codes below 16 cannot saturate: 15 * 128 * 2 = 3,840.
inline I DotNibbles(I acc, B codes, int32_t a) {
  const __m256i wide = _mm256_set1_epi32(a);
  const __m256i ones = _mm256_set1_epi16(1);
  const __m256i lo = _mm256_madd_epi16(_mm256_maddubs_epi16(codes.lo, wide), ones);
  const __m256i hi = _mm256_madd_epi16(_mm256_maddubs_epi16(codes.hi, wide), ones);
  return {_mm256_add_epi32(acc.lo, lo), _mm256_add_epi32(acc.hi, hi)};
}
inline void Prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
// Into the second-level cache.
inline void PrefetchNear(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

#else  // portable

struct F {
  float v[16];
};
struct I {
  int32_t v[16];
};
struct B {
  uint8_t v[64];
};

#define KVRM_EACH(expr)                                    \
  do {                                                     \
    for (uint32_t i = 0; i < kLanes; ++i) r.v[i] = (expr); \
    return r;                                              \
  } while (false)

inline float BitsToFloat(uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline uint32_t FloatToBits(float x) { return __builtin_bit_cast(uint32_t, x); }
inline F Zero() { return F{}; }
inline F Set(float x) {
  F r;
  KVRM_EACH(x);
}
inline F Load(const float* p) {
  F r;
  KVRM_EACH(p[i]);
}
inline void Store(float* p, F a) {
  for (uint32_t i = 0; i < kLanes; ++i) p[i] = a.v[i];
}
inline F Add(F a, F b) {
  F r;
  KVRM_EACH(a.v[i] + b.v[i]);
}
inline F Sub(F a, F b) {
  F r;
  KVRM_EACH(a.v[i] - b.v[i]);
}
inline F Mul(F a, F b) {
  F r;
  KVRM_EACH(a.v[i] * b.v[i]);
}
inline F Div(F a, F b) {
  F r;
  KVRM_EACH(a.v[i] / b.v[i]);
}
inline F Fma(F a, F b, F c) {
  F r;
  KVRM_EACH(__builtin_fmaf(a.v[i], b.v[i], c.v[i]));
}
inline F Max(F a, F b) {
  F r;
  KVRM_EACH(a.v[i] > b.v[i] ? a.v[i] : b.v[i]);
}
inline F Min(F a, F b) {
  F r;
  KVRM_EACH(a.v[i] < b.v[i] ? a.v[i] : b.v[i]);
}
inline float TreeSum(F a) {
  for (uint32_t half = 8; half > 0; half /= 2) {
    for (uint32_t i = 0; i < half; ++i) a.v[i] = a.v[i] + a.v[i + half];
  }
  return a.v[0];
}
inline float MaxLane(F a) {
  float m = a.v[0];
  for (uint32_t i = 1; i < kLanes; ++i) m = a.v[i] > m ? a.v[i] : m;
  return m;
}
inline float MaxMagnitude(F a, F b) {
  uint32_t max = 0;
  for (uint32_t i = 0; i < kLanes; ++i) {
    const uint32_t x = FloatToBits(a.v[i]) & 0x7FFFFFFFu;
    const uint32_t y = FloatToBits(b.v[i]) & 0x7FFFFFFFu;
    max = x > max ? x : max;
    max = y > max ? y : max;
  }
  return BitsToFloat(max);
}
inline F ToFloat(I a) {
  F r;
  KVRM_EACH(static_cast<float>(a.v[i]));
}
inline int32_t RoundOne(float x) {  // as cvtps2dq: nearest even; INT32_MIN when out of range
  return x >= -2147483648.0f && x < 2147483648.0f ? static_cast<int32_t>(__builtin_rintf(x))
                                                  : static_cast<int32_t>(0x80000000u);
}
inline I RoundToInt(F a) {
  I r;
  KVRM_EACH(RoundOne(a.v[i]));
}
inline float HalfBitsToFloat(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t magnitude = h & 0x7FFFu;
  if (magnitude >= 0x7C00u) {  // infinity, or NaN made quiet as vcvtph2ps does
    const uint32_t quiet = magnitude > 0x7C00u ? 0x400000u : 0u;
    return BitsToFloat(sign | 0x7F800000u | quiet | ((magnitude & 0x3FFu) << 13));
  }
  if (magnitude >= 0x400u) return BitsToFloat(sign | ((magnitude << 13) + 0x38000000u));
  const float value = static_cast<float>(magnitude) * 5.9604644775390625e-8f;  // * 2^-24, exact
  return BitsToFloat(sign | FloatToBits(value));
}
inline uint16_t FloatToHalfBits(float x) {
  const uint32_t bits = FloatToBits(x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x1FFu));
  }
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);
  if (magnitude >= 0x38800000u) {
    const uint32_t rounded = magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | (rounded >> 13));
  }
  // Subnormal: adding 0.5 rounds at 2^-24, in the current (nearest even) mode.
  const float shifted = BitsToFloat(magnitude) + 0.5f;
  return static_cast<uint16_t>(sign | (FloatToBits(shifted) - 0x3F000000u));
}
inline F LoadHalf(const uint16_t* p) {
  F r;
  KVRM_EACH(HalfBitsToFloat(p[i]));
}
inline void StoreHalf(uint16_t* p, F a) {
  for (uint32_t i = 0; i < kLanes; ++i) p[i] = FloatToHalfBits(a.v[i]);
}
inline F SelectLess(F a, F b, F x, F y) {
  F r;
  KVRM_EACH(a.v[i] < b.v[i] ? x.v[i] : y.v[i]);
}
inline F SelectFirst(uint32_t n, F x, F y) {
  F r;
  KVRM_EACH(i < n ? x.v[i] : y.v[i]);
}
inline F PowerOfTwo(I n) {
  F r;
  KVRM_EACH(BitsToFloat((static_cast<uint32_t>(n.v[i]) + 127u) << 23));
}
inline I ZeroInt() { return I{}; }
inline I SetInt(int32_t x) {
  I r;
  KVRM_EACH(x);
}
inline void StoreInt(int32_t* p, I a) {
  for (uint32_t i = 0; i < kLanes; ++i) p[i] = a.v[i];
}
inline int32_t StoreLowBytes(int8_t* p, I a, I b) {
  int32_t sum = 0;
  for (uint32_t i = 0; i < kLanes; ++i) {
    p[i] = static_cast<int8_t>(a.v[i]);
    p[kLanes + i] = static_cast<int8_t>(b.v[i]);
    sum += p[i] + p[kLanes + i];
  }
  return sum;
}
inline B LoadBytes(const uint8_t* p) {
  B r;
  for (uint32_t i = 0; i < 64; ++i) r.v[i] = p[i];
  return r;
}
inline void StoreBytes(uint8_t* p, B a) {
  for (uint32_t i = 0; i < 64; ++i) p[i] = a.v[i];
}
inline B LowNibbles(B a) {
  B r;
  for (uint32_t i = 0; i < 64; ++i) r.v[i] = a.v[i] & 15u;
  return r;
}
inline B HighNibbles(B a) {
  B r;
  for (uint32_t i = 0; i < 64; ++i) r.v[i] = static_cast<uint8_t>(a.v[i] >> 4);
  return r;
}
inline I Dot(I acc, B codes, int32_t a) {
  const uint32_t bits = static_cast<uint32_t>(a);
  for (uint32_t byte = 0; byte < 4; ++byte) {
    const int32_t x = static_cast<int8_t>(bits >> (8 * byte));
    for (uint32_t i = 0; i < kLanes; ++i) acc.v[i] += int32_t{codes.v[4 * i + byte]} * x;
  }
  return acc;
}
inline I DotNibbles(I acc, B codes, int32_t a) { return Dot(acc, codes, a); }
inline void Prefetch(const void* p) { __builtin_prefetch(p); }
inline void PrefetchNear(const void* p) { __builtin_prefetch(p, 0, 2); }
#undef KVRM_EACH

#endif

// exp's Taylor polynomial of degree 6.
inline F ExpSeries(F r) {
  F p = Set(1.0f / 720.0f);
  p = Fma(p, r, Set(1.0f / 120.0f));
  p = Fma(p, r, Set(1.0f / 24.0f));
  p = Fma(p, r, Set(1.0f / 6.0f));
  p = Fma(p, r, Set(0.5f));
  p = Fma(p, r, Set(1.0f));
  p = Fma(p, r, Set(1.0f));
  return p;
}
// exp(x), our own: 2^n * p(r) with n = rint(x log2 e), r = x - n ln 2 in two fma steps, p of degree
// 6 (Taylor coefficients 1/k!; |r| <= 0.3466, relative error below 3e-7). Below -87.3 (and -inf):
// 0. Above 88: exp(88), finite. NaN stays NaN: the operands of Min and Max are ordered for it.
inline F Exp(F x) {
  const F low = Set(-87.3f);
  const F clamped = Min(Set(88.0f), Max(low, x));
  const I n = RoundToInt(Mul(clamped, Set(1.44269504088896341f)));
  const F nf = ToFloat(n);
  F r = Fma(nf, Set(-0.693359375f), clamped);
  r = Fma(nf, Set(2.12194440e-4f), r);
  return SelectLess(x, low, Zero(), Mul(ExpSeries(r), PowerOfTwo(n)));
}
// cap * tanh(x / cap), tanh(x) = 1 - 2 / (exp(2x) + 1).
inline F SoftCap(F x, float cap) {
  const F e = Exp(Mul(x, Set(2.0f / cap)));
  return Mul(Sub(Set(1.0f), Div(Set(2.0f), Add(e, Set(1.0f)))), Set(cap));
}

inline float ExpOne(float x) {
  float v[kLanes];
  Store(v, Exp(Set(x)));
  return v[0];
}

}  // namespace kvrm::ops::KVRM_LANES_NS
