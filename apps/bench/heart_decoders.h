// Sequences that all decode: what one step costs the engine thread. Law I3: the cost follows what
// changes, so it must not grow with the context.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/heart.h"
#include "frame/frame.h"
#include "pager/pager.h"

namespace kvrm::cli {

class Decoders {
 public:
  static constexpr uint32_t kStepsToRewind = 256;

  // `context` is the mean length of the timed steps; `publishes`: with a frame builder.
  Decoders(uint32_t num_seqs, uint32_t context, bool publishes);
  // Pages that so many sequences need at once.
  static uint64_t PagesNeeded(uint32_t num_seqs, uint32_t context);

  // One token more for each sequence: edit, commit, publish, completion. At most kStepsToRewind
  // times before Rewind.
  void Step();
  // Back to the first lengths, so that any number of steps stays near one context.
  void Rewind();
  // Lengths, pages and books are those that the steps since Rewind must have given.
  void Check() const;

 private:
  // Staggered, so that in each step every 16th sequence needs a page.
  uint32_t StartLength(uint32_t i) const;
  void Reserve(uint32_t i, uint32_t tokens);
  void Finish();

  const uint32_t context_;
  std::unique_ptr<Pager> pager_;
  std::unique_ptr<FrameBuilder> builder_;  // nullptr: edit and commit only
  std::vector<SeqId> seqs_;
  std::vector<Row> rows_;
  std::vector<SlotHead> slots_;
  uint64_t epoch_ = 0;
  uint32_t steps_ = 0;  // since Rewind
};

}  // namespace kvrm::cli
