// The laws FRAME-0..7 on a published frame. Reads nothing that an executor would not read.
#include <algorithm>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "frame/chain_hash.h"
#include "frame/field_codec.h"
#include "frame/frame.h"

namespace kvrm {
namespace {

// Collects violations; one function a law, in the order of their numbers.
class FrameValidator {
 public:
  FrameValidator(const KvGeometry& geometry, const FrameView& frame)
      : geometry_(geometry), frame_(frame), head_(*frame.head) {}

  std::vector<std::string> Run(const FrameHead* previous) {
    if (!HeadIsWellFormed()) return out_;
    CheckReserved();
    CheckDeltas();
    CheckRows();
    CheckPlaces();
    for (uint32_t i = 0; i < head_.num_slots; ++i) {
      for (uint32_t g = 0; g < head_.num_groups; ++g) CheckTable(frame_.slots[i], g);
    }
    CheckWrites();
    CheckLogits();
    if (previous != nullptr) CheckChain(*previous);
    return out_;
  }

 private:
  void Report(const char* law, const std::string& what) {
    out_.push_back(std::string(law) + ": " + what);
  }

  // FRAME-0. Where the head, or a slot's counts, cannot be trusted, nothing else is read.
  bool HeadIsWellFormed() {
    if (head_.magic != kFrameMagic) {
      Report("FRAME-0", "magic is " + std::to_string(head_.magic));
      return false;
    }
    if (head_.version != kFrameVersion) {
      Report("FRAME-0", "version is " + std::to_string(head_.version) + ", not " +
                            std::to_string(kFrameVersion));
    }
    if (head_.num_groups != geometry_.groups.size()) {
      Report("FRAME-0", std::to_string(head_.num_groups) + " groups, the geometry has " +
                            std::to_string(geometry_.groups.size()));
    }
    if (head_.num_slots > frame_.max_slots) {
      Report("FRAME-0", std::to_string(head_.num_slots) + " live slots of " +
                            std::to_string(frame_.max_slots));
    }
    if (!out_.empty()) return false;
    for (uint32_t i = 0; i < head_.num_slots; ++i) CheckSlot(i);
    return out_.empty();
  }

  void CheckSlot(uint32_t i) {
    const SlotHead& slot = frame_.slots[i];
    const std::string name = Name(slot);
    if (slot.slot >= frame_.max_slots) {
      Report("FRAME-0", name + " is past the last, " + std::to_string(frame_.max_slots - 1));
      return;
    }
    if (i > 0 && frame_.slots[i - 1].slot >= slot.slot) {
      Report("FRAME-0", name + " does not ascend");
    }
    if (frame_.by_slot[slot.slot] != &slot) Report("FRAME-0", name + " is not in by_slot");
    if ((slot.flags & ~kSlotLossyView) != 0) {
      Report("FRAME-0", name + " has unknown flags " + std::to_string(slot.flags));
    }
    for (uint32_t g = 0; g < head_.num_groups; ++g) {
      if (slot.num_pages[g] <= frame_.max_pages && slot.num_holes[g] <= slot.num_pages[g] &&
          slot.num_segments[g] <= slot.num_pages[g] - slot.num_holes[g]) {
        continue;
      }
      Report("FRAME-0", name + " has " + std::to_string(slot.num_segments[g]) + " segments and " +
                            std::to_string(slot.num_holes[g]) + " holes on " +
                            std::to_string(slot.num_pages[g]) + " pages of " +
                            std::to_string(frame_.max_pages));
    }
  }

  // FRAME-0: what the layout reserves is zero, so that a later version may give it a meaning.
  void CheckReserved() {
    CheckReserved(head_, "head");
    for (uint32_t r = 0; r < head_.num_rows; ++r) CheckReserved(frame_.rows[r], "row", r);
    for (uint32_t i = 0; i < head_.num_slots; ++i) {
      const SlotHead& slot = frame_.slots[i];
      CheckReserved(slot, "slot", slot.slot);
      for (uint32_t g = 0; g < head_.num_groups; ++g) {
        for (uint32_t k = 0; k < slot.num_segments[g]; ++k) {
          CheckReserved(frame_.SlotSegments(g, slot.slot)[k], "slot", slot.slot, "segment", k);
        }
      }
    }
    for (uint32_t d = 0; d < head_.num_deltas; ++d) CheckReserved(frame_.deltas[d], "delta", d);
  }

  // `place`: words and numbers that name the object.
  template <class T, class... Place>
  void CheckReserved(const T& object, const Place&... place) {
    const auto found = NonzeroReserved(object);
    if (!found) return;
    std::ostringstream text;
    ((text << place << ' '), ...);
    Report("FRAME-0", text.str() + found->name + " is " + found->value + ", not 0");
  }

  void CheckDeltas() {
    for (uint32_t d = 0; d < head_.num_deltas; ++d) {
      const Delta& delta = frame_.deltas[d];
      const std::string name = "delta " + std::to_string(d);
      if (delta.kind > DeltaKind::kHole || delta.slot >= frame_.max_slots ||
          delta.kv_group >= head_.num_groups) {
        Report("FRAME-0", name + " has no such kind, slot or group");
        continue;
      }
      const KvGroupGeometry& group = geometry_.groups[delta.kv_group];
      if (delta.first_token_place != delta.index * group.page_tokens) {
        Report("FRAME-0", name + " says token place " + std::to_string(delta.first_token_place) +
                              " for index " + std::to_string(delta.index));
      }
    }
  }

  void CheckRows() {
    std::vector<uint32_t> rows_of(frame_.max_slots);
    for (uint32_t r = 0; r < head_.num_rows; ++r) {
      const Row& row = frame_.rows[r];
      const SlotHead* slot = LiveSlot(row);
      if (slot == nullptr) {
        Report("FRAME-1", Name(r) + " names slot " + std::to_string(row.slot) + ", not live");
        continue;
      }
      const bool follows = r > 0 && frame_.rows[r - 1].slot == row.slot;
      if (!follows && rows_of[row.slot] > 0) {
        Report("FRAME-1", Name(r) + " lies apart from the other rows of " + Name(*slot));
      }
      if (follows && frame_.rows[r - 1].kv_index >= row.kv_index) {
        Report("FRAME-1", Name(r) + " does not ascend in kv_index");
      }
      ++rows_of[row.slot];
      if (r < slot->row_begin || r - slot->row_begin >= slot->num_rows) {
        Report("FRAME-1", Name(r) + " is not among the rows of " + Name(*slot));
      }
    }
    for (uint32_t i = 0; i < head_.num_slots; ++i) {
      const SlotHead& slot = frame_.slots[i];
      if (rows_of[slot.slot] == slot.num_rows) continue;
      Report("FRAME-1", Name(slot) + " has " + std::to_string(rows_of[slot.slot]) +
                            " rows, its head says " + std::to_string(slot.num_rows));
    }
  }

  void CheckPlaces() {
    for (uint32_t r = 0; r < head_.num_rows; ++r) {
      const Row& row = frame_.rows[r];
      const SlotHead* slot = LiveSlot(row);
      if (slot == nullptr) continue;
      for (uint32_t g = 0; g < head_.num_groups; ++g) {
        if (row.kv_index >= slot->num_tokens[g]) {
          Report("FRAME-2", Name(r) + " has kv_index " + std::to_string(row.kv_index) + " of " +
                                std::to_string(slot->num_tokens[g]) + " tokens");
        }
        if (!Covered(*slot, g, row.kv_index)) {
          Report("FRAME-2", Name(r) + " has kv_index " + std::to_string(row.kv_index) +
                                ", which no segment covers");
        }
      }
    }
  }

  bool Covered(const SlotHead& slot, uint32_t g, uint32_t kv_index) const {
    const Segment* segments = frame_.SlotSegments(g, slot.slot);
    return std::any_of(segments, segments + slot.num_segments[g], [&](const Segment& segment) {
      const uint64_t tokens = uint64_t{segment.num_pages} * geometry_.groups[g].page_tokens;
      return kv_index >= segment.first_token && kv_index - segment.first_token < tokens;
    });
  }

  // FRAME-3 and FRAME-4 of one slot and group. Entries are compared where the segments can be
  // trusted to say what they should be.
  void CheckTable(const SlotHead& slot, uint32_t g) {
    const uint64_t page_tokens = geometry_.groups[g].page_tokens;
    if ((slot.num_tokens[g] + page_tokens - 1) / page_tokens != slot.num_pages[g]) {
      Report("FRAME-3", Name(slot) + " has " + std::to_string(slot.num_tokens[g]) + " tokens on " +
                            std::to_string(slot.num_pages[g]) + " pages");
    }
    CheckHoles(slot, g);
    if (CheckSegments(slot, g)) CheckEntries(slot, g);
  }

  // Where holes may stand, and what a sliding group must still hold.
  void CheckHoles(const SlotHead& slot, uint32_t g) {
    const KvGroupGeometry& group = geometry_.groups[g];
    const std::string first = std::to_string(slot.first_token[g]);
    if (group.kind != KvGroupKind::kSliding) {
      if (slot.first_token[g] != 0) {
        Report("FRAME-3", Name(slot) + " begins at token " + first + " in a full group");
      }
      if (slot.num_holes[g] > 0 && (slot.flags & kSlotLossyView) == 0) {
        Report("FRAME-3", Name(slot) + " has " + std::to_string(slot.num_holes[g]) +
                              " holes in a full group and no lossy view");
      }
      return;
    }
    const uint64_t holes_end = uint64_t{slot.num_holes[g]} * group.page_tokens;
    if (slot.first_token[g] != holes_end) {
      Report("FRAME-3", Name(slot) + " has " + std::to_string(slot.num_holes[g]) +
                            " holes, not all before its first token " + first);
    }
    if (slot.num_segments[g] > 0 &&
        frame_.SlotSegments(g, slot.slot)->first_token != slot.first_token[g]) {
      Report("FRAME-3", Name(slot) + " begins at token " + first + ", its segments elsewhere");
    }
    const Row* row = FirstRow(slot);
    if (row == nullptr) return;
    const uint64_t seen_from = row->kv_index - std::min(row->kv_index, group.window_tokens - 1);
    if (slot.first_token[g] > seen_from) {
      Report("FRAME-3", Name(slot) + " begins at token " + first + ", its first row sees from " +
                            std::to_string(seen_from) + " on");
    }
  }

  // True when the segments lie within the table, ascend, and hold as many pages as they should.
  bool CheckSegments(const SlotHead& slot, uint32_t g) {
    const KvGroupGeometry& group = geometry_.groups[g];
    const Segment* segments = frame_.SlotSegments(g, slot.slot);
    uint32_t entry = 0, held = 0;
    for (uint32_t k = 0; k < slot.num_segments[g]; ++k) {
      const Segment& segment = segments[k];
      const std::string name = Name(slot) + " segment " + std::to_string(k);
      const uint32_t in_superblock = segment.first_page % group.pages_per_superblock;
      const uint32_t first = segment.first_token / group.page_tokens;
      if (segment.first_token % group.page_tokens != 0 || first < entry ||
          first >= slot.num_pages[g]) {
        Report("FRAME-3", name + " begins at token " + std::to_string(segment.first_token) +
                              ", not at a page from " + std::to_string(entry) + " on");
        return false;
      }
      if (segment.num_pages == 0 ||
          segment.num_pages > group.pages_per_superblock - in_superblock ||
          segment.num_pages > slot.num_pages[g] - first) {
        Report("FRAME-3", name + " has " + std::to_string(segment.num_pages) + " pages from " +
                              std::to_string(segment.first_page) + " on");
        return false;
      }
      if (segment.offset_bytes != group.PageOffset(PageId{segment.first_page}) ||
          segment.kv_group != g) {
        Report("FRAME-3", name + " does not lie where its page lies");
      }
      if (k > 0 && first == entry && in_superblock != 0 &&
          segment.first_page == segments[k - 1].first_page + segments[k - 1].num_pages) {
        Report("FRAME-3", name + " continues the one before it: they are not maximal");
      }
      entry = first + segment.num_pages;
      held += segment.num_pages;
    }
    if (held == slot.num_pages[g] - slot.num_holes[g]) return true;
    Report("FRAME-3", Name(slot) + " has " + std::to_string(slot.num_pages[g]) + " pages and " +
                          std::to_string(slot.num_holes[g]) + " holes, its segments hold " +
                          std::to_string(held));
    return false;
  }

  // FRAME-4. Requires: CheckSegments.
  void CheckEntries(const SlotHead& slot, uint32_t g) {
    const Segment* segments = frame_.SlotSegments(g, slot.slot);
    uint32_t entry = 0;
    for (uint32_t k = 0; k < slot.num_segments[g]; ++k) {
      const Segment& segment = segments[k];
      const uint32_t first = segment.first_token / geometry_.groups[g].page_tokens;
      for (; entry < first; ++entry) CheckEntry(slot, g, entry, kNullPage.value);
      for (uint32_t i = 0; i < segment.num_pages; ++i, ++entry) {
        CheckEntry(slot, g, entry, segment.first_page + i);
      }
    }
    for (; entry < frame_.max_pages; ++entry) CheckEntry(slot, g, entry, kNullPage.value);
  }

  void CheckEntry(const SlotHead& slot, uint32_t g, uint32_t index, uint32_t expected) {
    const uint32_t page = frame_.SlotPages(g, slot.slot)[index];
    if (page == expected) return;
    Report("FRAME-4", Name(slot) + " dense entry " + std::to_string(index) + " is page " +
                          std::to_string(page) + ", not " + std::to_string(expected));
  }

  // FRAME-5: what a row writes is no other slot's to write, nor in its sight.
  void CheckWrites() {
    std::vector<NamedPage> named;
    for (uint32_t i = 0; i < head_.num_slots; ++i) {
      const SlotHead& slot = frame_.slots[i];
      for (uint32_t g = 0; g < head_.num_groups; ++g) {
        const uint32_t* pages = frame_.SlotPages(g, slot.slot);
        for (uint32_t p = 0; p < slot.num_pages[g]; ++p) {
          if (pages[p] != kNullPage.value) named.push_back({g, pages[p], &slot, p});
        }
      }
    }
    std::sort(named.begin(), named.end());
    std::vector<NamedPage> written;
    for (uint32_t r = 0; r < head_.num_rows; ++r) {
      const SlotHead* slot = LiveSlot(frame_.rows[r]);
      if (slot == nullptr || (frame_.rows[r].flags & kRowNoWrite) != 0) continue;
      for (uint32_t g = 0; g < head_.num_groups; ++g) CheckWrite(named, written, r, *slot, g);
    }
    std::sort(written.begin(), written.end());
    for (size_t w = 1; w < written.size(); ++w) {
      const NamedPage &one = written[w - 1], &other = written[w];
      if (one.group != other.group || one.page != other.page || one.slot == other.slot) continue;
      Report("FRAME-5", Name(*one.slot) + " and " + Name(*other.slot) + " both write page " +
                            std::to_string(one.page));
    }
  }

  struct NamedPage {
    uint32_t group, page;
    const SlotHead* slot;
    uint32_t index;  // in the slot's table
    bool operator<(const NamedPage& other) const {
      return std::tie(group, page, slot) < std::tie(other.group, other.page, other.slot);
    }
  };

  void CheckWrite(const std::vector<NamedPage>& named, std::vector<NamedPage>& written, uint32_t r,
                  const SlotHead& slot, uint32_t g) {
    const uint32_t page_tokens = geometry_.groups[g].page_tokens;
    const uint32_t kv_index = frame_.rows[r].kv_index;
    const uint32_t index = kv_index / page_tokens;
    if (index >= slot.num_pages[g]) return;  // FRAME-2 tells
    const uint32_t page = frame_.SlotPages(g, slot.slot)[index];
    if (page == kNullPage.value) {
      Report("FRAME-5", Name(r) + " writes the null page");
      return;
    }
    written.push_back({g, page, &slot, index});
    auto entry = std::lower_bound(named.begin(), named.end(), NamedPage{g, page, nullptr, 0});
    for (; entry != named.end() && entry->group == g && entry->page == page; ++entry) {
      const SlotHead& other = *entry->slot;
      const uint64_t place = uint64_t{entry->index} * page_tokens + kv_index % page_tokens;
      if (&other == &slot || place >= other.num_tokens[g]) continue;
      Report("FRAME-5", Name(r) + " of " + Name(slot) + " writes page " + std::to_string(page) +
                            " where " + Name(other) + " reads it");
    }
  }

  void CheckLogits() {
    uint32_t next = 0;
    for (uint32_t r = 0; r < head_.num_rows; ++r) {
      const uint32_t index = frame_.rows[r].logits_idx;
      if ((frame_.rows[r].flags & kRowWantLogits) != 0 && index == kNone32) {
        Report("FRAME-6", Name(r) + " wants logits and has no logits_idx");
      }
      if (index == kNone32) continue;
      if (index != next) {
        Report("FRAME-6", Name(r) + " has logits_idx " + std::to_string(index) + ", not " +
                              std::to_string(next));
      }
      ++next;
    }
    if (next != head_.num_logits) {
      Report("FRAME-6", std::to_string(next) + " rows have a logits_idx, the head says " +
                            std::to_string(head_.num_logits));
    }
  }

  void CheckChain(const FrameHead& previous) {
    if (head_.epoch != previous.epoch + 1) {
      Report("FRAME-7",
             "epoch " + std::to_string(head_.epoch) + " after " + std::to_string(previous.epoch));
    }
    const uint64_t hash =
        ChainHash(previous.chain_hash, head_, frame_.rows, frame_.bytes() - sizeof(FrameHead));
    if (hash != head_.chain_hash) Report("FRAME-7", "the chain hash is not that of its content");
  }

  const SlotHead* LiveSlot(const Row& row) const {
    return row.slot < frame_.max_slots ? frame_.by_slot[row.slot] : nullptr;
  }
  // The row that its head names first, unless FRAME-1 tells that there is none.
  const Row* FirstRow(const SlotHead& slot) const {
    if (slot.num_rows == 0 || slot.row_begin >= head_.num_rows) return nullptr;
    const Row* row = &frame_.rows[slot.row_begin];
    return row->slot == slot.slot ? row : nullptr;
  }
  static std::string Name(uint32_t row) { return "row " + std::to_string(row); }
  static std::string Name(const SlotHead& slot) { return "slot " + std::to_string(slot.slot); }

  const KvGeometry& geometry_;
  const FrameView& frame_;
  const FrameHead& head_;
  std::vector<std::string> out_;
};

}  // namespace

std::vector<std::string> ValidateFrame(const KvGeometry& geometry, const FrameView& frame,
                                       const FrameHead* previous) {
  return FrameValidator(geometry, frame).Run(previous);
}

}  // namespace kvrm
