// The superblock rule: how many bytes S the page pool takes from the system at once, and how many
// pages P such a superblock holds (docs/architecture.md, section 5). Pure; thread-safe.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace kvrm {

inline constexpr uint64_t kSuperblockUnit = 64 * 1024;      // S is a multiple of it
inline constexpr uint64_t kMaxSuperblockBytes = 16u << 20;  // and not above this
inline constexpr uint32_t kMaxPagesPerSuperblock = 64;      // one word of free map
inline constexpr uint64_t kGoodRunBytes = 128 * 1024;       // a full run within one part
inline constexpr double kMaxSuperblockWaste = 0.02;         // share of S that no page covers

struct SuperblockChoice {
  uint64_t superblock_bytes = 0;
  uint32_t pages_per_superblock = 0;
  double waste = 0;  // share of S that no page covers
};

// For pages of `num_parts` parts of `part_page_bytes` (b) each: among multiples of 64 KiB up to
// 16 MiB with P <= 64, the smallest S with P * b >= 128 KiB (or P = 64) and waste <= 2 %; whole
// multiples of 2 MiB come first, so that huge pages back a superblock without a remainder; if no S
// meets the bounds, the S of least waste, the smallest of equals.
// Errors: no parts, no bytes, one page above 16 MiB.
Result<SuperblockChoice> ChooseSuperblock(uint32_t num_parts, uint64_t part_page_bytes);

}  // namespace kvrm
