// Where the bytes of one KV head lie within its part of a page: sixteen tokens of one layer, K and
// V. Heads lie side by side, so that a part of a page is num_kv_heads of these.
//
//   f32, f16   K [head_dim][16], V [16][head_dim]
//   int8       K [head_dim / 4][16][4] of unsigned bytes, code + 128;
//              one line of 64 bytes: fp16 scales of K [16], of V [16];
//              V [16][head_dim] of signed bytes
//
// K is transposed, so that sixteen tokens are one vector of scores; int8 takes four d of a token
// together, what one dot instruction reads. No scale covers more than one token: a token's bytes
// never change once they are written, and copy-on-write is a copy of bytes.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "base/kv_view.h"

namespace kvrm {

inline constexpr uint32_t kKvTileTokens = 16;
inline constexpr uint32_t kKvScaleLineBytes = 64;

struct KvTile {
  uint32_t value_bytes;   // of one K or V
  uint64_t scales_begin;  // int8: the line of scales. Else equal to v_begin
  uint64_t v_begin;
  uint64_t head_bytes;
};

// Requires: head_dim is a multiple of 16.
constexpr KvTile KvTileOf(KvFormat format, uint32_t head_dim) {
  KVRM_CHECK(head_dim % 16 == 0, "a KV tile's rows are whole vectors");
  KvTile tile{};
  tile.value_bytes = format == KvFormat::kF32 ? 4 : format == KvFormat::kF16 ? 2 : 1;
  const uint64_t plane_bytes = uint64_t{kKvTileTokens} * head_dim * tile.value_bytes;
  tile.scales_begin = plane_bytes;
  tile.v_begin = plane_bytes + (format == KvFormat::kInt8 ? kKvScaleLineBytes : 0);
  tile.head_bytes = tile.v_begin + plane_bytes;
  return tile;
}

}  // namespace kvrm
