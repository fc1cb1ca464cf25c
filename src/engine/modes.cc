#include "engine/modes.h"

#include "base/check.h"

namespace kvrm {
namespace {

constexpr ModeTraits kModes[] = {
    {.mode = Mode::kKvrm, .name = "kvrm"},
    {.mode = Mode::kPager, .name = "pager", .placement = false},
    {.mode = Mode::kDynamic, .name = "dynamic", .exact_shapes = true},
    {.mode = Mode::kStaticLazy, .name = "static-lazy", .slot_runs = true, .lazy_memory = true},
    {.mode = Mode::kStaticLive, .name = "static-live", .slot_runs = true},
    {.mode = Mode::kStaticBucket,
     .name = "static-bucket",
     .slot_runs = true,
     .width = KvWidth::kBucket},
    {.mode = Mode::kStaticFull, .name = "static-full", .slot_runs = true, .width = KvWidth::kFull},
};

}  // namespace

std::span<const ModeTraits> AllModes() { return kModes; }

const ModeTraits& TraitsOf(Mode mode) {
  for (const ModeTraits& traits : kModes) {
    if (traits.mode == mode) return traits;
  }
  CheckFailed("mode", "a mode is one of Mode", __FILE__, __LINE__);
}

std::optional<Mode> FindMode(std::string_view name) {
  for (const ModeTraits& traits : kModes) {
    if (traits.name == name) return traits.mode;
  }
  return std::nullopt;
}

}  // namespace kvrm
