// Which layers share pages, and how large a page is.
#include <map>
#include <string>

#include "base/superblock.h"
#include "model/config.h"
#include "tensor/kv_tile.h"

namespace kvrm {

Result<KvGeometry> KvGeometryOf(const ModelConfig& config, KvFormat format) {
  if (config.head_dim % 16 != 0) {
    return Unsupported("head length " + std::to_string(config.head_dim) +
                       " is not a multiple of 16");
  }
  std::map<uint32_t, KvGroupGeometry> by_window;  // 0, full, stands first
  for (const LayerConfig& layer : config.layers) ++by_window[layer.window].num_parts;
  if (by_window.size() > kMaxKvGroups) {
    return Unsupported("layers have " + std::to_string(by_window.size()) +
                       " different windows, at most " + std::to_string(kMaxKvGroups) +
                       " KV groups are offered");
  }
  KvGeometry geometry;
  std::map<uint32_t, uint8_t> group_of;
  for (auto& [window, group] : by_window) {
    group.kind = window == 0 ? KvGroupKind::kFull : KvGroupKind::kSliding;
    group.window_tokens = window;
    group.format = format;
    group.page_tokens = kKvTileTokens;
    group.part_page_bytes =
        uint64_t{config.num_kv_heads} * KvTileOf(format, config.head_dim).head_bytes;
    KVRM_ASSIGN_OR_RETURN(const SuperblockChoice choice,
                          ChooseSuperblock(group.num_parts, group.part_page_bytes));
    group.pages_per_superblock = choice.pages_per_superblock;
    group.superblock_bytes = choice.superblock_bytes;
    group_of[window] = static_cast<uint8_t>(geometry.groups.size());
    geometry.groups.push_back(group);
  }
  std::vector<uint16_t> next_part(geometry.groups.size(), 0);
  for (const LayerConfig& layer : config.layers) {
    const uint8_t group = group_of[layer.window];
    geometry.layer_group.push_back(group);
    geometry.layer_part.push_back(next_part[group]++);
  }
  return geometry;
}

}  // namespace kvrm
