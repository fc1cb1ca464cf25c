// A frame as text, for people: what `kvrm inspect` prints and docs/request.md shows.
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <string>

#include "frame/frame.h"

namespace kvrm {
namespace {

[[gnu::format(printf, 2, 3)]] void Print(std::string& out, const char* format, ...) {
  char line[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  out += line;
}

const char* Name(DeltaKind kind) {
  switch (kind) {
    case DeltaKind::kAppend:
      return "append";
    case DeltaKind::kExtend:
      return "extend";
    case DeltaKind::kReplace:
      return "replace";
    case DeltaKind::kTruncate:
      return "truncate";
    case DeltaKind::kHole:
      return "hole";
  }
  return "unknown";
}

void PrintRow(std::string& out, uint32_t index, const Row& row) {
  Print(out, "row %u: slot %u, ", index, unsigned{row.slot});
  Print(out, row.token_src == TokenSource::kImmediate ? "token %d" : "token of sample slot %d",
        row.token);
  Print(out, ", position %u, kv_index %u", row.position, row.kv_index);
  if (row.logits_idx != kNone32) Print(out, ", logits %u", row.logits_idx);
  if ((row.flags & kRowNoWrite) != 0) out += ", no write";
  if ((row.flags & kRowWantLse) != 0) Print(out, ", log-sum-exp, target %d", row.lse_target);
  if (row.mask_id != kNone32) Print(out, ", mask %u", row.mask_id);
  out += '\n';
}

void PrintSlot(std::string& out, const KvGeometry& geometry, const FrameView& frame,
               const SlotHead& slot) {
  Print(out, "slot %u: sequence %u, rows %u..%u%s\n", unsigned{slot.slot}, slot.seq_id,
        slot.row_begin, slot.row_begin + slot.num_rows,
        (slot.flags & kSlotLossyView) != 0 ? ", lossy view" : "");
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
    const KvGroupGeometry& group = geometry.groups[g];
    Print(out, "  group %u: tokens %u..%u on %u pages", g, slot.first_token[g], slot.num_tokens[g],
          slot.num_pages[g]);
    if (slot.num_holes[g] > 0) Print(out, ", %u of them holes,", slot.num_holes[g]);
    Print(out, " in %u segments\n", slot.num_segments[g]);
    const Segment* segments = frame.SlotSegments(g, slot.slot);
    for (uint32_t k = 0; k < slot.num_segments[g]; ++k) {
      const Segment& segment = segments[k];
      Print(out,
            "    segment %u: from token %u, pages %u..%u, at byte %" PRIu64 ", %" PRIu64
            " bytes a part\n",
            k, segment.first_token, segment.first_page, segment.first_page + segment.num_pages,
            segment.offset_bytes, segment.num_pages * group.part_page_bytes);
    }
  }
}

}  // namespace

std::string DumpFrame(const KvGeometry& geometry, const FrameView& frame) {
  const FrameHead& head = *frame.head;
  std::string out;
  Print(out,
        "frame %" PRIu64 ": %u rows, %u slots, %u deltas, %u logits, %" PRIu64
        " bytes, hash %016" PRIx64 "\n",
        head.epoch, head.num_rows, head.num_slots, head.num_deltas, head.num_logits, frame.bytes(),
        head.chain_hash);
  for (uint32_t d = 0; d < head.num_deltas; ++d) {
    const Delta& delta = frame.deltas[d];
    Print(out, "delta %u: slot %u, group %u, %s, index %u", d, unsigned{delta.slot},
          unsigned{delta.kv_group}, Name(delta.kind), delta.index);
    if (delta.kind == DeltaKind::kHole) {
      Print(out, ", %u entries", delta.count);
    } else if (delta.count > 0) {
      Print(out, ", pages %u..%u", delta.page, delta.page + delta.count);
    }
    out += '\n';
  }
  for (uint32_t r = 0; r < head.num_rows; ++r) PrintRow(out, r, frame.rows[r]);
  for (uint32_t i = 0; i < head.num_slots; ++i) PrintSlot(out, geometry, frame, frame.slots[i]);
  return out;
}

}  // namespace kvrm
