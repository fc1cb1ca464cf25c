// A kvrm_config, read: sizes, pointers and defaults. What the pager checks itself is left to it.
#include <algorithm>
#include <string>

#include "base/superblock.h"
#include "capi/runtime.h"
#include "capi/versioned.h"

namespace kvrm {
namespace {

constexpr uint32_t kMaxRows = 1u << 20;
constexpr uint32_t kMaxLayers = 1u << 16;
constexpr uint32_t kDefaultPageTokens = 16;
constexpr uint32_t kDefaultSlots = 32;
constexpr uint64_t kMaxWindowBytes = uint64_t{1} << 47;  // no user address space is larger
constexpr uint64_t kMaxTrainBytes = kMaxWindowBytes;

std::string Field(const char* array, uint32_t index, const char* field) {
  return std::string(array) + "[" + std::to_string(index) + "]." + field + ": ";
}

Error OutOfRange(const std::string& field, uint64_t value, const std::string& limit) {
  return InvalidInput(field + std::to_string(value) + ", must be " + limit);
}

// Element `index` of an array whose elements are as far apart as the first one's size.
template <class T>
Status ReadElement(const T* first, const char* array, uint32_t index, T& out) {
  const uint32_t stride = first->size;
  const auto* at = reinterpret_cast<const unsigned char*>(first) + size_t{stride} * index;
  const char* refused = ReadVersioned(at, out);
  uint32_t size = 0;
  std::memcpy(&size, at, sizeof size);
  if (refused == nullptr && size != stride) refused = "size differs from that of the first element";
  if (refused == nullptr && stride % 8 != 0) refused = "size is not a multiple of 8";
  if (refused == nullptr) return Ok();
  return InvalidInput(Field(array, index, "size") + std::to_string(size) + ", " + refused);
}

Result<KvGroupGeometry> ReadGroup(const kvrm_config& config, uint32_t index) {
  kvrm_group_config group;
  KVRM_RETURN_IF_ERROR(ReadElement(config.groups, "groups", index, group));
  if (group.kind > KVRM_GROUP_STATE) {
    return OutOfRange(Field("groups", index, "kind"), group.kind, "0 to 3");
  }
  if (group.format > KVRM_FORMAT_OTHER) {
    return OutOfRange(Field("groups", index, "format"), group.format, "0 to 3");
  }
  if (group.reserved != 0)
    return OutOfRange(Field("groups", index, "reserved"), group.reserved, "0");
  if (group.num_parts == 0) return OutOfRange(Field("groups", index, "num_parts"), 0, "at least 1");
  if (group.part_page_bytes == 0) {
    return OutOfRange(Field("groups", index, "part_page_bytes"), 0, "at least 1");
  }
  KvGroupGeometry geometry;
  geometry.kind = static_cast<KvGroupKind>(group.kind);
  geometry.format = static_cast<KvFormat>(group.format);
  geometry.page_tokens = group.page_tokens == 0 ? kDefaultPageTokens : group.page_tokens;
  geometry.num_parts = group.num_parts;
  geometry.part_page_bytes = group.part_page_bytes;
  geometry.superblock_bytes = group.superblock_bytes;
  geometry.pages_per_superblock = group.pages_per_superblock;
  geometry.window_tokens = group.window_tokens;
  if (group.superblock_bytes == 0 && group.pages_per_superblock == 0) {
    const Result<SuperblockChoice> choice =
        ChooseSuperblock(group.num_parts, group.part_page_bytes);
    if (!choice) {
      return Error{choice.error().kind,
                   "groups[" + std::to_string(index) + "]: " + choice.error().message};
    }
    geometry.superblock_bytes = choice->superblock_bytes;
    geometry.pages_per_superblock = choice->pages_per_superblock;
  }
  return geometry;
}

Status ReadLayers(const kvrm_config& config, KvGeometry& geometry) {
  if (config.num_layers > kMaxLayers) {
    return OutOfRange("num_layers: ", config.num_layers, "at most " + std::to_string(kMaxLayers));
  }
  if (config.num_layers > 0 && config.num_groups > 1 && config.layer_group == nullptr) {
    return InvalidInput("layer_group is NULL: with " + std::to_string(config.num_groups) +
                        " groups it has to name the group of each layer");
  }
  uint32_t next_part[kMaxKvGroups] = {};
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
    const uint32_t group = config.layer_group == nullptr ? 0 : config.layer_group[layer];
    if (group >= geometry.groups.size()) {
      return OutOfRange("layer_group[" + std::to_string(layer) + "]: ", group,
                        "below num_groups, " + std::to_string(geometry.groups.size()));
    }
    const uint32_t part =
        config.layer_part == nullptr ? next_part[group]++ : config.layer_part[layer];
    if (part >= geometry.groups[group].num_parts) {
      return OutOfRange("layer_part[" + std::to_string(layer) + "]: ", part,
                        "below num_parts, " + std::to_string(geometry.groups[group].num_parts));
    }
    geometry.layer_group.push_back(static_cast<uint8_t>(group));
    geometry.layer_part.push_back(static_cast<uint16_t>(part));
  }
  return Ok();
}

// Places that a window has to hold (WINDOW-1), and that number in words.
uint64_t LeastWindow(const PagerConfig& pager, const KvGroupGeometry& group, std::string& words) {
  if (group.kind == KvGroupKind::kFull) {
    words = "at least max_seq_tokens, " + std::to_string(pager.max_seq_tokens);
    return pager.max_seq_tokens;
  }
  const uint64_t least = uint64_t{group.window_tokens} + pager.max_step_tokens;
  words = "at least the model's window + max_step_tokens, " + std::to_string(least);
  return least;
}

// Requires: everything but windows has been read, and the pager takes it.
Result<WindowGeometry::Group> ReadWindow(const kvrm_config& config, const RuntimeSetup& setup,
                                         uint32_t index) {
  kvrm_window_config window = {};
  if (config.windows != nullptr) {
    KVRM_RETURN_IF_ERROR(ReadElement(config.windows, "windows", index, window));
  }
  const KvGroupGeometry& group = setup.pager.geometry.groups[index];
  if (group.part_page_bytes % group.page_tokens != 0) {
    return OutOfRange(Field("groups", index, "part_page_bytes"), group.part_page_bytes,
                      "a multiple of page_tokens where windows are kept");
  }
  std::string limit;
  const uint64_t least = LeastWindow(setup.pager, group, limit);
  uint64_t tokens = window.window_tokens;
  if (tokens == 0) tokens = (least + group.page_tokens - 1) / group.page_tokens * group.page_tokens;
  if (tokens < least) return OutOfRange(Field("windows", index, "window_tokens"), tokens, limit);
  if (tokens % group.page_tokens != 0) {
    return OutOfRange(Field("windows", index, "window_tokens"), tokens,
                      "a multiple of page_tokens, " + std::to_string(group.page_tokens));
  }
  const uint64_t token_bytes = group.part_page_bytes / group.page_tokens;
  // Each factor is bounded before it is multiplied, and none is 0: the pager took them.
  const uint64_t sides = uint64_t{setup.pager.max_slots} * group.num_parts;
  if (tokens > kNone32 || tokens > kMaxWindowBytes / token_bytes ||
      tokens * token_bytes > kMaxWindowBytes / sides) {
    return OutOfRange(Field("windows", index, "window_tokens"), tokens,
                      "such that all windows together take at most 2^47 bytes");
  }
  WindowGeometry::Group geometry;
  geometry.window_tokens = static_cast<uint32_t>(tokens);
  geometry.slot_stride_bytes =
      window.slot_stride_bytes == 0 ? tokens * token_bytes : window.slot_stride_bytes;
  if (geometry.slot_stride_bytes > kMaxWindowBytes / sides) {
    return OutOfRange(Field("windows", index, "slot_stride_bytes"), geometry.slot_stride_bytes,
                      "such that all windows together take at most 2^47 bytes");
  }
  geometry.part_stride_bytes = window.part_stride_bytes == 0
                                   ? setup.pager.max_slots * geometry.slot_stride_bytes
                                   : window.part_stride_bytes;
  if (geometry.part_stride_bytes > kMaxWindowBytes / sides) {
    return OutOfRange(Field("windows", index, "part_stride_bytes"), geometry.part_stride_bytes,
                      "such that all windows together take at most 2^47 bytes");
  }
  return geometry;
}

Status ReadLimits(const kvrm_config& config, RuntimeSetup& setup) {
  PagerConfig& pager = setup.pager;
  pager.kv_bytes = config.kv_bytes;
  if (config.kv_keep_bytes != 0) pager.kv_keep_bytes = config.kv_keep_bytes;
  pager.max_slots = config.max_slots == 0 ? kDefaultSlots : config.max_slots;
  pager.max_seq_tokens = config.max_seq_tokens;
  if (pager.max_seq_tokens == 0) return OutOfRange("max_seq_tokens: ", 0, "at least 1");
  pager.max_step_tokens =
      config.max_step_tokens == 0 ? config.max_seq_tokens : config.max_step_tokens;
  if (pager.max_step_tokens > pager.max_seq_tokens) {
    return OutOfRange("max_step_tokens: ", pager.max_step_tokens,
                      "at most max_seq_tokens, " + std::to_string(pager.max_seq_tokens));
  }
  pager.prefix_index = (config.flags & KVRM_CONFIG_NO_PREFIX_INDEX) == 0;
  pager.poison_freed = (config.flags & KVRM_CONFIG_POISON_FREED) != 0;
  pager.scatter_seed = config.test_scatter_seed;
  const uint64_t most_rows = uint64_t{pager.max_slots} + pager.max_step_tokens;
  setup.capacity.max_rows = config.max_rows == 0
                                ? static_cast<uint32_t>(std::min<uint64_t>(most_rows, kMaxRows))
                                : config.max_rows;
  if (setup.capacity.max_rows > kMaxRows) {
    return OutOfRange("max_rows: ", config.max_rows, "at most " + std::to_string(kMaxRows));
  }
  setup.capacity.max_slots = pager.max_slots;
  if (config.train_bytes > kMaxTrainBytes) {
    return OutOfRange("train_bytes: ", config.train_bytes, "at most 2^47");
  }
  if (config.train_bytes != 0) setup.train_bytes = config.train_bytes;
  if (config.publish_age_steps > 255) {
    return OutOfRange("publish_age_steps: ", config.publish_age_steps, "at most 255");
  }
  setup.windows.publish_age_steps = static_cast<uint8_t>(config.publish_age_steps);
  return Ok();
}

// The longest page table: as many entries as a sequence can ever have in some group.
uint32_t MaxPages(const PagerConfig& pager) {
  uint64_t most = 1;
  for (const KvGroupGeometry& group : pager.geometry.groups) {
    if (group.page_tokens == 0) continue;  // the pager refuses it
    const uint64_t tokens = pager.max_seq_tokens;
    most = std::max(most, (tokens + group.page_tokens - 1) / group.page_tokens);
  }
  return static_cast<uint32_t>(most);
}

}  // namespace

Status CheckPrefixIndex(const PagerConfig& pager) {
  const std::vector<KvGroupGeometry>& groups = pager.geometry.groups;
  for (uint32_t g = 1; g < groups.size() && pager.prefix_index; ++g) {
    if (groups[g].page_tokens == groups[0].page_tokens) continue;
    return Unsupported(Field("groups", 0, "page_tokens") + std::to_string(groups[0].page_tokens) +
                       ", " + Field("groups", g, "page_tokens") +
                       std::to_string(groups[g].page_tokens) +
                       "; the prefix index needs one page size: make them equal, or set "
                       "KVRM_CONFIG_NO_PREFIX_INDEX");
  }
  return Ok();
}

Result<RuntimeSetup> ReadConfig(const kvrm_config* given) {
  constexpr uint32_t kKnownFlags =
      KVRM_CONFIG_NO_PREFIX_INDEX | KVRM_CONFIG_POISON_FREED | KVRM_CONFIG_WINDOWS;
  if (given == nullptr) return InvalidInput("config is NULL");
  kvrm_config config;
  if (const char* refused = ReadVersioned(given, config)) {
    return InvalidInput("config.size: " + std::to_string(given->size) + ", " + refused);
  }
  if ((config.flags & ~kKnownFlags) != 0) {
    return Unsupported("flags: " + std::to_string(config.flags) + " has bits that are not known");
  }
  if (config.reserved != 0) return OutOfRange("reserved: ", config.reserved, "0");
  if (config.groups == nullptr) return InvalidInput("groups is NULL");
  if (config.num_groups == 0 || config.num_groups > kMaxKvGroups) {
    return OutOfRange("num_groups: ", config.num_groups, "1 to " + std::to_string(kMaxKvGroups));
  }
  RuntimeSetup setup;
  for (uint32_t g = 0; g < config.num_groups; ++g) {
    KVRM_ASSIGN_OR_RETURN(KvGroupGeometry group, ReadGroup(config, g));
    setup.pager.geometry.groups.push_back(group);
  }
  KVRM_RETURN_IF_ERROR(ReadLayers(config, setup.pager.geometry));
  KVRM_RETURN_IF_ERROR(ReadLimits(config, setup));
  setup.capacity.max_pages = MaxPages(setup.pager);
  setup.has_windows = (config.flags & KVRM_CONFIG_WINDOWS) != 0;
  if (!setup.has_windows && config.windows != nullptr) {
    return InvalidInput("windows: given without KVRM_CONFIG_WINDOWS in flags");
  }
  return setup;
}

Status ReadWindows(const kvrm_config* given, RuntimeSetup& setup) {
  kvrm_config config;
  if (ReadVersioned(given, config) != nullptr) return InvalidInput("config.size has changed");
  for (uint32_t g = 0; g < config.num_groups; ++g) {
    KVRM_ASSIGN_OR_RETURN(WindowGeometry::Group window, ReadWindow(config, setup, g));
    setup.windows.groups.push_back(window);
  }
  setup.windows.max_seq_tokens = setup.pager.max_seq_tokens;
  setup.windows.max_step_tokens = setup.pager.max_step_tokens;
  return Ok();
}

kvrm_group_config DescribeGroup(const KvGroupGeometry& group) {
  kvrm_group_config out = {};
  out.kind = static_cast<uint32_t>(group.kind);
  out.format = static_cast<uint32_t>(group.format);
  out.page_tokens = group.page_tokens;
  out.num_parts = group.num_parts;
  out.window_tokens = group.window_tokens;
  out.part_page_bytes = group.part_page_bytes;
  out.superblock_bytes = group.superblock_bytes;
  out.pages_per_superblock = group.pages_per_superblock;
  return out;
}

}  // namespace kvrm
