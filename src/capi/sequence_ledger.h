// What the caller of the C ABI may do with each sequence, so that a mistake is answered before the
// pager would take it for a bug: which ids are open, which places a step has to write, what has
// been computed, which savepoints hold. It follows the pager's transaction: a step or a savepoint
// that is rolled back takes its entries back too.
//
// Thread class: as its runtime. Never allocates after construction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvrm/types.h"
#include "pager/pager.h"

namespace kvrm {

class SequenceLedger {
 public:
  enum class Use : uint8_t { kFree, kOpen, kClosing };
  struct Sequence {
    kvrm_seq seq = 0;
    Use use = Use::kFree;
    bool publish_waits = false;  // rows stand in its window only
    bool in_rows = false;        // scratch of a commit
    uint64_t touched_in = 0;     // the step that saved it last
    uint32_t new_from = 0;       // places before it were there at the last commit, or are shared
    uint32_t computed = 0;       // places that an executor has computed, at most new_from
    uint32_t row_end = 0;        // scratch of a commit: the next place that a row has to write
  };

  explicit SequenceLedger(uint32_t max_slots);

  // The open sequence of that id, or nullptr.
  Sequence* Find(kvrm_seq seq) {
    const uint32_t slot = SlotOf(seq);
    if (slot >= slots_.size()) return nullptr;
    Sequence& found = slots_[slot];
    return found.use == Use::kOpen && found.seq == seq ? &found : nullptr;
  }
  const Sequence* Find(kvrm_seq seq) const { return const_cast<SequenceLedger*>(this)->Find(seq); }
  uint32_t SlotOf(kvrm_seq seq) const { return seq & slot_mask_; }
  Sequence& at(uint32_t slot) { return slots_[slot]; }
  uint32_t num_open() const { return num_open_; }

  // ---- one step
  void BeginStep();
  // Requires: a sequence is going to be changed by this step. Remembers what it was.
  void Touch(Sequence& sequence);
  // Requires: the id is new.
  void Open(kvrm_seq seq);
  void Close(Sequence& sequence);
  // Sequences that the step has touched.
  std::span<const uint16_t> touched() const { return touched_; }
  // What was new is there now; `computed` says whether an executor is taken to run it for sure.
  void Commit(const Pager& pager, bool computed);
  void RollbackStep();

  // ---- savepoints of this step: a stack; no number is ever given twice
  struct Mark {
    uint64_t number = 0;
    Pager::Savepoint savepoint;
    Sequence sequence;
  };
  bool CanMark() const { return marks_.size() < marks_.capacity(); }
  // Requires: CanMark(). Returns its number.
  uint64_t AddMark(const Pager::Savepoint& savepoint, Sequence& sequence);
  // nullptr: void, or of another step. O(log marks).
  const Mark* FindMark(uint64_t number) const;
  // Restores the sequence of that mark and voids the marks after it. Requires: `mark` was found.
  void RollbackTo(const Mark& mark);

 private:
  const uint32_t slot_mask_;     // the pager's ids name their slot in their low bits
  std::vector<Sequence> slots_;  // [max_slots]
  std::vector<Sequence> saved_;  // [max_slots], as it was before this step
  std::vector<uint16_t> touched_;
  std::vector<Mark> marks_;  // ascending number
  uint64_t step_ = 0;
  uint64_t last_mark_ = 0;  // number that was given last
  uint32_t num_open_ = 0;
};

}  // namespace kvrm
