// The modes of a run, for comparison: how keys and values lie in memory, and what of them a step
// reads. Scheduler, kernels, weights, slots and bytes are the same in all of them, and so is every
// token (law I5); docs/modes.md says what each stands for. Plain data; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "exec/kv_width.h"

namespace kvrm {

enum class Mode : uint8_t {
  kKvrm,
  kPager,
  kDynamic,
  kStaticLazy,
  kStaticLive,
  kStaticBucket,
  kStaticFull,
};

struct ModeTraits {
  Mode mode;
  std::string_view name;      // as `--mode` takes it
  bool slot_runs = false;     // one run of maximum length a slot, reserved at start
  bool lazy_memory = false;   // the system backs pages as they are written, and has them back
  bool placement = true;      // pages of a sequence are sought in runs
  bool exact_shapes = false;  // each step's program is planned anew for its rows
  KvWidth width = KvWidth::kLive;
};

std::span<const ModeTraits> AllModes();  // the default one first
const ModeTraits& TraitsOf(Mode mode);
std::optional<Mode> FindMode(std::string_view name);

}  // namespace kvrm
