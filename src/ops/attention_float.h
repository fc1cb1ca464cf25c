// Attention over float and fp16 pages: scores and values of one chunk. Included once per machine
// after attention_tile.h.
#pragma once

#include "ops/attention_tile.h"

namespace kvrm::ops::KVRM_LANES_NS {

template <KvFormat kFormat>
inline F LoadKv(const std::byte* base, size_t value) {
  if constexpr (kFormat == KvFormat::kF32) {
    return Load(reinterpret_cast<const float*>(base) + value);
  } else {
    return LoadHalf(reinterpret_cast<const uint16_t*>(base) + value);
  }
}

// scores[q][16 pages ..] = chain over d of query[q][d] * K[d], for Q queries and PG pages at once:
// Q * PG independent chains hide the fma latency. `fetch`: the V tiles, which lie behind the K
// tiles, are brought near meanwhile.
template <KvFormat kFormat, uint32_t Q, uint32_t PG>
inline void ScoreTile(const float* const* query, const std::byte* const* k_tile, uint32_t head_dim,
                      bool fetch, float* const* scores, uint32_t first_page) {
  constexpr size_t kRowBytes = kPageTokens * kValueBytes<kFormat>;
  const size_t tile_bytes = head_dim * kRowBytes;
  F acc[Q][PG];
  for (uint32_t q = 0; q < Q; ++q) {
    for (uint32_t g = 0; g < PG; ++g) acc[q][g] = Zero();
  }
  for (uint32_t d = 0; d < head_dim; ++d) {
    F k[PG];
    for (uint32_t g = 0; g < PG; ++g) k[g] = LoadKv<kFormat>(k_tile[g], size_t{d} * kPageTokens);
    if (fetch && d % (64 / kRowBytes) == 0) {
      for (uint32_t g = 0; g < PG; ++g) PrefetchNear(k_tile[g] + tile_bytes + d * kRowBytes);
    }
    for (uint32_t q = 0; q < Q; ++q) {
      const F x = Set(query[q][d]);
      for (uint32_t g = 0; g < PG; ++g) acc[q][g] = Fma(x, k[g], acc[q][g]);
    }
  }
  for (uint32_t q = 0; q < Q; ++q) {
    for (uint32_t g = 0; g < PG; ++g) Store(scores[q] + (first_page + g) * kPageTokens, acc[q][g]);
  }
}

template <KvFormat kFormat, uint32_t Q, uint32_t PG>
inline void ScorePages(const float* const* query, const ChunkPages& pages, size_t k_offset,
                       uint32_t head_dim, bool fetch, float* const* scores) {
  const std::byte* tiles[PG];
  uint32_t page = pages.begin;
  for (; page + PG <= pages.end; page += PG) {
    for (uint32_t g = 0; g < PG; ++g) tiles[g] = pages.page[page + g] + k_offset;
    ScoreTile<kFormat, Q, PG>(query, tiles, head_dim, fetch, scores, page);
  }
  for (; page < pages.end; ++page) {
    tiles[0] = pages.page[page] + k_offset;
    ScoreTile<kFormat, Q, 1>(query, tiles, head_dim, fetch, scores, page);
  }
}

// out[q][d..] continues its chain over tokens [begin, end) ascending: += p[q][t] * V[t][d..], for Q
// queries x D blocks of 16. Storing and loading a chain between ranges does not change it.
template <KvFormat kFormat, uint32_t Q, uint32_t D>
inline void ValueTile(const float* const* p, const ChunkPages& pages, size_t v_offset,
                      uint32_t head_dim, uint32_t first_d, uint32_t begin, uint32_t end,
                      NextKeys next, float* const* out) {
  const size_t row_bytes = head_dim * kValueBytes<kFormat>;
  F acc[Q][D];
  for (uint32_t q = 0; q < Q; ++q) {
    for (uint32_t d = 0; d < D; ++d) acc[q][d] = Load(out[q] + first_d + d * kLanes);
  }
  for (uint32_t t = begin; t < end;) {
    const uint32_t page = t / kPageTokens;
    const std::byte* tile = pages.page[page] + v_offset;
    const bool fetch = next.pages != nullptr && page >= next.pages->begin && page < next.pages->end;
    const std::byte* next_tile = fetch ? next.pages->page[page] + next.k_offset : tile;
    const uint32_t stop = (page + 1) * kPageTokens < end ? (page + 1) * kPageTokens : end;
    for (; t < stop; ++t) {
      const size_t row = t % kPageTokens * row_bytes;
      F value[D];
      for (uint32_t d = 0; d < D; ++d) {
        value[d] = LoadKv<kFormat>(tile + row, first_d + d * kLanes);
      }
      for (size_t line = 0; fetch && line < row_bytes; line += 64) {
        PrefetchNear(next_tile + row + line);
      }
      for (uint32_t q = 0; q < Q; ++q) {
        const F x = Set(p[q][t]);
        for (uint32_t d = 0; d < D; ++d) acc[q][d] = Fma(x, value[d], acc[q][d]);
      }
    }
  }
  for (uint32_t q = 0; q < Q; ++q) {
    for (uint32_t d = 0; d < D; ++d) Store(out[q] + first_d + d * kLanes, acc[q][d]);
  }
}

template <KvFormat kFormat, uint32_t Q>
inline void ValuePages(const float* const* p, const ChunkPages& pages, size_t v_offset,
                       uint32_t head_dim, uint32_t begin, uint32_t end, NextKeys next,
                       float* const* out) {
  if (begin >= end) return;
  uint32_t d = 0;
  for (; d + 64 <= head_dim; d += 64, next.pages = nullptr) {
    ValueTile<kFormat, Q, 4>(p, pages, v_offset, head_dim, d, begin, end, next, out);
  }
  for (; d < head_dim; d += kLanes) {
    ValueTile<kFormat, Q, 1>(p, pages, v_offset, head_dim, d, begin, end, {nullptr, 0}, out);
  }
}

// (m, l, o) of one chunk. `first`: no other tile has passed over these pages, so they are fetched.
template <KvFormat kFormat, uint32_t Q>
inline void FloatChunk(const AttentionArgs& args, const ChunkPages& pages, uint32_t kv_head,
                       bool first, NextKeys next, QueryTile& tile) {
  constexpr uint32_t kPages = Q <= 3 ? 4 : 2;
  const size_t v_offset = ValueOffset<kFormat>(args, kv_head);
  ScorePages<kFormat, Q, kPages>(tile.query, pages, KeyOffset<kFormat>(args, kv_head),
                                 args.head_dim, first, tile.scores);
  for (uint32_t q = 0; q < Q; ++q) {
    tile.m[q] = FinishScores(args.scale, args.soft_cap, tile.scores[q], tile.visible[q]);
  }
  for (uint32_t q = 0; q < Q; ++q) {
    tile.l[q] =
        ExpScores(tile.scores[q], tile.visible[q], tile.m[q], [](uint32_t, F p) { return p; });
  }
  // What all queries see runs as one tile; a query's own head and tail run alone, in order. A place
  // that a query does not see must not be read: 0 * NaN of a recycled place is NaN (num-1, rule 8).
  uint32_t begin = tile.visible[0].first;
  uint32_t end = tile.visible[0].end;
  for (uint32_t q = 0; q < Q; ++q) {
    begin = tile.visible[q].first > begin ? tile.visible[q].first : begin;
    end = tile.visible[q].end < end ? tile.visible[q].end : end;
    for (uint32_t d = 0; d < args.head_dim; d += kLanes) Store(tile.out[q] + d, Zero());
  }
  if (end < begin) end = begin;
  const auto alone = [&](uint32_t q, uint32_t from, uint32_t to) {
    ValuePages<kFormat, 1>(tile.scores + q, pages, v_offset, args.head_dim, from, to, {nullptr, 0},
                           tile.out + q);
  };
  for (uint32_t q = 0; q < Q; ++q) {
    alone(q, tile.visible[q].first, tile.visible[q].end < begin ? tile.visible[q].end : begin);
  }
  ValuePages<kFormat, Q>(tile.scores, pages, v_offset, args.head_dim, begin, end, next, tile.out);
  for (uint32_t q = 0; q < Q; ++q) {
    alone(q, tile.visible[q].first > end ? tile.visible[q].first : end, tile.visible[q].end);
  }
}

}  // namespace kvrm::ops::KVRM_LANES_NS
