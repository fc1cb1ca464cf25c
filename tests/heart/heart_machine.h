// Pager, frame builder, oracle, shadow store and executor side by side: runs commands of the verb
// language on all of them and says what disagrees. Test code only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "delayed_executor.h"
#include "executors.h"
#include "frame/frame.h"
#include "oracle.h"
#include "pager/pager.h"
#include "setups.h"
#include "shadow_store.h"
#include "verb_script.h"

namespace kvrm::heart {

struct MachineOptions {
  // Before each commit: after every k-th edit of the step, RollbackStep leaves what was before it.
  bool fail_after_every_edit = false;
  // A mutant, so that a test can show that it would notice: the executor's completion is reported
  // before it has run.
  bool complete_too_early = false;
  uint32_t validate_frame_every = 8;  // frames; the validator takes as long as all the rest
};

class HeartMachine {
 public:
  explicit HeartMachine(const Setup& setup, const MachineOptions& options = {});

  // What disagreed, or nothing. After a disagreement the machine is of no further use.
  std::optional<std::string> Run(const Command& command);
  // Ends everything: the pool is as it was at first, but for what the index keeps; then that too.
  std::optional<std::string> Finish();

  uint64_t operations() const { return operations_; }  // verbs that the pager was asked for
  const PagerCounters& counters() const { return pager_->counters(); }

 private:
  using Table = std::vector<uint32_t>;

  // ---- verbs; all but the last group within a step
  void Edit(const Command& command);
  void Open(const Command& command);
  void Close(uint32_t seq);
  void Reserve(uint32_t seq, uint32_t tokens, uint32_t hint);
  void Alias(uint32_t seq, uint32_t source, uint32_t most_tokens);
  void Trim(uint32_t seq, uint32_t from);
  void TrimPages(const Command& command);
  void Rollback();
  void Adopt(const Command& command);

  void EndStep(Verb verb);
  void Commit();
  void RollbackStep();
  void FailAfterEveryEdit();
  void Complete(uint64_t epoch);
  void RunPending();

  void BetweenSteps(const Command& command);
  void Index(uint32_t seq);
  void Match(const Command& command);
  void Clear();
  void Maintain(Pager::Load load);

  // ---- room
  struct Need {
    uint64_t pages = 0;
    bool copies = false;    // its last page must be copied first
    bool may_copy = false;  // or may be: see NeedOf
  };
  std::vector<Need> NeedOf(const OracleSequence& sequence, uint32_t tokens) const;
  // Pages that are missing, when each superblock that is not taken may go to any group.
  bool Fits(const std::vector<Need>& needs, bool with_optional_copies) const;
  uint64_t FreePages(size_t group) const;
  void CheckMissing(const std::vector<Need>& needs, uint32_t missing_pages);

  // ---- what the pager says
  Table TableOf(SeqId seq, uint32_t group) const;
  void TakeTable(OracleSequence& sequence, uint32_t group, uint32_t tokens, const Need& need);
  void NoticeEvictions();
  void NoticeRolledBackPages();
  void ComparePools();
  void CompareSequence(const OracleSequence& sequence);
  void CompareSnapshot();
  void CompareAll();
  bool Expect(bool holds, const char* law, uint64_t is = 0, uint64_t should = 0);

  // ---- frames
  std::vector<ExpectedSlot> ExpectedSlots() const;
  FrameView Publish(const std::vector<ExpectedSlot>& slots, std::span<const Delta> deltas);

  const Setup& setup_;
  const MachineOptions options_;
  const PagerConfig config_;
  const bool slides_;  // some group does
  std::unique_ptr<Pager> pager_;
  std::unique_ptr<FrameBuilder> builder_;
  ShadowStore store_;
  FrameReader reader_;
  DelayedExecutor delayed_;

  Oracle oracle_;
  bool in_step_ = false;
  Oracle before_step_;
  std::vector<Command> edits_;  // of the open step
  std::optional<PagerSnapshot> snapshot_before_step_;
  struct Mark {
    Pager::Savepoint savepoint;
    uint32_t seq;
    OracleSequence sequence;
  };
  std::optional<Mark> mark_;
  uint64_t evicted_ = 0;                  // of the pager's counter, when the oracle last looked
  std::map<uint32_t, uint32_t> adopted_;  // slot -> places that AdoptPrefix gave it in this step
  FrameHead last_head_{};
  uint64_t operations_ = 0;
  std::optional<std::string> wrong_;
};

// Runs a whole script: what disagreed, with the line, or nothing.
std::optional<std::string> RunScript(const Script& script, const MachineOptions& options = {});

}  // namespace kvrm::heart
