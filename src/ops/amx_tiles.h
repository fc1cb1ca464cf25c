// The matrix unit of x86-64 (AMX): eight tiles of up to sixteen rows of 64 bytes, and one product.
// Included once per machine after lanes.h, by kernels_amx.cc alone.
//
//   c[i][j] += sum over quads q, bytes b of a[i][4 q + b] * b[q][4 j + b]     exact in 32 bits
//
// a is sixteen rows as they lie in memory; b has four neighbouring values of k of one column side
// by side, which is how panels (tensor/encoding.h) and K (tensor/kv_tile.h) lie anyway. Sixteen
// cycles whatever the depth: 16 x 16 x 64 products, where VNNI takes 128 (32 deep: 64). Integer
// sums are exact, so results are those of the other machines, bit for bit.
//
// The names of tiles are written out because they must be literals. Compilers do not know what a
// tile reads: a TileFence stands between stores and the tiles that load them.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/lanes.h"

namespace kvrm::ops::KVRM_LANES_NS {

inline constexpr uint32_t kTileSide = 16;  // rows, and 32-bit columns, of a whole tile

// Sixteen rows, to be written out by a fold.
template <uint32_t... kRows>
struct Rows {};
using SixteenRows = Rows<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>;

struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles 0..3 are results of `num_rows` rows; 4 and 5 such rows of `depth` bytes; 6 and 7 `depth` /
// 4 quads. While a TileUse lives, this thread's tiles have these shapes; then they are given back,
// so that a switch to another thread does not save them.
class TileUse {
 public:
  explicit TileUse(uint32_t depth, uint32_t num_rows = kTileSide) {
    TileShapes shapes;
    for (uint32_t tile = 0; tile < 8; ++tile) {
      shapes.row_bytes[tile] = static_cast<uint16_t>(tile == 4 || tile == 5 ? depth : 64);
      shapes.rows[tile] = static_cast<uint8_t>(tile < 6 ? num_rows : depth / 4);
    }
    // To g++ 12 its load reads eight bytes and the other stores are dead: someone must read them.
    __asm__ volatile("" : : "r"(&shapes) : "memory");
    _tile_loadconfig(&shapes);
  }
  ~TileUse() { _tile_release(); }
  TileUse(const TileUse&) = delete;
  TileUse& operator=(const TileUse&) = delete;
};

// The first n lanes of p, the others 0. n in 1..16.
inline F LoadFirst(const float* p, uint32_t n) {
  return {_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1u), p)};
}

// Sixteen vectors as a square: rows become columns. Pairs, fours, then quarters change places.
inline void Transpose(F (&a)[kTileSide]) {
  __m512 b[kTileSide];
  for (uint32_t i = 0; i < kTileSide; i += 4) {
    const __m512 low01 = _mm512_unpacklo_ps(a[i].v, a[i + 1].v);
    const __m512 high01 = _mm512_unpackhi_ps(a[i].v, a[i + 1].v);
    const __m512 low23 = _mm512_unpacklo_ps(a[i + 2].v, a[i + 3].v);
    const __m512 high23 = _mm512_unpackhi_ps(a[i + 2].v, a[i + 3].v);
    b[i] = _mm512_shuffle_ps(low01, low23, 0x44);
    b[i + 1] = _mm512_shuffle_ps(low01, low23, 0xEE);
    b[i + 2] = _mm512_shuffle_ps(high01, high23, 0x44);
    b[i + 3] = _mm512_shuffle_ps(high01, high23, 0xEE);
  }
  // b[4 i + j], quarter q: column 4 q + j of rows 4 i ..
  for (uint32_t j = 0; j < 4; ++j) {
    const __m512 even = _mm512_shuffle_f32x4(b[j], b[4 + j], 0x88);
    const __m512 odd = _mm512_shuffle_f32x4(b[j], b[4 + j], 0xDD);
    const __m512 even2 = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0x88);
    const __m512 odd2 = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0xDD);
    a[j].v = _mm512_shuffle_f32x4(even, even2, 0x88);
    a[8 + j].v = _mm512_shuffle_f32x4(even, even2, 0xDD);
    a[4 + j].v = _mm512_shuffle_f32x4(odd, odd2, 0x88);
    a[12 + j].v = _mm512_shuffle_f32x4(odd, odd2, 0xDD);
  }
}

inline void TileFence() { __asm__ volatile("" ::: "memory"); }

}  // namespace kvrm::ops::KVRM_LANES_NS
