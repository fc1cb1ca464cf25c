// A run of sound frames for tests: sequences that join, wait, grow and leave, over one full and one
// sliding group. Test code only.
#pragma once

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "frame/frame_testing.h"

namespace kvrm::testing {

inline constexpr uint32_t kHistoryWindow = 40;

inline KvGeometry HistoryGeometry() {
  KvGeometry geometry = TinyFrameGeometry(2);
  geometry.groups[1].kind = KvGroupKind::kSliding;
  geometry.groups[1].window_tokens = kHistoryWindow;
  geometry.layer_group = {1, 1, 0, 1, 0};
  geometry.layer_part = {0, 1, 0, 2, 1};
  return geometry;
}

class FrameHistory {
 public:
  static constexpr FrameCapacity kCapacity{.max_slots = 5, .max_rows = 128, .max_pages = 16};

  explicit FrameHistory(uint32_t seed)
      : random_(seed), builder_(MakeBuilder(HistoryGeometry(), kCapacity)) {
    for (std::set<uint32_t>& free : free_) {
      for (uint32_t page = 1; page < 2 * kCapacity.max_slots * kCapacity.max_pages; ++page) {
        free.insert(page);
      }
    }
  }

  FrameView Step() {
    rows_.clear();
    heads_.clear();
    deltas_.clear();
    num_logits_ = 0;
    constexpr auto kSlots = static_cast<uint16_t>(kCapacity.max_slots);
    for (uint16_t slot = 0; slot < kSlots; ++slot) {
      const uint32_t choice = Below(16);
      if (choice == 0 || sequences_[slot].length + 25 > kCapacity.max_pages * 16) {
        Leave(slot);
      } else if (choice < 12) {
        Grow(slot, choice < 9 ? 1 : 1 + Below(25));
      }  // else it waits: its tables stay, and no head names them
    }
    return builder_->Publish(++epoch_, rows_, heads_, deltas_);
  }

  uint64_t epoch() const { return epoch_; }

 private:
  struct Sequence {
    uint32_t id = 0;
    uint32_t length = 0;
    std::vector<uint32_t> pages[2];
  };

  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }

  void Leave(uint16_t slot) {
    for (uint8_t g = 0; g < 2; ++g) {
      std::vector<uint32_t>& pages = sequences_[slot].pages[g];
      for (uint32_t page : pages) Release(g, page);
      if (!pages.empty()) deltas_.push_back(MakeDelta(DeltaKind::kTruncate, slot, 0, 0, 0, g));
      pages.clear();
    }
    sequences_[slot].length = 0;
    sequences_[slot].id = ++last_id_;
  }

  void Grow(uint16_t slot, uint32_t tokens) {
    Sequence& sequence = sequences_[slot];
    const uint32_t old_length = sequence.length;
    sequence.length += tokens;
    Slide(slot, old_length);
    for (uint8_t g = 0; g < 2; ++g) {
      while (sequence.pages[g].size() * 16 < sequence.length) AppendPage(slot, g);
    }
    heads_.push_back(
        MakeSlot(slot, sequence.length, static_cast<uint32_t>(rows_.size()), tokens, 2));
    heads_.back().seq_id = sequence.id;
    for (uint32_t place = old_length; place < sequence.length; ++place) {
      const bool last = place + 1 == sequence.length;
      rows_.push_back(MakeRow(slot, place, last ? num_logits_++ : kNone32));
    }
  }

  // Pages that the first new row does not see any more leave the sliding group.
  void Slide(uint16_t slot, uint32_t old_length) {
    if (old_length + 1 < kHistoryWindow) return;
    std::vector<uint32_t>& pages = sequences_[slot].pages[1];
    const uint32_t end = (old_length + 1 - kHistoryWindow) / 16;
    for (uint32_t i = 0; i < end; ++i) {
      if (pages[i] == 0) continue;
      Release(1, pages[i]);
      pages[i] = 0;
      deltas_.push_back(MakeDelta(DeltaKind::kHole, slot, i, 0, 1, 1));
    }
  }

  void AppendPage(uint16_t slot, uint8_t g) {
    std::vector<uint32_t>& pages = sequences_[slot].pages[g];
    const uint32_t next = pages.empty() || pages.back() == 0 ? 0 : pages.back() + 1;
    const bool extends = next % 8 != 0 && free_[g].count(next) > 0;
    auto page = extends ? free_[g].find(next) : std::next(free_[g].begin(), Below(3));
    // By chance the lowest page may continue the run, too.
    const bool continues = next % 8 != 0 && *page == next;
    deltas_.push_back(MakeDelta(continues ? DeltaKind::kExtend : DeltaKind::kAppend, slot,
                                static_cast<uint32_t>(pages.size()), *page, 1, g));
    pages.push_back(*page);
    free_[g].erase(page);
  }

  void Release(uint8_t g, uint32_t page) {
    if (page != 0) free_[g].insert(page);
  }

  std::mt19937 random_;
  std::unique_ptr<FrameBuilder> builder_;
  std::set<uint32_t> free_[2];
  Sequence sequences_[kCapacity.max_slots];
  std::vector<Row> rows_;
  std::vector<SlotHead> heads_;
  std::vector<Delta> deltas_;
  uint32_t num_logits_ = 0;
  uint32_t last_id_ = 0;
  uint64_t epoch_ = 0;
};

}  // namespace kvrm::testing
