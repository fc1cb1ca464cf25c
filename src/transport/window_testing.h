// Pager, frame, windows and a stub decoder together, with a shadow store that knows which bytes
// each (sequence, token, group, part) should hold. Test code only.
//
// The bytes of a place are a hash of the tokens up to it: equal prefixes have equal bytes, as in a
// model, so that adopted pages are the right ones.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "frame/frame.h"
#include "gtest/gtest.h"
#include "pager/pager.h"
#include "transport/copy_engine.h"
#include "transport/train_merger.h"
#include "transport/window_residency.h"

namespace kvrm::testing {

struct WindowRigConfig {
  uint32_t full_page_tokens = 8;
  uint32_t sliding_page_tokens = 8;  // 0: no sliding group
  uint32_t sliding_window = 20;
  uint32_t slots = 5;
  uint32_t max_seq_tokens = 160;
  uint32_t max_step_tokens = 12;  // most rows of one sequence in one step
  uint32_t superblocks = 12;
  uint64_t scatter_seed = 0;
  uint8_t publish_age_steps = 0;
  bool parts_within_slots = false;  // which of the two strides is the larger
  uint64_t tau_bytes = kDefaultTauBytes;
};

inline KvGroupGeometry WindowGroup(uint32_t page_tokens, uint32_t parts, uint32_t window) {
  KvGroupGeometry group;
  group.kind = window == 0 ? KvGroupKind::kFull : KvGroupKind::kSliding;
  group.window_tokens = window;
  group.page_tokens = page_tokens;
  group.num_parts = parts;
  group.part_page_bytes = page_tokens * sizeof(uint64_t);
  group.pages_per_superblock = 8;
  group.superblock_bytes = 8 * group.page_bytes() + 64;
  return group;
}

class WindowRig {
 public:
  static constexpr uint64_t kTokenBytes = sizeof(uint64_t);
  struct Sequence {
    std::vector<TokenId> tokens;     // whose K and V are, or are being, computed
    std::vector<uint64_t> contents;  // [tokens] what their places hold, before group and part
    uint32_t committed = 0;          // length at the last commit
    uint32_t first_row = 0;          // rows of the open step are [first_row, tokens.size())
    bool no_write_row = false;       // its only row reads the last place
  };

  explicit WindowRig(const WindowRigConfig& config);

  const KvGeometry& geometry() const { return pager_->geometry(); }
  uint32_t num_groups() const { return static_cast<uint32_t>(geometry().groups.size()); }
  Pager& pager() { return *pager_; }
  WindowResidency& windows() { return *windows_; }
  std::map<uint32_t, Sequence>& sequences() { return sequences_; }
  uint64_t staged_places() const { return staged_places_; }

  // ---- verbs within a step, as a host calls them
  void BeginStep() {
    pager_->BeginStep();
    before_ = sequences_;
    for (auto& [id, seq] : sequences_) {
      seq.first_row = Length(seq);
      seq.no_write_row = false;
    }
  }
  void RollbackStep() {
    pager_->RollbackStep();
    sequences_ = before_;
  }
  std::optional<uint32_t> Open() {
    const auto seq = pager_->Open();
    if (!seq) return std::nullopt;
    sequences_[seq->value] = {};
    return seq->value;
  }
  void Close(uint32_t id) {
    pager_->Close(SeqId{id});
    sequences_.erase(id);
  }
  bool AddRows(uint32_t id, const std::vector<TokenId>& tokens);
  bool Alias(uint32_t dst, uint32_t src, uint32_t tokens);
  // Adopts what the index has of `prompt`; when that is all of it, its last row only reads.
  uint32_t Adopt(uint32_t dst, const std::vector<TokenId>& prompt);
  bool Trim(uint32_t id, uint32_t length);

  // ---- the rest of the step
  void CommitAndPlan();
  void Plan();
  // The decoder: each row writes its K and V into the windows.
  void RunRows();
  // A decoder that fails half way.
  void RunBadRows(std::mt19937_64& random) {
    for (const Row& row : rows_) {
      if ((row.flags & kRowNoWrite) == 0 && random() % 2 == 0) WriteRow(row, random());
    }
  }
  void Acknowledge() {
    engine_.Run(windows_->Acknowledge(epoch_));
    EXPECT_TRUE(windows_->Acknowledge(epoch_).empty());
    pager_->StepDone(epoch_);
    if (config_.publish_age_steps == 0) CheckPool();
  }
  // The step is given up: its rows were not written.
  void GiveUp() { pager_->StepDone(epoch_); }
  // After a step that failed: the stage copies again, and nothing else.
  void PlanAgain();
  void PublishAll() {
    for (uint32_t slot = 0; slot < config_.slots; ++slot) Publish(AsSlot(slot));
    CheckPool();
  }
  void Publish(SlotId slot) { engine_.Run(windows_->Publish(slot)); }
  void Index(uint32_t id) {
    Publish(pager_->slot(SeqId{id}));
    pager_->IndexPrefix(SeqId{id}, kSalt, sequences_[id].tokens);
  }

  // What the pool holds of every sequence, each held place of each group and part.
  void CheckPool();

  static uint32_t Length(const Sequence& seq) { return static_cast<uint32_t>(seq.tokens.size()); }

 private:
  static constexpr PrefixSalt kSalt{.tenant = 1, .model = 2};

  static SlotId AsSlot(uint32_t slot) { return SlotId{static_cast<uint16_t>(slot)}; }
  static uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 31)) * 0x9E37'79B9'7F4A'7C15ull;
    return x ^ (x >> 29);
  }
  static uint64_t Value(uint64_t contents, uint32_t group, uint32_t part) {
    return Mix(contents + group * 1000 + part + 1);
  }
  static uint64_t Load(const std::byte* at) {
    uint64_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  static void Push(Sequence& seq, TokenId token) {
    const uint64_t before = seq.contents.empty() ? 7 : seq.contents.back();
    seq.tokens.push_back(token);
    seq.contents.push_back(Mix(before * 3 + static_cast<uint64_t>(token) + 1));
  }

  void MakeWindows(uint32_t max_pages);

  std::byte* Place(uint32_t group, uint32_t part, uint32_t slot, uint32_t token) {
    const WindowGeometry::Group& window = strides_.groups[group];
    return memory_[group].data() + part * window.part_stride_bytes +
           slot * window.slot_stride_bytes + token % window.window_tokens * kTokenBytes;
  }

  void BuildRows();
  void WriteRow(const Row& row, uint64_t contents);

  // WINDOW-2: no stage copy goes to a place of a window that is resident.
  void CheckStages();

  // WINDOW-1, for the places that rows see and none writes.
  void CheckVisible();

  void ScribbleOnClosedSlots();

  const WindowRigConfig config_;
  WindowGeometry strides_;
  std::unique_ptr<Pager> pager_;
  std::unique_ptr<FrameBuilder> frames_;
  std::unique_ptr<WindowResidency> windows_;
  CpuCopyEngine engine_;
  std::vector<std::vector<std::byte>> memory_;  // [group] windows
  std::map<uint32_t, Sequence> sequences_, before_;

  uint64_t epoch_ = 0;
  std::vector<Row> rows_;
  std::vector<SlotHead> heads_;
  std::map<uint32_t, uint32_t> heads_by_slot_;  // slot -> sequence
  std::vector<Pager::PageCopy> copies_;
  FrameView frame_;
  std::vector<Train> plan_;
  uint64_t staged_places_ = 0;
};

}  // namespace kvrm::testing
