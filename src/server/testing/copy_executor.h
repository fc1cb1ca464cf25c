// CopyExecutor: a language model that copies. Its greedy output is the last user message of a chat
// prompt (or else the whole prompt), token by token, then the end token; with a byte vocabulary one
// token is one byte, so characters arrive in pieces. It keeps tokens instead of KV; the page table
// tells it whose pages a forked sequence refers to. Test code only.
//
// A gate lets a test hold it within a replay (a long prefill, a hung engine) and count replays.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "base/check.h"
#include "exec/executor.h"

namespace kvrm::testing {

// Ids of the tests' vocabulary: three control tokens, 256 bytes, unused ones.
inline constexpr TokenId kEndOfText = 0;
inline constexpr TokenId kTurnBegin = 1;  // <|im_start|>
inline constexpr TokenId kTurnEnd = 2;    // <|im_end|>
inline constexpr TokenId kFirstByte = 3;
inline constexpr uint32_t kTestVocab = 300;
inline constexpr TokenId kPoison = 290;  // a prompt that holds it has no finite logits

// Holds and counts replays; thread-safe.
class Gate {
 public:
  void Close() { CloseAfter(0); }
  // `count` more replays pass, then it is closed.
  void CloseAfter(uint64_t count) {
    const std::lock_guard<std::mutex> lock(mutex_);
    last_ = arrived_ + count;
  }
  // The one that is held passes, and the next is held.
  void PassOne() {
    const std::lock_guard<std::mutex> lock(mutex_);
    last_ = arrived_;
    changed_.notify_all();
  }
  void Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    last_ = std::numeric_limits<uint64_t>::max();
    changed_.notify_all();
  }
  void Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    const uint64_t mine = ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return mine <= last_; });
  }
  uint64_t arrived() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return arrived_;
  }
  // Until `count` replays have begun since construction.
  void AwaitArrived(uint64_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t arrived_ = 0;
  uint64_t last_ = std::numeric_limits<uint64_t>::max();  // the last one that passes
};

class CopyExecutor final : public Executor {
 public:
  // `gate` outlives the executor.
  CopyExecutor(uint32_t max_slots, Gate& gate) : gate_(gate) {
    info_.name = "copy";
    info_.invariance = InvarianceClass::kFull;
    info_.vocab = kTestVocab;
    info_.max_slots = max_slots;
    info_.max_logits = max_slots;
    info_.max_rows[0] = max_slots;
    info_.max_rows[1] = max_slots + 16;
    info_.max_rows[2] = max_slots + 64;
    logits_.resize(size_t{max_slots} * kTestVocab);
    row_status_.resize(info_.max_rows[2]);
    slots_.resize(max_slots);
  }

  const ExecutorInfo& info() const override { return info_; }
  void WarmUp() override {}
  const ExecutorCounters& counters() const override { return counters_; }

  StepResult Replay(const FrameView& frame) override {
    gate_.Pass();
    for (uint32_t i = 0; i < frame.head->num_rows; ++i)
      RunRow(frame, frame.rows[i], &row_status_[i]);
    return {.program = ProgramKind::kPrefill,
            .logits = logits_.data(),
            .logits_stride = kTestVocab,
            .panel_max = nullptr,
            .num_panels = 0,
            .row_status = row_status_.data()};
  }

 private:
  struct Slot {
    std::optional<uint32_t> seq_id;
    std::set<uint32_t> first_pages;  // that the sequence has had
    std::vector<TokenId> tokens;
    std::vector<TokenId> script;  // the output; set at the prompt's last row
    size_t prompt_tokens = 0;     // 0 = still reading it
  };

  // A sequence that begins behind its first place was forked: its tokens are those of the one that
  // has written its first page.
  Slot NewSequence(uint32_t seq_id, uint32_t first_page, uint32_t num_tokens) const {
    Slot slot;
    slot.seq_id = seq_id;
    if (num_tokens == 0) return slot;
    for (const Slot& other : slots_) {
      if (!other.first_pages.contains(first_page) || other.tokens.size() < num_tokens) continue;
      slot.tokens.assign(other.tokens.begin(), other.tokens.begin() + num_tokens);
      return slot;
    }
    KVRM_CHECK(false, "a forked sequence refers to pages that were written");
    return slot;
  }

  void RunRow(const FrameView& frame, const Row& row, uint8_t* status) {
    Slot& slot = slots_[row.slot];
    const uint32_t seq_id = frame.by_slot[row.slot]->seq_id;
    const uint32_t first_page = frame.SlotPages(0, row.slot)[0];
    if (slot.seq_id != seq_id) slot = NewSequence(seq_id, first_page, row.kv_index);
    slot.first_pages.insert(first_page);
    KVRM_CHECK(row.kv_index == slot.tokens.size(), "rows come in order");
    slot.tokens.push_back(row.token);
    const bool prompt = slot.prompt_tokens == 0;
    *status = prompt && row.token == kPoison ? kRowNonFinite : kRowOk;
    if ((row.flags & kRowWantLogits) == 0) return;
    if (row.lse_target >= 0) return WriteLogits(row.logits_idx, kTurnEnd, slot.tokens.size());
    if (slot.prompt_tokens == 0) {
      slot.prompt_tokens = slot.tokens.size();
      slot.script = ScriptOf(slot.tokens);
    }
    const size_t output_idx = slot.tokens.size() - slot.prompt_tokens;
    const TokenId next = output_idx < slot.script.size() ? slot.script[output_idx] : kTurnEnd;
    WriteLogits(row.logits_idx, next, slot.tokens.size());
  }

  // After `...<|im_start|>user\n` up to `<|im_end|>`, or everything.
  static std::vector<TokenId> ScriptOf(const std::vector<TokenId>& prompt) {
    size_t end = prompt.size();
    while (end > 0 && prompt[end - 1] != kTurnEnd) --end;
    if (end == 0) return prompt;
    size_t begin = --end;
    while (begin > 0 && prompt[begin - 1] != kTurnBegin) --begin;
    while (begin < end && prompt[begin] != kFirstByte + '\n') ++begin;
    if (begin < end) ++begin;
    return {prompt.begin() + static_cast<std::ptrdiff_t>(begin),
            prompt.begin() + static_cast<std::ptrdiff_t>(end)};
  }

  // The wanted token far above the rest; the rest in a fixed, position-dependent order.
  void WriteLogits(uint32_t logits_idx, TokenId next, size_t position) {
    float* logits = logits_.data() + size_t{logits_idx} * kTestVocab;
    for (uint32_t i = 0; i < kTestVocab; ++i) {
      logits[i] = static_cast<float>((i * 7 + position) % 31) * 0.0625f;
    }
    logits[next] = 12.0f;
  }

  Gate& gate_;
  ExecutorInfo info_;
  ExecutorCounters counters_;
  std::vector<float> logits_;  // [max_slots, kTestVocab]
  std::vector<uint8_t> row_status_;
  std::vector<Slot> slots_;
};

}  // namespace kvrm::testing
