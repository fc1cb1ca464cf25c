// A published frame in its C form.
#pragma once

#include "capi/runtime.h"

namespace kvrm {

// OK, or INVALID when the size of `out` is none.
kvrm_status CheckFrameOutput(const kvrm_runtime& runtime, const kvrm_frame& out);
// Requires: an epoch was committed.
kvrm_status WriteFrame(const kvrm_runtime& runtime, kvrm_frame* out);

}  // namespace kvrm
