#include "setups.h"

namespace kvrm::heart {

PagerConfig Setup::Config() const {
  PagerConfig config;
  for (const SetupGroup& each : groups) {
    KvGroupGeometry group;
    group.kind = each.window_tokens == 0 ? KvGroupKind::kFull : KvGroupKind::kSliding;
    group.page_tokens = each.page_tokens;
    group.window_tokens = each.window_tokens;
    group.num_parts = 3;
    group.part_page_bytes = 4 * each.page_tokens;
    group.pages_per_superblock = pages_per_superblock;
    // The same for all groups, so that a superblock which one gives back serves any other, and
    // with a rest that no page covers.
    group.superblock_bytes = uint64_t{pages_per_superblock} * 3 * 4 * 32 + 512;
    config.geometry.groups.push_back(group);
  }
  config.kv_bytes = superblocks * config.geometry.groups[0].superblock_bytes;
  config.max_slots = 8;
  config.max_seq_tokens = max_seq_tokens;
  config.prefix_index = prefix_index;
  config.kv_keep_bytes = keep_pages * config.geometry.groups[0].page_bytes();
  config.poison_freed = true;
  config.scatter_seed = scattered ? 7 : 0;
  config.prefix_hash_bits = prefix_hash_bits;
  return config;
}

std::span<const Setup> Setups() {
  static const std::vector<Setup> setups = {
      {.name = "one", .groups = {{}}},
      {.name = "scattered", .groups = {{}}, .superblocks = 4, .scattered = true},
      {.name = "delayed", .groups = {{}}, .delayed = true},
      {.name = "small-delayed", .groups = {{}}, .superblocks = 3, .delayed = true},
      {.name = "no-index", .groups = {{}}, .prefix_index = false},
      {.name = "collisions", .groups = {{}}, .superblocks = 4, .prefix_hash_bits = 3},
      {.name = "single-pages", .groups = {{}}, .superblocks = 40, .pages_per_superblock = 1},
      {.name = "words", .groups = {{}}, .superblocks = 2, .pages_per_superblock = 64},
      {.name = "two-sizes", .groups = {{16}, {32}}, .superblocks = 9, .prefix_index = false},
      {.name = "two-full", .groups = {{}, {}}, .superblocks = 7},
      {.name = "sliding", .groups = {{16, 40}}, .superblocks = 4},
      {.name = "full-sliding", .groups = {{}, {16, 50}}, .superblocks = 7},
      {.name = "full-sliding-delayed", .groups = {{}, {16, 50}}, .superblocks = 7, .delayed = true},
      {.name = "full-sliding-scattered",
       .groups = {{}, {16, 33}},
       .superblocks = 7,
       .scattered = true,
       .delayed = true},
      {.name = "sliding-sizes", .groups = {{16}, {8, 20}}, .superblocks = 8, .prefix_index = false},
      {.name = "four",
       .groups = {{}, {16, 17}, {}, {16, 64}},
       .superblocks = 12,
       .max_seq_tokens = 200},
  };
  return setups;
}

std::optional<uint32_t> FindSetup(std::string_view name) {
  for (uint32_t i = 0; i < Setups().size(); ++i) {
    if (Setups()[i].name == name) return i;
  }
  return std::nullopt;
}

}  // namespace kvrm::heart
