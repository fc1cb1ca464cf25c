#include "shadow_store.h"

#include <algorithm>

namespace kvrm::heart {

ShadowStore::ShadowStore(const Pager& pager) {
  const auto& groups = pager.geometry().groups;
  for (uint32_t g = 0; g < groups.size(); ++g) groups_.push_back({groups[g], pager.base(g)});
}

void ShadowStore::Copy(const Pager::PageCopy& copy) const {
  const auto& [geometry, base] = groups_[copy.kv_group];
  for (uint32_t part = 0; part < geometry.num_parts; ++part) {
    std::byte* of_part = base + part * geometry.part_stride_bytes();
    std::memcpy(of_part + geometry.PageOffset(copy.destination),
                of_part + geometry.PageOffset(copy.source), geometry.part_page_bytes);
  }
}

void ShadowStore::Write(uint32_t group, uint32_t page, uint32_t place, uint64_t chain) const {
  const auto& [geometry, base] = groups_[group];
  std::byte* at = base + geometry.PageOffset(PageId{page}) + 4 * (place % geometry.page_tokens);
  for (uint32_t part = 0; part < geometry.num_parts; ++part) {
    const uint32_t value = ValueOf(group, part, chain);
    std::memcpy(at + part * geometry.part_stride_bytes(), &value, sizeof(value));
  }
}

std::optional<std::string> ShadowStore::FindWrong(uint32_t group, uint64_t offset_bytes,
                                                  uint32_t first_place, uint32_t num_pages,
                                                  std::span<const uint64_t> chain) const {
  const auto& [geometry, base] = groups_[group];
  for (uint32_t part = 0; part < geometry.num_parts; ++part) {
    const std::byte* at = base + offset_bytes + part * geometry.part_stride_bytes();
    const size_t end =
        std::min<size_t>(first_place + num_pages * geometry.page_tokens, chain.size());
    for (size_t place = first_place; place < end; ++place, at += 4) {
      uint32_t value;
      std::memcpy(&value, at, sizeof(value));
      if (value == ValueOf(group, part, chain[place])) continue;
      return "group " + std::to_string(group) + " part " + std::to_string(part) + " place " +
             std::to_string(place) + (value == kNone32 ? " was freed" : " holds another's bytes");
    }
  }
  return std::nullopt;
}

}  // namespace kvrm::heart
