// kvrm_commit: the caller's rows are held against what the step has made, then pager and frame are
// published together.
#include <algorithm>
#include <cstring>

#include "capi/boundary.h"
#include "capi/frame_view.h"
#include "transport/page_copies.h"

using namespace kvrm;

namespace kvrm {
namespace {

// Rows, and the heads of their slots, from the caller's. Fails on the first that breaks a law of
// the frame. One pass over the rows; a sequence's state of this commit stands in the ledger.
class RowReader {
 public:
  RowReader(kvrm_runtime& runtime, const kvrm_row_input* rows, uint32_t num_rows)
      : r_(runtime), inputs_(rows), num_rows_(num_rows) {}

  // Leaves rows and slot heads in the runtime's scratch.
  kvrm_status Read() {
    for (const uint16_t slot : r_.ledger.touched()) r_.ledger.at(slot).in_rows = false;
    r_.rows.clear();
    r_.slot_heads.clear();
    for (uint32_t i = 0; i < num_rows_; ++i) {
      const kvrm_status status = ReadRow(i);
      if (status != KVRM_OK) return Forget(status);
    }
    if (const kvrm_status status = CheckNothingIsMissing(); status != KVRM_OK) {
      return Forget(status);
    }
    if (const kvrm_status status = CheckWindowsHold(); status != KVRM_OK) return Forget(status);
    // Callers mostly go through their slots in order.
    const auto ascends = [](const SlotHead& a, const SlotHead& b) { return a.slot < b.slot; };
    if (!std::is_sorted(r_.slot_heads.begin(), r_.slot_heads.end(), ascends)) {
      std::sort(r_.slot_heads.begin(), r_.slot_heads.end(), ascends);
    }
    return Forget(KVRM_OK);
  }

 private:
  // A slot's scratch is clean again, whatever happened.
  kvrm_status Forget(kvrm_status status) {
    for (const SlotHead& head : r_.slot_heads) r_.ledger.at(head.slot).in_rows = false;
    return status;
  }

  kvrm_status ReadRow(uint32_t i) {
    const kvrm_row_input& in = inputs_[i];
    SequenceLedger::Sequence* sequence = r_.ledger.Find(in.seq);
    if (sequence == nullptr) return Refuse(i, "seq: %u is not open", in.seq);
    if ((in.flags & ~(KVRM_ROW_WANT_LOGITS | KVRM_ROW_NO_WRITE | KVRM_ROW_WANT_LSE)) != 0) {
      return Refuse(i, "flags: %u has bits that are not known", in.flags);
    }
    if (in.token_src > 1) return Refuse(i, "token_src: %u, must be 0 or 1", in.token_src);
    if (in.token_src == 1 && static_cast<uint32_t>(in.token) >= r_.setup.pager.max_slots) {
      return Refuse(i, "token: %u is no slot", static_cast<uint32_t>(in.token));
    }
    if (in.reserved0 != 0) return Refuse(i, "reserved0: %u, must be 0", in.reserved0);
    if (in.reserved1 != 0) return Refuse(i, "reserved1: %u, must be 0", in.reserved1);
    if (!sequence->in_rows) {
      if (const kvrm_status status = BeginSequence(i, *sequence); status != KVRM_OK) return status;
    } else if (inputs_[i - 1].seq != in.seq) {
      return Refuse(i, "seq: %u has rows apart from this one", in.seq);
    } else if (inputs_[i - 1].kv_index >= in.kv_index) {
      return Refuse(i, "kv_index: %u does not ascend", in.kv_index);
    }
    if (const kvrm_status status = CheckPlace(i, *sequence); status != KVRM_OK) return status;
    AddRow(in);
    return KVRM_OK;
  }

  kvrm_status BeginSequence(uint32_t i, SequenceLedger::Sequence& sequence) {
    if (sequence.computed < sequence.new_from) {
      return Refuse(i, "seq: its places from %u on were not acknowledged; trim them",
                    sequence.computed);
    }
    SlotHead head{};
    head.slot = static_cast<uint16_t>(r_.ledger.SlotOf(sequence.seq));
    head.flags = r_.pager->lossy(SeqId{sequence.seq}) ? kSlotLossyView : 0;
    head.seq_id = sequence.seq;
    head.row_begin = i;
    const uint32_t num_tokens = r_.pager->num_tokens(SeqId{sequence.seq});
    std::fill_n(head.num_tokens, r_.num_groups(), num_tokens);
    r_.slot_heads.push_back(head);
    sequence.in_rows = true;
    sequence.row_end = sequence.new_from;
    return KVRM_OK;
  }

  // A row that writes takes the next new place; one that does not sees a place that is held.
  kvrm_status CheckPlace(uint32_t i, SequenceLedger::Sequence& sequence) {
    const kvrm_row_input& in = inputs_[i];
    if ((in.flags & KVRM_ROW_NO_WRITE) == 0) {
      const uint32_t num_tokens = r_.slot_heads.back().num_tokens[0];
      if (sequence.row_end >= num_tokens || in.kv_index != sequence.row_end) {
        return r_.error.Set(KVRM_INVALID,
                            "rows[%u].kv_index: %u, the places that this step writes are [%u, %u), "
                            "each by one row, in order",
                            i, in.kv_index, sequence.new_from, num_tokens);
      }
      ++sequence.row_end;
      return KVRM_OK;
    }
    if (in.kv_index >= sequence.new_from) {
      return Refuse(i, "kv_index: %u is not written yet", in.kv_index);
    }
    const bool sees = r_.pager->CanTrim(SeqId{in.seq}, in.kv_index) && IsHeld(in.seq, in.kv_index);
    return sees ? KVRM_OK : Refuse(i, "kv_index: %u, what it sees is gone", in.kv_index);
  }

  bool IsHeld(kvrm_seq seq, uint32_t place) const {
    for (uint32_t g = 0; g < r_.num_groups(); ++g) {
      const uint32_t index = place / r_.geometry().groups[g].page_tokens;
      const uint32_t first = r_.pager->first_page(SeqId{seq}, g);
      const std::span<const PageId> pages = r_.pager->pages(SeqId{seq}, g);
      if (index < first || pages[index - first] == kNullPage) return false;
    }
    return true;
  }

  void AddRow(const kvrm_row_input& in) {
    const bool logits = (in.flags & KVRM_ROW_WANT_LOGITS) != 0;
    ++r_.slot_heads.back().num_rows;
    r_.rows.push_back({.token = in.token,
                       .slot = r_.slot_heads.back().slot,
                       .token_src = static_cast<TokenSource>(in.token_src),
                       .flags = in.flags,
                       .position = in.position,
                       .kv_index = in.kv_index,
                       .mask_id = in.mask_id,
                       .lse_target = in.lse_target,
                       .logits_idx = logits ? num_logits_++ : kNone32,
                       .reserved = 0});
  }

  // Each place that the step made has to be written: what nobody wrote would be taken for written.
  kvrm_status CheckNothingIsMissing() {
    for (const uint16_t slot : r_.ledger.touched()) {
      const SequenceLedger::Sequence& sequence = r_.ledger.at(slot);
      if (sequence.use != SequenceLedger::Use::kOpen || sequence.in_rows) continue;
      const uint32_t num_tokens = r_.pager->num_tokens(SeqId{sequence.seq});
      if (num_tokens == sequence.new_from) continue;
      return Missing(sequence.seq, sequence.new_from, num_tokens);
    }
    for (const SlotHead& head : r_.slot_heads) {
      const SequenceLedger::Sequence& sequence = r_.ledger.at(head.slot);
      if (sequence.row_end != head.num_tokens[0]) {
        return Missing(head.seq_id, sequence.row_end, head.num_tokens[0]);
      }
    }
    return KVRM_OK;
  }

  // What the rows of one sequence see, taken together, has to lie in its window at once (WINDOW-1).
  // Rows that write never see more; one that only reads may stand far before them.
  kvrm_status CheckWindowsHold() {
    if (r_.windows == nullptr) return KVRM_OK;
    for (const SlotHead& head : r_.slot_heads) {
      const uint32_t first = r_.rows[head.row_begin].kv_index;
      const uint32_t last = r_.rows[head.row_begin + head.num_rows - 1].kv_index;
      for (uint32_t g = 0; g < r_.num_groups(); ++g) {
        if (r_.geometry().groups[g].kind != KvGroupKind::kSliding) continue;
        const uint32_t seen = std::min(first + 1, r_.geometry().groups[g].window_tokens);
        const uint32_t holds = r_.setup.windows.groups[g].window_tokens;
        if (last - first + seen <= holds) continue;
        return r_.error.Set(KVRM_INVALID,
                            "rows[%u].kv_index: %u, with the row at %u sequence %u sees %u places, "
                            "a window of group %u holds %u",
                            head.row_begin, first, last, head.seq_id, last - first + seen, g,
                            holds);
      }
    }
    return KVRM_OK;
  }

  kvrm_status Missing(kvrm_seq seq, uint32_t begin, uint32_t end) {
    return r_.error.Set(KVRM_INVALID, "no row writes places [%u, %u) of sequence %u", begin, end,
                        seq);
  }

  kvrm_status Refuse(uint32_t row, const char* format, uint32_t value) {
    char text[160];
    std::snprintf(text, sizeof text, format, value);  // NOLINT: formats of this file only
    return r_.error.Set(KVRM_INVALID, "rows[%u].%s", row, text);
  }

  kvrm_runtime& r_;
  const kvrm_row_input* inputs_;
  const uint32_t num_rows_;
  uint32_t num_logits_ = 0;
};

// Each edit is at most one delta, and a frame has room for so many (docs/frame.md, Drawbacks).
kvrm_status CheckEdits(kvrm_runtime& runtime) {
  const std::span<const uint16_t> touched = runtime.ledger.touched();
  if (touched.empty()) return KVRM_OK;
  const uint64_t most = runtime.frames->max_deltas();
  const kvrm_seq seq = runtime.ledger.at(touched.front()).seq;
  const uint64_t edits = runtime.pager->Mark(SeqId{seq}).journal_size;
  if (edits <= most) return KVRM_OK;
  return runtime.error.Set(KVRM_NO_ROOM, "the step has %llu edits, a frame holds %llu",
                           static_cast<unsigned long long>(edits),
                           static_cast<unsigned long long>(most));
}

void Publish(kvrm_runtime& r, uint64_t epoch, const kvrm_row_input* rows, uint32_t num_rows) {
  r.publishing = true;  // from here on a fault cannot be taken back
  if (r.view.head != nullptr) r.previous_head = *r.view.head;
  const std::span<const Delta> deltas = r.pager->Commit(epoch);
  r.view = r.frames->Publish(epoch, r.rows, r.slot_heads, deltas);
  AddPageCopies(r.geometry(), r.pager->page_copies(), r.page_copies);
  r.page_copy_trains = r.page_copies.Flush();
  r.copies_asked = r.page_copy_trains.empty();
  // At once, not when it is asked for: from here on rows that wait may only go to pages that their
  // sequences still hold.
  if (r.windows != nullptr) r.plan = r.windows->Plan(r.view);
  r.ledger.Commit(*r.pager, /*computed=*/r.windows == nullptr);
  r.row_inputs.assign(rows, rows + num_rows);
  r.epoch = epoch;
  r.in_step = r.planned = r.acknowledged = false;
  r.publishing = false;
}

kvrm_status Commit(kvrm_runtime& r, uint64_t epoch, const kvrm_row_input* rows, uint32_t num_rows) {
  if (rows == nullptr && num_rows > 0) return NullOutput(r, "rows");
  if (num_rows > r.setup.capacity.max_rows) {
    return r.error.Set(KVRM_INVALID, "num_rows: %u, must be at most max_rows, %u", num_rows,
                       r.setup.capacity.max_rows);
  }
  if (!r.in_step) {
    const bool same = epoch == r.epoch && epoch > 0 && num_rows == r.row_inputs.size() &&
                      (num_rows == 0 || std::memcmp(rows, r.row_inputs.data(),
                                                    num_rows * sizeof(kvrm_row_input)) == 0);
    if (same) return KVRM_OK;
    if (epoch == 0 || epoch != r.epoch) {
      return r.error.Set(KVRM_INVALID, "no step is open: call kvrm_begin_step first");
    }
    return r.error.Set(KVRM_INVALID, "epoch: %llu was committed, with other rows",
                       static_cast<unsigned long long>(epoch));
  }
  if (const unsigned long long next = r.epoch + 1; epoch != next) {
    return r.error.Set(KVRM_INVALID, "epoch: %llu, the next is %llu",
                       static_cast<unsigned long long>(epoch), next);
  }
  kvrm_status status = CheckCopiesAsked(r);
  if (status == KVRM_OK) status = RowReader(r, rows, num_rows).Read();
  if (status == KVRM_OK) status = CheckEdits(r);
  if (status == KVRM_OK) Publish(r, epoch, rows, num_rows);
  return status;
}

}  // namespace
}  // namespace kvrm

kvrm_status kvrm_commit(kvrm_runtime* runtime, uint64_t epoch, const kvrm_row_input* rows,
                        uint32_t num_rows, kvrm_frame* out) {
  return Call(runtime, When::kAnyTime, [&](kvrm_runtime& r) -> kvrm_status {
    // Before anything is published: an `out` that cannot be written must not cost the step.
    if (out != nullptr) {
      if (const kvrm_status status = CheckFrameOutput(r, *out); status != KVRM_OK) return status;
    }
    if (const kvrm_status status = Commit(r, epoch, rows, num_rows); status != KVRM_OK) {
      return status;
    }
    return out == nullptr ? KVRM_OK : WriteFrame(r, out);
  });
}
