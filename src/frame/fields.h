// The one list of fields of everything that a frame is made of: name, offset, width, kind, count.
// It drives packing to little-endian bytes, unpacking, text, JSON, comparison (field_codec.h) and
// the check that reserved fields are zero (validate_frame.cc); docs/frame.md says the same as
// grammar. A field that is not listed here, stands elsewhere or leaves a gap does not compile.
//
// Constant data; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/kv_view.h"
#include "frame/frame.h"

namespace kvrm {

enum class FieldKind : uint8_t { kUnsigned, kSigned, kFloat, kHex, kReserved };

struct Field {
  const char* name;
  uint16_t offset;  // bytes, in memory and in packed bytes alike
  uint8_t width;    // bytes of one element: 1, 2, 4 or 8
  FieldKind kind;
  uint8_t count;  // elements; 1 = a plain field
  constexpr uint32_t bytes() const { return uint32_t{width} * count; }
  constexpr uint32_t end() const { return offset + bytes(); }
};

// Specialised for each listed struct: `list`, and `name` for messages.
template <class T>
struct FieldsOf;

template <class Member>
consteval FieldKind KindOf() {
  using Element = std::remove_extent_t<Member>;
  if constexpr (std::is_floating_point_v<Element>) {
    return FieldKind::kFloat;
  } else if constexpr (std::is_enum_v<Element>) {
    return KindOf<std::underlying_type_t<Element>>();
  } else {
    return std::is_signed_v<Element> ? FieldKind::kSigned : FieldKind::kUnsigned;
  }
}

// Does not compile where the layout says another offset than the compiler.
template <class Member>
consteval Field MakeField(const char* name, size_t stated_offset, size_t offset, FieldKind kind) {
  using Element = std::remove_extent_t<Member>;
  if (stated_offset != offset) throw "a field's offset is not the one that the layout states";
  return {name, static_cast<uint16_t>(offset), sizeof(Element), kind,
          static_cast<uint8_t>(std::is_array_v<Member> ? std::extent_v<Member> : 1)};
}

// Every byte of T belongs to exactly one field.
template <class T>
consteval bool CoversWithoutGaps() {
  uint32_t end = 0;
  for (const Field& field : FieldsOf<T>::list) {
    if (field.offset != end) return false;
    end = field.end();
  }
  return end == sizeof(T) && std::is_trivially_copyable_v<T>;
}

#define KVRM_FIELD_AS(Struct, member, stated_offset, kind) \
  MakeField<decltype(Struct::member)>(#member, stated_offset, offsetof(Struct, member), kind)
#define KVRM_FIELD(Struct, member, stated_offset) \
  KVRM_FIELD_AS(Struct, member, stated_offset, KindOf<decltype(Struct::member)>())
#define KVRM_HEX(Struct, member, stated_offset) \
  KVRM_FIELD_AS(Struct, member, stated_offset, FieldKind::kHex)
#define KVRM_RESERVED(Struct, member, stated_offset) \
  KVRM_FIELD_AS(Struct, member, stated_offset, FieldKind::kReserved)

template <>
struct FieldsOf<FrameHead> {
  static constexpr const char* name = "head";
  static constexpr Field list[] = {
      KVRM_HEX(FrameHead, magic, 0),         KVRM_FIELD(FrameHead, version, 4),
      KVRM_FIELD(FrameHead, epoch, 8),       KVRM_HEX(FrameHead, chain_hash, 16),
      KVRM_FIELD(FrameHead, num_rows, 24),   KVRM_FIELD(FrameHead, num_slots, 28),
      KVRM_FIELD(FrameHead, num_deltas, 32), KVRM_FIELD(FrameHead, num_logits, 36),
      KVRM_FIELD(FrameHead, num_groups, 40), KVRM_RESERVED(FrameHead, reserved, 44),
  };
};
static_assert(CoversWithoutGaps<FrameHead>());

template <>
struct FieldsOf<Row> {
  static constexpr const char* name = "row";
  static constexpr Field list[] = {
      KVRM_FIELD(Row, token, 0),       KVRM_FIELD(Row, slot, 4),
      KVRM_FIELD(Row, token_src, 6),   KVRM_FIELD(Row, flags, 7),
      KVRM_FIELD(Row, position, 8),    KVRM_FIELD(Row, kv_index, 12),
      KVRM_FIELD(Row, mask_id, 16),    KVRM_FIELD(Row, lse_target, 20),
      KVRM_FIELD(Row, logits_idx, 24), KVRM_RESERVED(Row, reserved, 28),
  };
};
static_assert(CoversWithoutGaps<Row>());

template <>
struct FieldsOf<SlotHead> {
  static constexpr const char* name = "slot";
  static constexpr Field list[] = {
      KVRM_FIELD(SlotHead, slot, 0),          KVRM_FIELD(SlotHead, flags, 2),
      KVRM_FIELD(SlotHead, seq_id, 4),        KVRM_FIELD(SlotHead, row_begin, 8),
      KVRM_FIELD(SlotHead, num_rows, 12),     KVRM_FIELD(SlotHead, num_tokens, 16),
      KVRM_FIELD(SlotHead, first_token, 32),  KVRM_FIELD(SlotHead, num_pages, 48),
      KVRM_FIELD(SlotHead, num_segments, 64), KVRM_FIELD(SlotHead, num_holes, 80),
      KVRM_RESERVED(SlotHead, reserved1, 96),
  };
};
static_assert(CoversWithoutGaps<SlotHead>());

template <>
struct FieldsOf<Delta> {
  static constexpr const char* name = "delta";
  static constexpr Field list[] = {
      KVRM_FIELD(Delta, slot, 0),
      KVRM_FIELD(Delta, kv_group, 2),
      KVRM_FIELD(Delta, kind, 3),
      KVRM_FIELD(Delta, index, 4),
      KVRM_FIELD(Delta, page, 8),
      KVRM_FIELD(Delta, count, 12),
      KVRM_FIELD(Delta, first_token_place, 16),
      KVRM_RESERVED(Delta, reserved, 20),
  };
};
static_assert(CoversWithoutGaps<Delta>());

template <>
struct FieldsOf<Segment> {
  static constexpr const char* name = "segment";
  static constexpr Field list[] = {
      KVRM_FIELD(Segment, offset_bytes, 0),    KVRM_FIELD(Segment, first_token, 8),
      KVRM_FIELD(Segment, num_pages, 12),      KVRM_FIELD(Segment, first_page, 16),
      KVRM_FIELD(Segment, position_shift, 20), KVRM_FIELD(Segment, score_bias, 24),
      KVRM_FIELD(Segment, kv_group, 28),       KVRM_RESERVED(Segment, reserved0, 29),
      KVRM_FIELD(Segment, head_begin, 30),     KVRM_FIELD(Segment, head_end, 32),
      KVRM_FIELD(Segment, layer_begin, 34),    KVRM_FIELD(Segment, layer_end, 36),
      KVRM_RESERVED(Segment, reserved1, 38),   KVRM_HEX(Segment, row_mask, 40),
  };
};
static_assert(CoversWithoutGaps<Segment>());

}  // namespace kvrm
