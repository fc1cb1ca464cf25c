#include "frame/trace_format.h"

#include <algorithm>

#include "base/superblock.h"
#include "frame/field_codec.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kvrm {
namespace {

Error Refuse(const std::string& field, uint64_t value, const std::string& range) {
  return InvalidInput("trace header: " + field + " is " + std::to_string(value) + ", must be " +
                      range);
}

Status CheckGroup(const KvGroupGeometry& group, size_t index) {
  const std::string name = "group " + std::to_string(index) + " ";
  if (group.kind > KvGroupKind::kState) {
    return Refuse(name + "kind", static_cast<uint64_t>(group.kind), "0 to 3");
  }
  if (group.format > KvFormat::kInt8) {
    return Refuse(name + "format", static_cast<uint64_t>(group.format), "0 to 2");
  }
  if (group.page_tokens == 0 || group.page_tokens > 1024) {
    return Refuse(name + "page_tokens", group.page_tokens, "1 to 1024");
  }
  if (group.pages_per_superblock == 0 || group.pages_per_superblock > kMaxPagesPerSuperblock) {
    return Refuse(name + "pages_per_superblock", group.pages_per_superblock,
                  "1 to " + std::to_string(kMaxPagesPerSuperblock));
  }
  if (group.superblock_bytes > kMaxSuperblockBytes) {
    return Refuse(name + "superblock_bytes", group.superblock_bytes,
                  "at most " + std::to_string(kMaxSuperblockBytes));
  }
  // Each factor is bounded by now, so the product fits.
  if (group.part_page_bytes > group.superblock_bytes ||
      group.num_parts * group.part_stride_bytes() > group.superblock_bytes) {
    return Refuse(name + "superblock_bytes", group.superblock_bytes,
                  std::to_string(group.num_parts) + " parts x " +
                      std::to_string(group.pages_per_superblock) + " pages x " +
                      std::to_string(group.part_page_bytes) + " bytes or more");
  }
  return Ok();
}

Status CheckLayers(const KvGeometry& geometry) {
  if (geometry.layer_group.size() != geometry.layer_part.size()) {
    return Refuse("layers with a part", geometry.layer_part.size(),
                  std::to_string(geometry.layer_group.size()) + ", the layers with a group");
  }
  for (size_t i = 0; i < geometry.layer_group.size(); ++i) {
    const std::string name = "layer " + std::to_string(i) + " ";
    const uint8_t group = geometry.layer_group[i];
    if (group >= geometry.groups.size()) {
      return Refuse(name + "group", group, "below " + std::to_string(geometry.groups.size()));
    }
    const uint32_t parts = geometry.groups[group].num_parts;
    if (geometry.layer_part[i] >= parts) {
      return Refuse(name + "part", geometry.layer_part[i], "below " + std::to_string(parts));
    }
  }
  return Ok();
}

KvGroupGeometry Unpacked(const TraceGroup& group) {
  KvGroupGeometry out;
  out.kind = static_cast<KvGroupKind>(group.kind);
  out.format = static_cast<KvFormat>(group.format);
  out.page_tokens = group.page_tokens;
  out.num_parts = group.num_parts;
  out.pages_per_superblock = group.pages_per_superblock;
  out.part_page_bytes = group.part_page_bytes;
  out.superblock_bytes = group.superblock_bytes;
  out.window_tokens = group.window_tokens;
  return out;
}

uint64_t HeaderBytes(uint64_t num_groups, uint64_t num_layers) {
  const uint64_t bytes =
      sizeof(TraceFileHead) + num_groups * sizeof(TraceGroup) + num_layers * sizeof(TraceLayer);
  return (bytes + 7) / 8 * 8;
}

constexpr size_t kChecksumAt = offsetof(TraceFileHead, checksum);

uint64_t HeaderChecksum(std::span<const std::byte> header) {
  std::vector<std::byte> bytes(header.begin(), header.end());
  std::fill_n(bytes.begin() + kChecksumAt, sizeof(uint64_t), std::byte{0});
  return TraceChecksum(bytes);
}

}  // namespace

TraceGroup ToTraceGroup(const KvGroupGeometry& group) {
  TraceGroup out{};
  out.kind = static_cast<uint8_t>(group.kind);
  out.format = static_cast<uint8_t>(group.format);
  out.page_tokens = group.page_tokens;
  out.num_parts = group.num_parts;
  out.pages_per_superblock = group.pages_per_superblock;
  out.part_page_bytes = group.part_page_bytes;
  out.superblock_bytes = group.superblock_bytes;
  out.window_tokens = group.window_tokens;
  return out;
}

uint64_t TraceChecksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

uint64_t HeadChecksum(const TraceRecordHead& head) {
  std::byte bytes[sizeof head];
  Pack(&head, 1, bytes);
  return TraceChecksum({bytes, offsetof(TraceRecordHead, head_checksum)});
}

Status CheckTraceHeader(const TraceHeader& header) {
  const KvGeometry& geometry = header.geometry;
  const FrameCapacity& capacity = header.capacity;
  if (geometry.groups.empty() || geometry.groups.size() > kMaxKvGroups) {
    return Refuse("num_groups", geometry.groups.size(), "1 to " + std::to_string(kMaxKvGroups));
  }
  for (size_t g = 0; g < geometry.groups.size(); ++g) {
    KVRM_RETURN_IF_ERROR(CheckGroup(geometry.groups[g], g));
    const uint32_t most_pages = kNone32 / geometry.groups[g].page_tokens;
    if (capacity.max_pages > most_pages) {
      return Refuse("max_pages", capacity.max_pages, "at most " + std::to_string(most_pages));
    }
  }
  KVRM_RETURN_IF_ERROR(CheckLayers(geometry));
  if (capacity.max_slots == 0 || capacity.max_slots > 0xFFFF) {
    return Refuse("max_slots", capacity.max_slots, "1 to 65535");
  }
  if (capacity.max_rows == 0) return Refuse("max_rows", 0, "at least 1");
  const uint64_t most_pages = kMaxTraceEntries / (capacity.max_slots * geometry.groups.size());
  if (capacity.max_pages == 0 || capacity.max_pages > most_pages) {
    return Refuse("max_pages", capacity.max_pages,
                  "1 to " + std::to_string(most_pages) + " for " +
                      std::to_string(capacity.max_slots) + " slots");
  }
  if (header.key_interval == 0) return Refuse("key_interval", 0, "at least 1");
  return Ok();
}

Result<std::vector<std::byte>> PackTraceHeader(const TraceHeader& header) {
  KVRM_RETURN_IF_ERROR(CheckTraceHeader(header));
  const KvGeometry& geometry = header.geometry;
  TraceFileHead head{};
  head.magic = kTraceMagic;
  head.version = kTraceVersion;
  head.frame_version = kFrameVersion;
  head.num_groups = static_cast<uint32_t>(geometry.groups.size());
  head.num_layers = static_cast<uint32_t>(geometry.layer_group.size());
  head.header_bytes = static_cast<uint32_t>(HeaderBytes(head.num_groups, head.num_layers));
  head.max_slots = header.capacity.max_slots;
  head.max_rows = header.capacity.max_rows;
  head.max_pages = header.capacity.max_pages;
  head.key_interval = header.key_interval;

  std::vector<std::byte> bytes(head.header_bytes);
  std::byte* to = bytes.data() + sizeof head;
  for (const KvGroupGeometry& group : geometry.groups) {
    const TraceGroup packed = ToTraceGroup(group);
    Pack(&packed, 1, to);
    to += sizeof packed;
  }
  for (size_t i = 0; i < geometry.layer_group.size(); ++i) {
    const TraceLayer layer{geometry.layer_group[i], 0, geometry.layer_part[i]};
    Pack(&layer, 1, to);
    to += sizeof layer;
  }
  Pack(&head, 1, bytes.data());
  head.checksum = HeaderChecksum(bytes);
  Pack(&head, 1, bytes.data());
  return bytes;
}

Result<TraceHeader> UnpackTraceHeader(std::span<const std::byte> bytes, uint64_t* header_bytes) {
  TraceFileHead head;
  if (bytes.size() < sizeof head) {
    return InvalidInput("trace header: " + std::to_string(bytes.size()) + " bytes, must be " +
                        std::to_string(sizeof head) + " or more");
  }
  Unpack(bytes.data(), 1, &head);
  if (head.magic != kTraceMagic) return Refuse("magic", head.magic, std::to_string(kTraceMagic));
  if (head.version != kTraceVersion) {
    return Refuse("version", head.version, std::to_string(kTraceVersion));
  }
  if (head.frame_version != kFrameVersion) {
    return Refuse("frame_version", head.frame_version, std::to_string(kFrameVersion));
  }
  if (head.header_bytes != HeaderBytes(head.num_groups, head.num_layers)) {
    return Refuse("header_bytes", head.header_bytes,
                  std::to_string(HeaderBytes(head.num_groups, head.num_layers)) + " for " +
                      std::to_string(head.num_groups) + " groups and " +
                      std::to_string(head.num_layers) + " layers");
  }
  if (head.header_bytes > bytes.size()) {
    return Refuse("header_bytes", head.header_bytes,
                  "at most " + std::to_string(bytes.size()) + ", the bytes of the file");
  }
  if (HeaderChecksum(bytes.first(head.header_bytes)) != head.checksum) {
    return InvalidInput("trace header: checksum is not that of its " +
                        std::to_string(head.header_bytes) + " bytes");
  }
  TraceHeader header;
  header.capacity = {head.max_slots, head.max_rows, head.max_pages};
  header.key_interval = head.key_interval;
  const std::byte* from = bytes.data() + sizeof head;
  for (uint32_t g = 0; g < head.num_groups; ++g, from += sizeof(TraceGroup)) {
    TraceGroup group;
    Unpack(from, 1, &group);
    header.geometry.groups.push_back(Unpacked(group));
  }
  for (uint32_t i = 0; i < head.num_layers; ++i, from += sizeof(TraceLayer)) {
    TraceLayer layer;
    Unpack(from, 1, &layer);
    header.geometry.layer_group.push_back(layer.group);
    header.geometry.layer_part.push_back(layer.part);
  }
  KVRM_RETURN_IF_ERROR(CheckTraceHeader(header));
  *header_bytes = head.header_bytes;
  return header;
}

namespace {

// One past the last entry of the run, or of the holes, that begins at `begin`.
uint32_t RunEnd(const KvGroupGeometry& group, const uint32_t* dense, uint32_t begin,
                uint32_t length) {
  const bool hole = dense[begin] == kNullPage.value;
  uint32_t end = begin + 1;
  while (end < length && (hole ? dense[end] == kNullPage.value
                               : dense[end] == dense[end - 1] + 1 &&
                                     dense[end] % group.pages_per_superblock != 0)) {
    ++end;
  }
  return end;
}

}  // namespace

void MakeKeyTables(const KvGeometry& geometry, const FrameView& frame, const TableLengths& lengths,
                   std::vector<Delta>* out) {
  out->clear();
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
    const KvGroupGeometry& group = geometry.groups[g];
    for (uint32_t slot = 0; slot < frame.max_slots; ++slot) {
      const uint32_t length = lengths[size_t{g} * frame.max_slots + slot];
      const uint32_t* dense = frame.SlotPages(g, slot);
      for (uint32_t begin = 0; begin < length;) {
        const uint32_t end = RunEnd(group, dense, begin, length);
        const bool hole = dense[begin] == kNullPage.value;
        out->push_back({.slot = static_cast<uint16_t>(slot),
                        .kv_group = static_cast<uint8_t>(g),
                        .kind = hole ? DeltaKind::kHole : DeltaKind::kAppend,
                        .index = begin,
                        .page = dense[begin],
                        .count = end - begin,
                        .first_token_place = begin * group.page_tokens,
                        .reserved = 0});
        begin = end;
      }
    }
  }
}

}  // namespace kvrm
