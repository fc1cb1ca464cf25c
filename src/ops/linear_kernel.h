// The linear op over panels of 16 outputs. Included once per machine after lanes.h.
//
// Few rows (decode): panels are streamed once, codes unpacked in registers, a tile of R rows x P
// panels at a time; memory bandwidth is the limit. Many rows (prefill): two panels are unpacked
// once into scratch and every row passes over them; arithmetic is the limit.
// Both follow one chain per output: s32 dot per group of 32, then
//   kQ4: acc = fma(d * scale, s, acc); acc = fma(m, scaled_sum, acc)
//   kQ8: acc = fma(d * scale, s + offset, acc)
// in ascending groups, so that the choice never shows (num-1, rules 1 to 5).
#pragma once

#include "ops/lanes.h"
#include "ops/op_args.h"

namespace kvrm::ops::KVRM_LANES_NS {

// Rows below which panels are streamed straight from memory (measured: the unpacking pays from
// about a dozen rows on).
inline constexpr uint32_t kStreamRows = 8;
inline constexpr uint32_t kTileRows = 6;

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

template <uint32_t R, uint32_t P>
inline void StoreTile(const LinearArgs& args, uint32_t row, uint32_t panel, const F (&acc)[R][P]) {
  for (uint32_t r = 0; r < R; ++r) {
    for (uint32_t p = 0; p < P; ++p) {
      const size_t at = (row + r) * args.out_stride + size_t{panel + p} * kLanes;
      Store(args.out + at, args.add == nullptr ? acc[r][p] : Add(Load(args.add + at), acc[r][p]));
    }
  }
}

template <uint32_t R, uint32_t P>
inline void StreamQ4(const LinearArgs& args, uint32_t row, uint32_t panel) {
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
    for (uint32_t j = 0; j < 4; ++j) {
      for (uint32_t p = 0; p < P; ++p) {
        const uint8_t* at = w + p * panel_bytes + size_t{g} * kQ4GroupBytes + j * 64;
        Prefetch(at + 4096);
        const B packed = LoadBytes(at);
        const B low = LowNibbles(packed);
        const B high = HighNibbles(packed);
        for (uint32_t r = 0; r < R; ++r) {
          const int8_t* x = rows[r].codes + g * kGroup + j * 8;
          s[r][p] = DotNibbles(s[r][p], low, Four(x));
          s[r][p] = DotNibbles(s[r][p], high, Four(x + 4));
        }
      }
    }
    for (uint32_t p = 0; p < P; ++p) {
      const auto* halves =
          reinterpret_cast<const uint16_t*>(w + p * panel_bytes + size_t{g} * kQ4GroupBytes + 256);
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
inline void StreamQ8(const LinearArgs& args, uint32_t row, uint32_t panel) {
  const uint32_t groups = args.k / kGroup;
  const size_t panel_bytes = (size_t{groups} * (kQ8GroupBytes + 32) + 63) / 64 * 64;
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
    for (uint32_t j = 0; j < 8; ++j) {
      for (uint32_t p = 0; p < P; ++p) {
        const uint8_t* at = w + p * panel_bytes + size_t{g} * kQ8GroupBytes + j * 64;
        Prefetch(at + 4096);
        const B codes = LoadBytes(at);
        for (uint32_t r = 0; r < R; ++r) {
          s[r][p] = Dot(s[r][p], codes, Four(rows[r].codes + g * kGroup + j * 4));
        }
      }
    }
    for (uint32_t p = 0; p < P; ++p) {
      const F d = LoadHalf(reinterpret_cast<const uint16_t*>(
          w + p * panel_bytes + size_t{groups} * kQ8GroupBytes + size_t{g} * 32));
      for (uint32_t r = 0; r < R; ++r) {
        acc[r][p] = Fma(Mul(d, Set(rows[r].scale[g])), ToFloat(s[r][p]), acc[r][p]);
      }
    }
  }
  StoreTile<R, P>(args, row, panel, acc);
}

// Two panels, unpacked: codes [group][8][P = 2][64], then d [group][2][16] and (q4) m.
struct Unpacked {
  uint8_t* codes;
  float* d;
  float* m;
};

inline void UnpackPanels(const LinearArgs& args, uint32_t panel, uint32_t num, Unpacked out) {
  const uint32_t groups = args.k / kGroup;
  const bool q4 = args.encoding == Encoding::kQ4;
  const size_t panel_bytes =
      q4 ? size_t{groups} * kQ4GroupBytes : (size_t{groups} * (kQ8GroupBytes + 32) + 63) / 64 * 64;
  for (uint32_t p = 0; p < num; ++p) {
    const auto* w = reinterpret_cast<const uint8_t*>(args.panels) + (panel + p) * panel_bytes;
    for (uint32_t g = 0; g < groups; ++g) {
      uint8_t* codes = out.codes + (size_t{g} * 16 + p) * 64;
      const size_t at = (size_t{g} * 2 + p) * kLanes;
      if (q4) {
        const uint8_t* group = w + size_t{g} * kQ4GroupBytes;
        Prefetch(group + 4096);
        for (uint32_t j = 0; j < 4; ++j) {
          const B packed = LoadBytes(group + j * 64);
          StoreBytes(codes + (2 * j) * 128, LowNibbles(packed));
          StoreBytes(codes + (2 * j + 1) * 128, HighNibbles(packed));
        }
        const auto* halves = reinterpret_cast<const uint16_t*>(group + 256);
        Store(out.d + at, LoadHalf(halves));
        Store(out.m + at, LoadHalf(halves + kLanes));
      } else {
        const uint8_t* group = w + size_t{g} * kQ8GroupBytes;
        for (uint32_t j = 0; j < 8; ++j) StoreBytes(codes + j * 128, LoadBytes(group + j * 64));
        Store(out.d + at, LoadHalf(reinterpret_cast<const uint16_t*>(
                              w + size_t{groups} * kQ8GroupBytes + size_t{g} * 32)));
      }
    }
  }
}

template <uint32_t R, uint32_t P, bool kIsQ4>
inline void UnpackedTile(const LinearArgs& args, uint32_t row, uint32_t panel, Unpacked w) {
  const uint32_t groups = args.k / kGroup;
  LinearRow rows[R];
  for (uint32_t r = 0; r < R; ++r) rows[r] = RowOf(args, row + r);
  F acc[R][P];
  for (uint32_t r = 0; r < R; ++r) {
    for (uint32_t p = 0; p < P; ++p) acc[r][p] = Zero();
  }
  for (uint32_t g = 0; g < groups; ++g) {
    I s[R][P];
    for (uint32_t r = 0; r < R; ++r) {
      for (uint32_t p = 0; p < P; ++p) s[r][p] = kIsQ4 ? ZeroInt() : SetInt(rows[r].offset[g]);
    }
    const uint8_t* codes = w.codes + size_t{g} * 1024;
    for (uint32_t j = 0; j < 8; ++j) {
      B c[P];
      for (uint32_t p = 0; p < P; ++p) c[p] = LoadBytes(codes + j * 128 + p * 64);
      for (uint32_t r = 0; r < R; ++r) {
        const int32_t x = Four(rows[r].codes + g * kGroup + j * 4);
        for (uint32_t p = 0; p < P; ++p) {
          s[r][p] = kIsQ4 ? DotNibbles(s[r][p], c[p], x) : Dot(s[r][p], c[p], x);
        }
      }
    }
    for (uint32_t p = 0; p < P; ++p) {
      const F d = Load(w.d + (size_t{g} * 2 + p) * kLanes);
      for (uint32_t r = 0; r < R; ++r) {
        acc[r][p] = Fma(Mul(d, Set(rows[r].scale[g])), ToFloat(s[r][p]), acc[r][p]);
        if constexpr (kIsQ4) {
          const F m = Load(w.m + (size_t{g} * 2 + p) * kLanes);
          acc[r][p] = Fma(m, Set(rows[r].scaled_sum[g]), acc[r][p]);
        }
      }
    }
  }
  StoreTile<R, P>(args, row, panel, acc);
}

template <uint32_t P, bool kIsQ4>
inline void UnpackedRows(const LinearArgs& args, uint32_t panel, Unpacked w) {
  uint32_t row = 0;
  for (; row + kTileRows <= args.num_rows; row += kTileRows) {
    UnpackedTile<kTileRows, P, kIsQ4>(args, row, panel, w);
  }
  switch (args.num_rows - row) {
    case 5:
      return UnpackedTile<5, P, kIsQ4>(args, row, panel, w);
    case 4:
      return UnpackedTile<4, P, kIsQ4>(args, row, panel, w);
    case 3:
      return UnpackedTile<3, P, kIsQ4>(args, row, panel, w);
    case 2:
      return UnpackedTile<2, P, kIsQ4>(args, row, panel, w);
    case 1:
      return UnpackedTile<1, P, kIsQ4>(args, row, panel, w);
    default:
      return;
  }
}

inline void LinearUnpacked(const LinearArgs& args, uint32_t panel, uint32_t end, Scratch scratch) {
  const uint32_t groups = args.k / kGroup;
  Unpacked w;
  w.codes = reinterpret_cast<uint8_t*>(scratch.data);
  w.d = reinterpret_cast<float*>(w.codes + size_t{groups} * 1024);
  w.m = w.d + size_t{groups} * 2 * kLanes;
  const bool q4 = args.encoding == Encoding::kQ4;
  for (; panel < end; panel += 2) {
    const uint32_t num = end - panel >= 2 ? 2 : 1;
    UnpackPanels(args, panel, num, w);
    if (num == 2) {
      q4 ? UnpackedRows<2, true>(args, panel, w) : UnpackedRows<2, false>(args, panel, w);
    } else {
      q4 ? UnpackedRows<1, true>(args, panel, w) : UnpackedRows<1, false>(args, panel, w);
    }
  }
}

// One to kStreamRows rows; P panels at a time, so that a lone row reads four streams.
template <uint32_t R, uint32_t P>
inline void StreamRows(const LinearArgs& args, uint32_t panel, uint32_t end) {
  const bool q4 = args.encoding == Encoding::kQ4;
  for (; panel + P <= end; panel += P) {
    q4 ? StreamQ4<R, P>(args, 0, panel) : StreamQ8<R, P>(args, 0, panel);
  }
  for (; panel < end; ++panel) {
    q4 ? StreamQ4<R, 1>(args, 0, panel) : StreamQ8<R, 1>(args, 0, panel);
  }
}

inline void LinearStream(const LinearArgs& args, uint32_t panel, uint32_t end) {
  switch (args.num_rows) {
    case 1:
      return StreamRows<1, 4>(args, panel, end);
    case 2:
      return StreamRows<2, 4>(args, panel, end);
    case 3:
      return StreamRows<3, 2>(args, panel, end);
    case 4:
      return StreamRows<4, 2>(args, panel, end);
    case 5:
      return StreamRows<5, 2>(args, panel, end);
    case 6:
      return StreamRows<6, 2>(args, panel, end);
    case 7:
      return StreamRows<7, 1>(args, panel, end);
    case 8:
      return StreamRows<8, 1>(args, panel, end);
    default:
      return;
  }
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

// Maxima of blocks of 256 outputs, a hint for the sampler; NaN is passed over here and found there.
// Adding 0 gives a zero its one sign.
inline void PanelMaxima(const LinearArgs& args, uint32_t panel, uint32_t end) {
  const F low = Set(-__builtin_inff());
  for (uint32_t row = 0; row < args.num_rows; ++row) {
    const float* y = args.out + row * args.out_stride;
    for (uint32_t begin = panel * kLanes; begin < end * kLanes; begin += 256) {
      const uint32_t stop = begin + 256 < args.n_live ? begin + 256 : args.n_live;
      F m = low;
      for (uint32_t i = begin; i < stop; i += kLanes) {
        const F x = Load(y + i);
        m = Max(stop - i < kLanes ? SelectFirst(stop - i, x, low) : x, m);
      }
      args.panel_max[row * args.panel_max_stride + begin / 256] = MaxLane(m) + 0.0f;
    }
  }
}

inline void Linear(const LinearArgs& args, uint32_t panel, uint32_t num_panels, Scratch scratch) {
  const uint32_t end = panel + num_panels;
  if (args.encoding == Encoding::kF32) {
    LinearFloat(args, panel, end);
  } else if (args.num_rows <= kStreamRows) {
    LinearStream(args, panel, end);
  } else {
    LinearUnpacked(args, panel, end, scratch);
  }
  if (args.panel_max != nullptr) PanelMaxima(args, panel, end);
}

}  // namespace kvrm::ops::KVRM_LANES_NS
