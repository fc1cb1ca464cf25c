#include "base/superblock.h"

#include <algorithm>
#include <optional>
#include <string>

namespace kvrm {
namespace {

constexpr uint64_t kHugePageBytes = 2u << 20;

SuperblockChoice ChoiceOf(uint64_t superblock_bytes, uint64_t page_bytes) {
  const uint64_t pages = std::min<uint64_t>(superblock_bytes / page_bytes, kMaxPagesPerSuperblock);
  const uint64_t unused = superblock_bytes - pages * page_bytes;
  return {superblock_bytes, static_cast<uint32_t>(pages),
          static_cast<double>(unused) / static_cast<double>(superblock_bytes)};
}

bool MeetsBounds(const SuperblockChoice& choice, uint64_t part_page_bytes) {
  const bool long_runs = choice.pages_per_superblock * part_page_bytes >= kGoodRunBytes ||
                         choice.pages_per_superblock == kMaxPagesPerSuperblock;
  return long_runs && choice.waste <= kMaxSuperblockWaste;
}

std::optional<SuperblockChoice> SmallestWithin(uint64_t step_bytes, uint64_t page_bytes,
                                               uint64_t part_page_bytes) {
  for (uint64_t s = step_bytes; s <= kMaxSuperblockBytes; s += step_bytes) {
    const SuperblockChoice choice = ChoiceOf(s, page_bytes);
    if (MeetsBounds(choice, part_page_bytes)) return choice;
  }
  return std::nullopt;
}

}  // namespace

Result<SuperblockChoice> ChooseSuperblock(uint32_t num_parts, uint64_t part_page_bytes) {
  if (num_parts == 0) return InvalidInput("num_parts is 0, must be at least 1");
  if (part_page_bytes == 0) return InvalidInput("part_page_bytes is 0, must be at least 1");
  // Division instead of a product: both numbers come from a file.
  if (part_page_bytes > kMaxSuperblockBytes / num_parts) {
    return Unsupported("a KV page of " + std::to_string(num_parts) + " parts of " +
                       std::to_string(part_page_bytes) + " bytes is above the limit of " +
                       std::to_string(kMaxSuperblockBytes) + " bytes a superblock");
  }
  const uint64_t page_bytes = num_parts * part_page_bytes;
  if (auto choice = SmallestWithin(kHugePageBytes, page_bytes, part_page_bytes)) return *choice;
  if (auto choice = SmallestWithin(kSuperblockUnit, page_bytes, part_page_bytes)) return *choice;
  SuperblockChoice best;
  best.waste = 2;  // above any share
  for (uint64_t s = kSuperblockUnit; s <= kMaxSuperblockBytes; s += kSuperblockUnit) {
    const SuperblockChoice choice = ChoiceOf(s, page_bytes);
    if (choice.pages_per_superblock > 0 && choice.waste < best.waste) best = choice;
  }
  return best;
}

}  // namespace kvrm
