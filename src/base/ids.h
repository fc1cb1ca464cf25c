// Distinct integer types for distinct identities: a PageId never passes for a SeqId.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace kvrm {

template <class Tag, class Rep = uint32_t>
struct StrongId {
  Rep value = 0;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep v) : value(v) {}
  friend constexpr auto operator<=>(const StrongId&, const StrongId&) = default;
};

using PageId = StrongId<struct PageTag>;            // page 0 of a KV group is its null page
using SeqId = StrongId<struct SeqTag>;              // one open sequence; never reused in a run
using SlotId = StrongId<struct SlotTag, uint16_t>;  // place of a running sequence, [0, slots)
using RequestId = StrongId<struct RequestTag, uint64_t>;  // one request; never reused in a run
using TokenId = int32_t;                                  // an index into the vocabulary

inline constexpr PageId kNullPage{0};

}  // namespace kvrm

template <class Tag, class Rep>
struct std::hash<kvrm::StrongId<Tag, Rep>> {
  size_t operator()(const kvrm::StrongId<Tag, Rep>& id) const { return std::hash<Rep>{}(id.value); }
};
