#include "text/special_tokens.h"

#include <algorithm>

namespace kvrm {

uint32_t SpecialTokenSet::Child(uint32_t node, char byte) const {
  for (uint32_t i = nodes_[node].first_child; i != 0; i = nodes_[i].next_sibling) {
    if (nodes_[i].byte == byte) return i;
  }
  return 0;
}

void SpecialTokenSet::Add(std::string_view text, TokenId id, bool is_control) {
  if (text.empty()) return;
  starts_[static_cast<uint8_t>(text[0])] = true;
  uint32_t node = 0;
  for (const char byte : text) {
    uint32_t child = Child(node, byte);
    if (child == 0) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({.next_sibling = nodes_[node].first_child, .byte = byte});
      nodes_[node].first_child = child;
    }
    node = child;
  }
  TokenId& slot = is_control ? nodes_[node].control_id : nodes_[node].plain_id;
  if (slot < 0) slot = id;
}

SpecialTokenSet::Match SpecialTokenSet::FindNext(std::string_view text, size_t at,
                                                 std::span<const ControlRange> control) const {
  size_t range = static_cast<size_t>(std::ranges::upper_bound(control, at, {}, &ControlRange::end) -
                                     control.begin());
  for (; at < text.size(); ++at) {
    if (!starts_[static_cast<uint8_t>(text[at])]) continue;
    while (range < control.size() && control[range].end <= at) ++range;
    const bool in_range = range < control.size() && control[range].begin <= at;
    const size_t control_end = in_range ? control[range].end : 0;
    Match best{at, at, -1};
    uint32_t node = 0;
    for (size_t end = at; end < text.size();) {
      node = Child(node, text[end++]);
      if (node == 0) break;
      if (nodes_[node].control_id >= 0 && end <= control_end) {
        best = {at, end, nodes_[node].control_id};
      } else if (nodes_[node].plain_id >= 0) {
        best = {at, end, nodes_[node].plain_id};
      }
    }
    if (best.id >= 0) return best;
  }
  return {text.size(), text.size(), -1};
}

}  // namespace kvrm
