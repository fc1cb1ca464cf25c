// The layout of a frame trace (`.kvft`): a header that says what geometry the frames are about, and
// one record a step. docs/frame.md gives it as grammar.
//
// A step's record holds the frame's block as it was published. Every key_interval-th record is a
// key frame: it also holds the page tables as they are after its step, as the deltas that would
// build them from nothing, so that a reader can begin there.
//
// Plain data and pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/kv_view.h"
#include "base/result.h"
#include "frame/fields.h"
#include "frame/frame.h"

namespace kvrm {

inline constexpr uint32_t kTraceMagic = 0x5446'564Bu;  // "KVFT"
inline constexpr uint32_t kTraceVersion = 1;
inline constexpr uint32_t kTraceKeyInterval = 256;  // steps from key frame to key frame
// Table entries (groups x slots x pages) of a trace. A reader reserves address space for all.
inline constexpr uint64_t kMaxTraceEntries = uint64_t{1} << 24;

struct TraceFileHead {
  uint32_t magic;
  uint32_t version;
  uint64_t checksum;       // XXH3-64 of the header, this field taken as 0
  uint32_t header_bytes;   // head, groups, layers, and zeros to a multiple of 8
  uint32_t frame_version;  // of the blocks
  uint32_t num_groups;
  uint32_t num_layers;
  uint32_t max_slots;
  uint32_t max_rows;
  uint32_t max_pages;
  uint32_t key_interval;
  uint32_t reserved[4];
  // followed by TraceGroup[num_groups], TraceLayer[num_layers]
};

struct TraceGroup {
  uint8_t kind;    // KvGroupKind
  uint8_t format;  // KvFormat
  uint16_t reserved0;
  uint32_t page_tokens;
  uint32_t num_parts;
  uint32_t pages_per_superblock;
  uint64_t part_page_bytes;
  uint64_t superblock_bytes;
  uint32_t window_tokens;
  uint32_t reserved1;
};

struct TraceLayer {
  uint8_t group;
  uint8_t reserved;
  uint16_t part;
};

enum class TraceRecordKind : uint32_t { kStep = 1, kKey = 2 };

struct TraceRecordHead {
  uint32_t payload_bytes;  // of what follows this head
  TraceRecordKind kind;
  uint64_t epoch;
  uint64_t payload_checksum;  // XXH3-64 of the payload
  uint64_t head_checksum;     // XXH3-64 of the 24 bytes before
};

enum TraceKeyFlags : uint32_t {
  kTraceKeyHasPrevious = 1,  // previous_hash is the chain hash of the epoch before
};

// Begins the payload of a key frame; then Delta[num_tables], then the block.
struct TraceKeyHead {
  uint64_t previous_hash;
  uint32_t flags;  // TraceKeyFlags
  uint32_t num_tables;
};

template <>
struct FieldsOf<TraceFileHead> {
  static constexpr const char* name = "header";
  static constexpr Field list[] = {
      KVRM_HEX(TraceFileHead, magic, 0),
      KVRM_FIELD(TraceFileHead, version, 4),
      KVRM_HEX(TraceFileHead, checksum, 8),
      KVRM_FIELD(TraceFileHead, header_bytes, 16),
      KVRM_FIELD(TraceFileHead, frame_version, 20),
      KVRM_FIELD(TraceFileHead, num_groups, 24),
      KVRM_FIELD(TraceFileHead, num_layers, 28),
      KVRM_FIELD(TraceFileHead, max_slots, 32),
      KVRM_FIELD(TraceFileHead, max_rows, 36),
      KVRM_FIELD(TraceFileHead, max_pages, 40),
      KVRM_FIELD(TraceFileHead, key_interval, 44),
      KVRM_RESERVED(TraceFileHead, reserved, 48),
  };
};
static_assert(CoversWithoutGaps<TraceFileHead>() && sizeof(TraceFileHead) == 64);

template <>
struct FieldsOf<TraceGroup> {
  static constexpr const char* name = "group";
  static constexpr Field list[] = {
      KVRM_FIELD(TraceGroup, kind, 0),
      KVRM_FIELD(TraceGroup, format, 1),
      KVRM_RESERVED(TraceGroup, reserved0, 2),
      KVRM_FIELD(TraceGroup, page_tokens, 4),
      KVRM_FIELD(TraceGroup, num_parts, 8),
      KVRM_FIELD(TraceGroup, pages_per_superblock, 12),
      KVRM_FIELD(TraceGroup, part_page_bytes, 16),
      KVRM_FIELD(TraceGroup, superblock_bytes, 24),
      KVRM_FIELD(TraceGroup, window_tokens, 32),
      KVRM_RESERVED(TraceGroup, reserved1, 36),
  };
};
static_assert(CoversWithoutGaps<TraceGroup>() && sizeof(TraceGroup) == 40);

template <>
struct FieldsOf<TraceLayer> {
  static constexpr const char* name = "layer";
  static constexpr Field list[] = {
      KVRM_FIELD(TraceLayer, group, 0),
      KVRM_RESERVED(TraceLayer, reserved, 1),
      KVRM_FIELD(TraceLayer, part, 2),
  };
};
static_assert(CoversWithoutGaps<TraceLayer>() && sizeof(TraceLayer) == 4);

template <>
struct FieldsOf<TraceRecordHead> {
  static constexpr const char* name = "record";
  static constexpr Field list[] = {
      KVRM_FIELD(TraceRecordHead, payload_bytes, 0),
      KVRM_FIELD(TraceRecordHead, kind, 4),
      KVRM_FIELD(TraceRecordHead, epoch, 8),
      KVRM_HEX(TraceRecordHead, payload_checksum, 16),
      KVRM_HEX(TraceRecordHead, head_checksum, 24),
  };
};
static_assert(CoversWithoutGaps<TraceRecordHead>() && sizeof(TraceRecordHead) == 32);

template <>
struct FieldsOf<TraceKeyHead> {
  static constexpr const char* name = "key";
  static constexpr Field list[] = {
      KVRM_HEX(TraceKeyHead, previous_hash, 0),
      KVRM_FIELD(TraceKeyHead, flags, 8),
      KVRM_FIELD(TraceKeyHead, num_tables, 12),
  };
};
static_assert(CoversWithoutGaps<TraceKeyHead>() && sizeof(TraceKeyHead) == 16);

// What a trace says of itself.
struct TraceHeader {
  KvGeometry geometry;
  FrameCapacity capacity;
  uint32_t key_interval = kTraceKeyInterval;
};

TraceGroup ToTraceGroup(const KvGroupGeometry& group);
uint64_t TraceChecksum(std::span<const std::byte> bytes);
uint64_t HeadChecksum(const TraceRecordHead& head);  // of all its fields but head_checksum

// Whether a trace may be about this. Errors name field, value and limit.
Status CheckTraceHeader(const TraceHeader& header);
// The header's bytes. Errors: CheckTraceHeader's.
Result<std::vector<std::byte>> PackTraceHeader(const TraceHeader& header);
// From the first bytes of a file, all of the header among them; sets *header_bytes to its size.
// Errors: CheckTraceHeader's, and bytes that are no header.
Result<TraceHeader> UnpackTraceHeader(std::span<const std::byte> bytes, uint64_t* header_bytes);

// Table lengths: [group][slot], entries, holes included.
using TableLengths = std::vector<uint32_t>;
// The deltas that build every table that is not empty from nothing: its runs and its holes in
// order, by group and slot. Work: the entries.
void MakeKeyTables(const KvGeometry& geometry, const FrameView& frame, const TableLengths& lengths,
                   std::vector<Delta>* out);

}  // namespace kvrm
