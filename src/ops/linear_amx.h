// The linear op of many rows on the matrix unit. Included once per machine after linear_kernel.h.
//
// A panel is unpacked once an item, into bytes that the unit reads (and scales that no one has to
// widen again): 640 bytes per group of 32. Then sixteen rows at a time: one product of 16 x 16 x 32
// a group, 16 cycles, and of each of its sixteen vectors of sums a conversion, a multiplication and
// one fma (q4: two), 24 (32) cycles on the two vector pipes. The sums go through memory, 1 KiB in
// the first-level cache, because tiles have no other way out; with their stores and loads a product
// takes as long as its chain, and the two overlap little: 1.3 times VNNI's speed
// (docs/decisions/004).
//
// What is left over past whole tiles of rows: up to kLooseRows rows by dots; more are the end of
// one more tile, of which the rows before are computed again and not stored.
#pragma once

#include "ops/amx_tiles.h"
#include "ops/linear_kernel.h"

namespace kvrm::ops::KVRM_LANES_NS {

inline constexpr uint32_t kMatrixRows = 2 * kTileSide;  // from so many rows on
inline constexpr uint32_t kLooseRows = 10;

struct UnpackedGroup {
  uint8_t codes[8][64];  // [quad of k][output][4]; signed for q8
  float d[kLanes];
  float m[kLanes];  // q4 alone
};
static_assert(sizeof(UnpackedGroup) == kUnpackedGroupBytes);

template <Encoding kEncoding>
inline void UnpackPanel(const std::byte* panel, uint32_t groups, UnpackedGroup* out) {
  const auto* codes = reinterpret_cast<const uint8_t*>(panel);
  if constexpr (kEncoding == Encoding::kQ4) {
    for (uint32_t g = 0; g < groups; ++g, codes += kQ4GroupBytes) {
      for (uint32_t j = 0; j < 4; ++j) {
        const B packed = LoadBytes(codes + j * 64);
        Prefetch(codes + j * 64 + groups * kQ4GroupBytes);
        StoreBytes(out[g].codes[2 * j], LowNibbles(packed));
        StoreBytes(out[g].codes[2 * j + 1], HighNibbles(packed));
      }
      const auto* halves = reinterpret_cast<const uint16_t*>(codes + 256);
      Prefetch(codes + 256 + groups * kQ4GroupBytes);
      Store(out[g].d, LoadHalf(halves));
      Store(out[g].m, LoadHalf(halves + kLanes));
    }
  } else {
    const auto* scales = reinterpret_cast<const uint16_t*>(codes + size_t{groups} * kQ8GroupBytes);
    for (uint32_t g = 0; g < groups; ++g, codes += kQ8GroupBytes) {
      for (uint32_t j = 0; j < 8; ++j)
        StoreBytes(out[g].codes[j], SignedBytes(LoadBytes(codes + j * 64)));
      Store(out[g].d, LoadHalf(scales + size_t{g} * kLanes));
    }
  }
}

// The scales of sixteen rows and their scaled sums, those of a group side by side:
// out [2 * groups][16].
inline void GatherScales(const LinearArgs& args, uint32_t row, float* out) {
  const uint32_t columns = 2 * (args.k / kGroup);
  const std::byte* const first = args.in + row * args.in_stride + args.k;
  for (uint32_t c = 0; c < columns; c += kLanes) {
    const uint32_t count = columns - c < kLanes ? columns - c : kLanes;
    F block[kTileSide];
    for (uint32_t r = 0; r < kTileSide; ++r) {
      block[r] = LoadFirst(reinterpret_cast<const float*>(first + r * args.in_stride) + c, count);
    }
    Transpose(block);
    for (uint32_t i = 0; i < count; ++i) Store(out + (c + i) * kTileSide, block[i]);
  }
}

// One group's sums of sixteen rows.
struct TileSums {
  alignas(64) int32_t of[kTileSide][kLanes];
};

// Adds a group to the outputs of sixteen rows: `scales` and `sums` are theirs. Each row is written
// out, so that sixteen outputs stay in registers: compilers give up on an array that a loop runs
// over.
template <Encoding kEncoding, uint32_t... kRows>
inline __attribute__((always_inline)) void AddGroup(Rows<kRows...>, F (&acc)[kTileSide],
                                                    const TileSums& dots, const UnpackedGroup& w,
                                                    const float* scales, const float* sums) {
  const F d = Load(w.d);
  if constexpr (kEncoding == Encoding::kQ4) {
    const F m = Load(w.m);
    ((acc[kRows] =
          Fma(m, Set(sums[kRows]),
              Fma(Mul(d, Set(scales[kRows])), ToFloat(LoadInts(dots.of[kRows])), acc[kRows]))),
     ...);
  } else {
    ((acc[kRows] = Fma(Mul(d, Set(scales[kRows])), ToFloat(LoadInts(dots.of[kRows])), acc[kRows])),
     ...);
  }
}

#define KVRM_GROUP_PRODUCT(C, A, B, G)        \
  do {                                        \
    _tile_zero(C);                            \
    _tile_loadd(A, x + (G) * kGroup, stride); \
    _tile_loadd(B, group[G].codes, 64);       \
    _tile_dpbssd(C, A, B);                    \
    _tile_stored(C, sums[C].of, 64);          \
  } while (false)

// Rows [row, row + 16) of one panel; those before `store_from` are known already.
template <Encoding kEncoding, uint32_t... kRows>
inline void MatrixTile(Rows<kRows...> rows, const LinearArgs& args, uint32_t row,
                       uint32_t store_from, uint32_t panel, const UnpackedGroup* group,
                       const float* scales) {
  const uint32_t groups = args.k / kGroup;
  const size_t stride = args.in_stride;
  const std::byte* const x = args.in + row * stride;
  const float* const row_sums = scales + groups * kTileSide;
  TileSums sums[4];
  F acc[kTileSide];
  ((acc[kRows] = Zero()), ...);
  const auto add = [&](uint32_t g, const TileSums& dots) __attribute__((always_inline)) {
    AddGroup<kEncoding>(rows, acc, dots, group[g], scales + g * kTileSide,
                        row_sums + g * kTileSide);
  };
  // A group's sums are read two products later, when they have arrived in the cache.
  KVRM_GROUP_PRODUCT(0, 4, 6, 0);
  if (groups > 1) KVRM_GROUP_PRODUCT(1, 5, 7, 1);
  uint32_t g = 0;
  for (; g + 5 < groups; g += 4) {
    KVRM_GROUP_PRODUCT(2, 4, 6, g + 2);
    add(g, sums[0]);
    KVRM_GROUP_PRODUCT(3, 5, 7, g + 3);
    add(g + 1, sums[1]);
    KVRM_GROUP_PRODUCT(0, 4, 6, g + 4);
    add(g + 2, sums[2]);
    KVRM_GROUP_PRODUCT(1, 5, 7, g + 5);
    add(g + 3, sums[3]);
  }
  const uint32_t rest = groups - g;  // 1..5, of which two are under way
  if (rest > 2) KVRM_GROUP_PRODUCT(2, 4, 6, g + 2);
  if (rest > 3) KVRM_GROUP_PRODUCT(3, 5, 7, g + 3);
  for (uint32_t i = 0; i < rest; ++i) {
    if (i == 4) KVRM_GROUP_PRODUCT(0, 4, 6, g + 4);
    add(g + i, sums[i % 4]);
  }
  F out[kTileSide][1];
  ((out[kRows][0] = acc[kRows]), ...);
  StoreRows<kTileSide, 1>(args, row, store_from - row, panel, out);
}
#undef KVRM_GROUP_PRODUCT

template <Encoding kEncoding>
inline void LooseRows(const LinearArgs& args, uint32_t row, uint32_t panel, uint32_t end) {
  LinearArgs rest = args;
  rest.in += row * args.in_stride;
  rest.out += row * args.out_stride;
  if (args.add_index != nullptr) {
    rest.add_index += row;
  } else if (args.add != nullptr) {
    rest.add += row * args.out_stride;
  }
  rest.num_rows = args.num_rows - row;
  LinearInt8<kEncoding>(rest, panel, end, /*near=*/true);
}

// `near`: the scratch holds these panels unpacked.
template <Encoding kEncoding>
inline void LinearMatrix(const LinearArgs& args, uint32_t panel, uint32_t end, bool near,
                         Scratch scratch) {
  const uint32_t groups = args.k / kGroup;
  const uint32_t loose = args.num_rows % kTileSide;
  const uint32_t num_rows = loose <= kLooseRows ? args.num_rows - loose : args.num_rows;
  auto* const scales = reinterpret_cast<float*>(scratch.data);
  auto* const unpacked = reinterpret_cast<UnpackedGroup*>(scales + 2 * groups * kTileSide);
  const TileUse tiles(kGroup);
  for (uint32_t first = panel; first < end; first += kUnpackedPanels) {
    const uint32_t count = end - first < kUnpackedPanels ? end - first : kUnpackedPanels;
    for (uint32_t p = 0; p < count && !(near && end - panel <= kUnpackedPanels); ++p) {
      UnpackPanel<kEncoding>(args.panels + (first + p) * PanelBytesOf(kEncoding, args.k), groups,
                             unpacked + size_t{p} * groups);
    }
    TileFence();
    for (uint32_t row = 0; row < num_rows; row += kTileSide) {
      const uint32_t begin = row + kTileSide <= num_rows ? row : num_rows - kTileSide;
      GatherScales(args, begin, scales);
      for (uint32_t p = 0; p < count; ++p) {
        MatrixTile<kEncoding>(SixteenRows{}, args, begin, row, first + p,
                              unpacked + size_t{p} * groups, scales);
      }
    }
  }
  if (num_rows < args.num_rows) LooseRows<kEncoding>(args, num_rows, panel, end);
}

}  // namespace kvrm::ops::KVRM_LANES_NS
