#include "frame/frame_json.h"

#include "frame/field_codec.h"

namespace kvrm {
namespace {

template <class T>
std::string ArrayJson(const T* objects, uint32_t count) {
  std::string out = "[";
  for (uint32_t i = 0; i < count; ++i) {
    if (i > 0) out += ',';
    out += FieldsJson(objects[i]);
  }
  return out + ']';
}

std::string TableJson(const FrameView& frame, const SlotHead& slot, uint32_t group) {
  std::string out = "{\"pages\":[";
  const uint32_t* pages = frame.SlotPages(group, slot.slot);
  for (uint32_t i = 0; i < slot.num_pages[group]; ++i) {
    if (i > 0) out += ',';
    out += std::to_string(pages[i]);
  }
  return out + "],\"segments\":" +
         ArrayJson(frame.SlotSegments(group, slot.slot), slot.num_segments[group]) + '}';
}

std::string SlotJson(const KvGeometry& geometry, const FrameView& frame, const SlotHead& slot) {
  std::string out = FieldsJson(slot);
  out.back() = ',';
  out += "\"tables\":[";
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
    if (g > 0) out += ',';
    out += TableJson(frame, slot, g);
  }
  return out + "]}";
}

}  // namespace

std::string FrameJson(const KvGeometry& geometry, const FrameView& frame) {
  const FrameHead& head = *frame.head;
  std::string out = "{\"head\":" + FieldsJson(head);
  out += ",\"rows\":" + ArrayJson(frame.rows, head.num_rows) + ",\"slots\":[";
  for (uint32_t i = 0; i < head.num_slots; ++i) {
    if (i > 0) out += ',';
    out += SlotJson(geometry, frame, frame.slots[i]);
  }
  return out + "],\"deltas\":" + ArrayJson(frame.deltas, head.num_deltas) + '}';
}

}  // namespace kvrm
