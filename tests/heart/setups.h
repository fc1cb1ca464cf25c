// The pools that the heart's tests run on, by name: small enough that everything happens often.
// Each token place takes 4 bytes of each part.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "pager/pager.h"

namespace kvrm::heart {

struct SetupGroup {
  uint32_t page_tokens = 16;
  uint32_t window_tokens = 0;  // 0 = full
};

struct Setup {
  std::string_view name;
  std::vector<SetupGroup> groups;
  uint32_t superblocks = 6;  // that kv_bytes allows, over all groups
  uint32_t pages_per_superblock = 8;
  uint32_t max_seq_tokens = 400;
  bool prefix_index = true;
  bool scattered = false;
  uint32_t prefix_hash_bits = 128;
  uint32_t keep_pages = 16;
  bool delayed = false;  // the executor is one step behind

  PagerConfig Config() const;
};

std::span<const Setup> Setups();
std::optional<uint32_t> FindSetup(std::string_view name);

}  // namespace kvrm::heart
