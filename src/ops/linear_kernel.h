// The linear op over panels of 16 outputs. Included once per machine after lanes.h.
//
// One tile for all: R rows x P panels in registers, codes unpacked there. Panels are taken P at a
// time, one or two; the first tile of rows reads them from memory, and fetches the panels that come
// next; the other tiles find them in the first-level cache. With few rows memory bandwidth is the
// limit, with many arithmetic. (Refused: panels unpacked once into scratch; decisions/001.)
//
// One chain per output: s32 dot per group of 32, then
//   kQ4: acc = fma(d * scale, s, acc); acc = fma(m, scaled_sum, acc)
//   kQ8: acc = fma(d * scale, s + offset, acc)
// in ascending groups, so that no choice of tiles shows (num-1, rules 1 to 5).
#pragma once

#include "ops/lanes.h"
#include "ops/op_args.h"

namespace kvrm::ops::KVRM_LANES_NS {

// Accumulators (twice R x P vectors) and codes should fit into the registers.
inline constexpr uint32_t kTileRows = 6;
inline constexpr uint32_t kTilePanels = 2;
// Up to so many rows panels go one at a time: memory answers one ascending stream faster
// (measured: 38 against 31 GB/s for q4 and one row).
inline constexpr uint32_t kLonePanelRows = 3;

inline size_t Q8PanelBytes(uint32_t k) {
  return (size_t{k / kGroup} * (kQ8GroupBytes + 2 * kLanes) + 63) / 64 * 64;
}

inline size_t PanelBytesOf(Encoding encoding, uint32_t k) {
  if (encoding == Encoding::kF32) return size_t{k} * kLanes * sizeof(float);
  return encoding == Encoding::kQ4 ? size_t{k / kGroup} * kQ4GroupBytes : Q8PanelBytes(k);
}

struct LinearRow {
  const int8_t* codes;
  const float* scale;
  const float* scaled_sum;
  const int32_t* offset;
};

inline LinearRow RowOf(const LinearArgs& args, uint32_t row) {
  const std::byte* base = args.in + row * args.in_stride;
  const uint32_t groups = args.k / kGroup;
  const float* scale = reinterpret_cast<const float*>(base + args.k);
  return {reinterpret_cast<const int8_t*>(base), scale, scale + groups,
          reinterpret_cast<const int32_t*>(scale + 2 * groups)};
}

inline int32_t Four(const int8_t* codes) {
  int32_t x;
  __builtin_memcpy(&x, codes, 4);
  return x;
}

// Of rows [row, row + R) those from `first` on.
template <uint32_t R, uint32_t P>
inline void StoreRows(const LinearArgs& args, uint32_t row, uint32_t first, uint32_t panel,
                      const F (&acc)[R][P]) {
  for (uint32_t r = first; r < R; ++r) {
    const size_t add_row = args.add_index == nullptr ? row + r : args.add_index[row + r];
    for (uint32_t p = 0; p < P; ++p) {
      const size_t column = size_t{panel + p} * kLanes;
      const F sum = args.bias == nullptr ? acc[r][p] : Add(Load(args.bias + column), acc[r][p]);
      const F out =
          args.add == nullptr ? sum : Add(Load(args.add + add_row * args.out_stride + column), sum);
      Store(args.out + (row + r) * args.out_stride + column, out);
    }
  }
}

template <uint32_t R, uint32_t P>
inline void StoreTile(const LinearArgs& args, uint32_t row, uint32_t panel, const F (&acc)[R][P]) {
  StoreRows<R, P>(args, row, 0, panel, acc);
}

// What a tile brings near of the panels `ahead` bytes on: lines `first`, `first` + `step`, .. of
// every group. Tiles of the same panels share them out, so that memory is always busy.
struct Fetch {
  size_t ahead;
  uint32_t first;  // bytes; past the group: nothing
  uint32_t step;   // bytes
};

template <uint32_t R, uint32_t P>
inline void TileQ4(const LinearArgs& args, uint32_t row, uint32_t panel, Fetch fetch) {
  const uint32_t groups = args.k / kGroup;
  const size_t panel_bytes = size_t{groups} * kQ4GroupBytes;
  const auto* w = reinterpret_cast<const uint8_t*>(args.panels) + panel * panel_bytes;
  LinearRow rows[R];
  for (uint32_t r = 0; r < R; ++r) rows[r] = RowOf(args, row + r);
  F acc[R][P];
  for (uint32_t r = 0; r < R; ++r) {
    for (uint32_t p = 0; p < P; ++p) acc[r][p] = Zero();
  }
  for (uint32_t g = 0; g < groups; ++g) {
    I s[R][P];
    for (uint32_t r = 0; r < R; ++r) {
      for (uint32_t p = 0; p < P; ++p) s[r][p] = ZeroInt();
    }
    const uint8_t* group = w + size_t{g} * kQ4GroupBytes;
    for (uint32_t p = 0; p < P; ++p) {
      for (uint32_t line = fetch.first; line < kQ4GroupBytes; line += fetch.step) {
        Prefetch(group + p * panel_bytes + line + fetch.ahead);
      }
    }
    for (uint32_t j = 0; j < 4; ++j) {
      B low[P];
      B high[P];
      for (uint32_t p = 0; p < P; ++p) {
        const B packed = LoadBytes(group + p * panel_bytes + j * 64);
        low[p] = LowNibbles(packed);
        high[p] = HighNibbles(packed);
      }
      for (uint32_t r = 0; r < R; ++r) {
        const int8_t* x = rows[r].codes + g * kGroup + j * 8;
        for (uint32_t p = 0; p < P; ++p) s[r][p] = DotNibbles(s[r][p], low[p], Four(x));
        for (uint32_t p = 0; p < P; ++p) s[r][p] = DotNibbles(s[r][p], high[p], Four(x + 4));
      }
    }
    for (uint32_t p = 0; p < P; ++p) {
      const auto* halves = reinterpret_cast<const uint16_t*>(group + p * panel_bytes + 256);
      const F d = LoadHalf(halves);
      const F m = LoadHalf(halves + kLanes);
      for (uint32_t r = 0; r < R; ++r) {
        acc[r][p] = Fma(Mul(d, Set(rows[r].scale[g])), ToFloat(s[r][p]), acc[r][p]);
        acc[r][p] = Fma(m, Set(rows[r].scaled_sum[g]), acc[r][p]);
      }
    }
  }
  StoreTile<R, P>(args, row, panel, acc);
}

template <uint32_t R, uint32_t P>
inline void TileQ8(const LinearArgs& args, uint32_t row, uint32_t panel, Fetch fetch) {
  const uint32_t groups = args.k / kGroup;
  const size_t panel_bytes = Q8PanelBytes(args.k);
  const auto* w = reinterpret_cast<const uint8_t*>(args.panels) + panel * panel_bytes;
  LinearRow rows[R];
  for (uint32_t r = 0; r < R; ++r) rows[r] = RowOf(args, row + r);
  F acc[R][P];
  for (uint32_t r = 0; r < R; ++r) {
    for (uint32_t p = 0; p < P; ++p) acc[r][p] = Zero();
  }
  for (uint32_t g = 0; g < groups; ++g) {
    I s[R][P];
    for (uint32_t r = 0; r < R; ++r) {
      for (uint32_t p = 0; p < P; ++p) s[r][p] = SetInt(rows[r].offset[g]);
    }
    const uint8_t* group = w + size_t{g} * kQ8GroupBytes;
    for (uint32_t p = 0; p < P; ++p) {
      for (uint32_t line = fetch.first; line < kQ8GroupBytes; line += fetch.step) {
        Prefetch(group + p * panel_bytes + line + fetch.ahead);
      }
    }
    for (uint32_t j = 0; j < 8; ++j) {
      B codes[P];
      for (uint32_t p = 0; p < P; ++p) codes[p] = LoadBytes(group + p * panel_bytes + j * 64);
      for (uint32_t r = 0; r < R; ++r) {
        const int32_t x = Four(rows[r].codes + g * kGroup + j * 4);
        for (uint32_t p = 0; p < P; ++p) s[r][p] = Dot(s[r][p], codes[p], x);
      }
    }
    for (uint32_t p = 0; p < P; ++p) {
      const uint8_t* scales = w + p * panel_bytes + size_t{groups} * kQ8GroupBytes;
      const F d = LoadHalf(reinterpret_cast<const uint16_t*>(scales + size_t{g} * 32));
      if (fetch.first == 0 && g % 2 == 0) Prefetch(scales + size_t{g} * 32 + fetch.ahead);
      for (uint32_t r = 0; r < R; ++r) {
        acc[r][p] = Fma(Mul(d, Set(rows[r].scale[g])), ToFloat(s[r][p]), acc[r][p]);
      }
    }
  }
  StoreTile<R, P>(args, row, panel, acc);
}

template <uint32_t P, Encoding kEncoding, uint32_t R>
inline void Tile(const LinearArgs& args, uint32_t row, uint32_t panel, Fetch fetch) {
  if constexpr (kEncoding == Encoding::kQ4) {
    TileQ4<R, P>(args, row, panel, fetch);
  } else {
    TileQ8<R, P>(args, row, panel, fetch);
  }
}

// All rows over panels [panel, panel + P), in tiles of nearly equal heights: 8 rows are 4 + 4.
// `near`: these panels and the next were read just now, nothing is fetched.
template <uint32_t P, Encoding kEncoding>
inline void PanelRows(const LinearArgs& args, uint32_t panel, size_t ahead, bool near) {
  uint32_t tiles = (args.num_rows + kTileRows - 1) / kTileRows;
  Fetch fetch = {ahead, near ? kQ8GroupBytes : 0, (tiles < 3 ? tiles : 3) * 64};
  for (uint32_t row = 0; row < args.num_rows; --tiles) {
    const uint32_t height = (args.num_rows - row + tiles - 1) / tiles;
    switch (height) {
      case 1:
        Tile<P, kEncoding, 1>(args, row, panel, fetch);
        break;
      case 2:
        Tile<P, kEncoding, 2>(args, row, panel, fetch);
        break;
      case 3:
        Tile<P, kEncoding, 3>(args, row, panel, fetch);
        break;
      case 4:
        Tile<P, kEncoding, 4>(args, row, panel, fetch);
        break;
      case 5:
        Tile<P, kEncoding, 5>(args, row, panel, fetch);
        break;
      default:
        Tile<P, kEncoding, 6>(args, row, panel, fetch);
        break;
    }
    row += height;
    fetch.first = fetch.first + 64 < fetch.step ? fetch.first + 64 : kQ8GroupBytes;
  }
}

template <Encoding kEncoding>
inline void LinearInt8(const LinearArgs& args, uint32_t panel, uint32_t end, bool near) {
  const size_t panel_bytes = PanelBytesOf(kEncoding, args.k);
  for (; args.num_rows > kLonePanelRows && panel + kTilePanels <= end; panel += kTilePanels) {
    PanelRows<kTilePanels, kEncoding>(args, panel, kTilePanels * panel_bytes, near);
  }
  for (; panel < end; ++panel) PanelRows<1, kEncoding>(args, panel, panel_bytes, near);
}

// float32: one fma chain per output in ascending k; K is never split (num-1, rule 4).
template <uint32_t R>
inline void FloatTile(const LinearArgs& args, uint32_t row, uint32_t panel) {
  const float* w = reinterpret_cast<const float*>(args.panels) + size_t{panel} * args.k * kLanes;
  const float* x[R];
  F acc[R][1];
  for (uint32_t r = 0; r < R; ++r) {
    x[r] = reinterpret_cast<const float*>(args.in + (row + r) * args.in_stride);
    acc[r][0] = Zero();
  }
  for (uint32_t i = 0; i < args.k; ++i) {
    const F column = Load(w + size_t{i} * kLanes);
    for (uint32_t r = 0; r < R; ++r) acc[r][0] = Fma(Set(x[r][i]), column, acc[r][0]);
  }
  StoreTile<R, 1>(args, row, panel, acc);
}

inline void LinearFloat(const LinearArgs& args, uint32_t panel, uint32_t end) {
  for (; panel < end; ++panel) {
    uint32_t row = 0;
    for (; row + 8 <= args.num_rows; row += 8) FloatTile<8>(args, row, panel);
    for (; row + 2 <= args.num_rows; row += 2) FloatTile<2>(args, row, panel);
    if (row < args.num_rows) FloatTile<1>(args, row, panel);
  }
}

}  // namespace kvrm::ops::KVRM_LANES_NS
