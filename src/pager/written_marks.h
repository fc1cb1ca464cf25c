// How many of a sequence's token places completed epochs have written. Each commit leaves a mark:
// the sequence's length then, because its rows wrote the places up to there. When an epoch
// completes, the youngest mark of a completed epoch tells; nobody has to visit the sequences.
//
// Exact for executors that run up to kMarks - 1 epochs behind; behind that a place is known to be
// written later than it could be, never earlier.
//
// Thread class: thread-compatible. Plain data.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace kvrm {

class WrittenMarks {
 public:
  static constexpr uint32_t kMarks = 4;

  // The commit of `epoch` left `num_tokens` places. Requires: epochs do not fall; `num_tokens` is
  // below the last mark's only after Shorten.
  void Add(uint64_t epoch, uint32_t num_tokens, uint64_t completed_epoch) {
    // Of the completed ones only the youngest matters.
    while (count_ > 1 && marks_[1].epoch <= completed_epoch) {
      std::move(marks_.begin() + 1, marks_.begin() + count_, marks_.begin());
      --count_;
    }
    const bool replaces = count_ > 0 && marks_[count_ - 1].epoch == epoch;
    if (!replaces && count_ < kMarks) ++count_;
    marks_[count_ - 1] = {epoch, num_tokens};
  }

  // The places from `num_tokens` on went; what stands there later is not what was written.
  void Shorten(uint32_t num_tokens) {
    if (num_tokens == 0) count_ = 0;
    for (uint32_t i = 0; i < count_; ++i) {
      marks_[i].num_tokens = std::min(marks_[i].num_tokens, num_tokens);
    }
  }

  uint32_t Completed(uint64_t completed_epoch) const {
    uint32_t i = count_;
    while (i > 0 && marks_[i - 1].epoch > completed_epoch) --i;
    return i == 0 ? 0 : marks_[i - 1].num_tokens;
  }

 private:
  struct Mark {
    uint64_t epoch = 0;
    uint32_t num_tokens = 0;
  };
  std::array<Mark, kMarks> marks_;  // ascending epochs
  uint32_t count_ = 0;
};

}  // namespace kvrm
