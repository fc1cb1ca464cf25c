// An executor that is one step behind: given frame e it keeps what it needs and runs it (page
// copies, rows, reads of every visible place) only when asked, which is after frame e + 1 has been
// committed. It has no tables but its own, patched by deltas in the order of its runs.
//
// Law: whatever the pager did meanwhile (close, trim, slide, evict, reuse), it reads what it
// should, as long as StepDone(e) is called after its run of e and not before. Test code only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "frame/frame.h"
#include "shadow_store.h"

namespace kvrm::heart {

class DelayedExecutor {
 public:
  // Requires: `pager` and `store` outlive it.
  DelayedExecutor(const Pager& pager, const ShadowStore& store, uint32_t max_slots)
      : geometry_(&pager.geometry()),
        store_(&store),
        tables_(geometry_->groups.size(), std::vector<std::vector<uint32_t>>(max_slots)) {}

  bool HasFrame() const { return kept_.has_value(); }
  uint64_t epoch() const { return kept_->epoch; }

  // Keeps frame e. Requires: no frame is kept.
  void Keep(const FrameView& frame, std::span<const Pager::PageCopy> copies,
            std::vector<ExpectedSlot> slots) {
    KVRM_CHECK(!kept_, "the delayed executor is one step behind, not two");
    kept_.emplace(Kept{frame.head->epoch,
                       {frame.deltas, frame.deltas + frame.head->num_deltas},
                       {copies.begin(), copies.end()},
                       std::move(slots)});
  }

  // Runs the frame that is kept; what is wrong, or nothing.
  std::optional<std::string> Run() {
    for (const Delta& delta : kept_->deltas) Apply(delta);
    for (const Pager::PageCopy& copy : kept_->copies) store_->Copy(copy);
    for (const ExpectedSlot& slot : kept_->slots) WriteRows(slot);
    std::optional<std::string> wrong;
    for (const ExpectedSlot& slot : kept_->slots) {
      for (uint32_t g = 0; g < tables_.size() && !wrong; ++g) wrong = Read(g, slot);
    }
    kept_.reset();
    return wrong;
  }

 private:
  struct Kept {
    uint64_t epoch;
    std::vector<Delta> deltas;
    std::vector<Pager::PageCopy> copies;
    std::vector<ExpectedSlot> slots;
  };

  void Apply(const Delta& delta) {
    std::vector<uint32_t>& table = tables_[delta.kv_group][delta.slot];
    const uint32_t end = delta.kind == DeltaKind::kTruncate  ? delta.index
                         : delta.kind == DeltaKind::kReplace ? delta.index + 1
                                                             : delta.index + delta.count;
    if (delta.kind == DeltaKind::kTruncate || end > table.size()) table.resize(end);
    if (delta.kind == DeltaKind::kTruncate) return;
    for (uint32_t i = delta.index; i < end; ++i) {
      table[i] = delta.kind == DeltaKind::kHole ? 0 : delta.page + (i - delta.index);
    }
  }

  void WriteRows(const ExpectedSlot& slot) const {
    for (uint32_t g = 0; g < tables_.size(); ++g) {
      const uint32_t page_tokens = geometry_->groups[g].page_tokens;
      for (uint32_t place = slot.first_row; place < slot.length(); ++place) {
        const uint32_t index = place / page_tokens;
        KVRM_CHECK(index < tables_[g][slot.slot].size(), "a row past the end of its table");
        store_->Write(g, tables_[g][slot.slot][index], place, slot.chain[place]);
      }
    }
  }

  std::optional<std::string> Read(uint32_t group, const ExpectedSlot& slot) const {
    const KvGroupGeometry& geometry = geometry_->groups[group];
    const std::vector<uint32_t>& table = tables_[group][slot.slot];
    const uint32_t reader = slot.first_reader(), window = geometry.window_tokens;
    const uint32_t first_seen = window == 0 || reader < window ? 0 : reader + 1 - window;
    for (uint32_t index = 0; index < table.size(); ++index) {
      const uint32_t first_place = index * geometry.page_tokens;
      if (first_place >= slot.length()) break;
      std::optional<std::string> wrong;
      if (table[index] != 0) {
        wrong = store_->FindWrong(group, geometry.PageOffset(PageId{table[index]}), first_place, 1,
                                  slot.chain);
      } else if (first_place + geometry.page_tokens > first_seen && !(slot.lossy && window == 0)) {
        wrong = "page " + std::to_string(index) + " is seen and not held";
      }
      if (wrong) return "one step behind, slot " + std::to_string(slot.slot) + ": " + *wrong;
    }
    return std::nullopt;
  }

  const KvGeometry* geometry_;
  const ShadowStore* store_;
  std::vector<std::vector<std::vector<uint32_t>>> tables_;  // [group][slot][index]
  std::optional<Kept> kept_;
};

}  // namespace kvrm::heart
