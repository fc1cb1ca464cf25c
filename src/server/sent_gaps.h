// Gaps of one streamed answer that its sending made: text stood ready in time and left late,
// because its reader took nothing or the I/O thread was busy (law I7, cause `output`). The engine's
// own gaps are not counted here once more: of a gap that it has counted, what the sending added is
// excess.
//
// A gap lies between two pieces of text that left one after the other, whatever their choice; a
// write may hold several tokens. Thread-compatible; plain arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>

namespace kvrm {

// When the engine made the tokens that gave a piece of text; 0: it holds none.
struct TextStamps {
  int64_t first_us = 0, last_us = 0;
  void Add(int64_t made_us) {
    if (first_us == 0) first_us = made_us;
    last_us = made_us;
  }
};

// What one write added to the gaps over the budget.
struct LateText {
  uint64_t gaps = 0;      // 1: the gap that ended is over it for its sending alone
  int64_t excess_us = 0;  // what the sending made it longer, beyond the budget
};

class SentGaps {
 public:
  explicit SentGaps(int64_t budget_us = 0) : budget_us_(budget_us) {}  // 0: none is over it

  // A write begins; what came before it has ended.
  void Begin(const TextStamps& text) { text_ = text; }
  // It has left, or was given up.
  LateText End(int64_t now_us) {
    if (text_.first_us == 0) return {};
    const int64_t sent_excess_us = now_us - sent_us_ - budget_us_;
    const int64_t made_excess_us = std::max<int64_t>(0, text_.first_us - made_us_ - budget_us_);
    const int64_t late_us = sent_excess_us - made_excess_us;
    const bool is_late = made_us_ != 0 && budget_us_ != 0 && late_us > 0;
    made_us_ = text_.last_us;
    sent_us_ = now_us;
    text_ = {};
    if (!is_late) return {};
    return {.gaps = made_excess_us == 0 ? 1u : 0u, .excess_us = late_us};
  }

 private:
  int64_t budget_us_;
  TextStamps text_;                    // of the write in hand
  int64_t made_us_ = 0, sent_us_ = 0;  // of the last token that has left; 0: none has
};

}  // namespace kvrm
