#include "capi/sequence_ledger.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace kvrm {
namespace {

constexpr uint32_t kMarksPerSlot = 8;

}  // namespace

SequenceLedger::SequenceLedger(uint32_t max_slots)
    : slot_mask_(std::bit_ceil(max_slots) - 1), slots_(max_slots), saved_(max_slots) {
  touched_.reserve(max_slots);
  marks_.reserve(size_t{kMarksPerSlot} * max_slots);
}

void SequenceLedger::BeginStep() {
  ++step_;
  touched_.clear();
  marks_.clear();
}

void SequenceLedger::Touch(Sequence& sequence) {
  if (sequence.touched_in == step_) return;
  const auto slot = static_cast<uint16_t>(&sequence - slots_.data());
  saved_[slot] = sequence;
  sequence.touched_in = step_;
  touched_.push_back(slot);
}

void SequenceLedger::Open(kvrm_seq seq) {
  KVRM_CHECK(SlotOf(seq) < slots_.size() && slots_[SlotOf(seq)].use == Use::kFree,
             "an id of the pager names its slot in its low bits");
  Sequence& sequence = slots_[SlotOf(seq)];
  Touch(sequence);
  sequence = {.seq = seq, .use = Use::kOpen, .touched_in = step_};
  ++num_open_;
}

void SequenceLedger::Close(Sequence& sequence) {
  Touch(sequence);
  sequence.use = Use::kClosing;
  --num_open_;
}

void SequenceLedger::Commit(const Pager& pager, bool computed) {
  for (const uint16_t slot : touched_) {
    Sequence& sequence = slots_[slot];
    if (sequence.use == Use::kClosing) sequence.use = Use::kFree;
    if (sequence.use != Use::kOpen) continue;
    sequence.new_from = pager.num_tokens(SeqId{sequence.seq});
    if (computed) sequence.computed = sequence.new_from;
  }
}

void SequenceLedger::RollbackStep() {
  for (const uint16_t slot : touched_) {
    const bool was_open = slots_[slot].use == Use::kOpen;
    slots_[slot] = saved_[slot];
    const bool is_open = slots_[slot].use == Use::kOpen;
    num_open_ += (is_open ? 1 : 0) - (was_open ? 1 : 0);
  }
}

uint64_t SequenceLedger::AddMark(const Pager::Savepoint& savepoint, Sequence& sequence) {
  Touch(sequence);  // so that what RollbackTo restores is known to be this step's
  marks_.push_back({++last_mark_, savepoint, sequence});
  return last_mark_;
}

const SequenceLedger::Mark* SequenceLedger::FindMark(uint64_t number) const {
  const auto before = [](const Mark& mark, uint64_t wanted) { return mark.number < wanted; };
  const auto found = std::lower_bound(marks_.begin(), marks_.end(), number, before);
  return found != marks_.end() && found->number == number ? &*found : nullptr;
}

void SequenceLedger::RollbackTo(const Mark& mark) {
  const Sequence before = mark.sequence;
  Sequence& sequence = slots_[SlotOf(before.seq)];
  if (sequence.use != before.use) ++num_open_;  // closed since
  sequence = before;
  marks_.erase(marks_.begin() + (&mark - marks_.data()) + 1, marks_.end());
}

}  // namespace kvrm
