// The hash chain over published frames (FRAME-7): each frame's hash covers the one before it, so
// that two runs whose last hashes agree published the same frames, from the first on.
#pragma once

#include <cstdint>

#include "frame/frame.h"

namespace kvrm {

// XXH3-64 of the contiguous block: `head` with `previous_hash` in the place of its own, and the
// rows, slots and deltas that follow it.
uint64_t ChainHash(uint64_t previous_hash, const FrameHead& head, const void* rest,
                   uint64_t rest_bytes);

}  // namespace kvrm
