// What a kvrm_runtime consists of: pager, frame builder, page copies and, where wanted, window
// residency, with a ledger of what each caller's sequence may do. The C ABI's calls (include/kvrm/
// kvrm.h) are thin functions over it in this folder's sources.
//
// Thread class: thread-compatible (one thread at a time for each runtime).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/kv_view.h"
#include "capi/error_text.h"
#include "capi/sequence_ledger.h"
#include "frame/frame.h"
#include "kvrm/kvrm.h"
#include "pager/pager.h"
#include "transport/copy_engine.h"
#include "transport/train_merger.h"
#include "transport/window_residency.h"

namespace kvrm {

// A kvrm_config, read and completed.
struct RuntimeSetup {
  PagerConfig pager;
  FrameCapacity capacity;
  WindowGeometry windows;
  bool has_windows = false;
  uint64_t train_bytes = kDefaultTauBytes;
};

// All but its windows. Errors: a size, a pointer or a value out of range, by its field's name.
Result<RuntimeSetup> ReadConfig(const kvrm_config* config);
// Requires: `setup` was read from `config`, and the pager takes it: windows divide by what the
// pager bounds. Errors: as ReadConfig.
Status ReadWindows(const kvrm_config* config, RuntimeSetup& setup);
// Requires: the pager takes the groups. Errors: page sizes for which there is no prefix index.
Status CheckPrefixIndex(const PagerConfig& pager);
// The C form of a group's geometry.
kvrm_group_config DescribeGroup(const KvGroupGeometry& group);

}  // namespace kvrm

// The opaque handle of the C ABI.
struct kvrm_runtime {
  kvrm_runtime(kvrm::RuntimeSetup complete_setup, std::unique_ptr<kvrm::Pager> owned_pager,
               std::unique_ptr<kvrm::FrameBuilder> owned_frames,
               std::unique_ptr<kvrm::WindowResidency> owned_windows);

  const kvrm::KvGeometry& geometry() const { return setup.pager.geometry; }
  uint32_t num_groups() const { return static_cast<uint32_t>(geometry().groups.size()); }
  // Whether everything that can be validated is sound. O(everything); allocates.
  bool Sound() const;

  const kvrm::RuntimeSetup setup;
  const std::unique_ptr<kvrm::Pager> pager;
  const std::unique_ptr<kvrm::FrameBuilder> frames;
  const std::unique_ptr<kvrm::WindowResidency> windows;  // nullptr without KVRM_CONFIG_WINDOWS
  kvrm::TrainMerger page_copies;                         // copy-on-write
  kvrm::CpuCopyEngine copy_engine;
  uint64_t window_bytes[kvrm::kMaxKvGroups] = {};  // bound so far

  kvrm::SequenceLedger ledger;
  bool in_step = false;
  uint64_t epoch = 0;    // of the last commit
  kvrm::FrameView view;  // of the last commit
  kvrm::FrameHead previous_head = {};
  std::span<const kvrm::Train> page_copy_trains;  // of the last commit
  mutable bool copies_asked = true;               // by the caller, if there are any
  std::vector<kvrm_row_input> row_inputs;         // of the last commit
  std::vector<kvrm::Row> rows;                    // scratch
  std::vector<kvrm::SlotHead> slot_heads;         // scratch
  std::span<const kvrm::Train> plan;              // of the last commit's windows
  bool planned = false;                           // the caller has asked for it
  bool acknowledged = false;

  // Set while a call changes several parts that only hold together: a bug in between is past help.
  bool publishing = false;
  mutable bool broken = false;
  mutable kvrm::ErrorText error;
};
