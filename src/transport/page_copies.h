// The pool's own copies (copy-on-write, forks) as descriptors: one for each part of a page.
// Thread-safe; pure.
#pragma once

#include <span>

#include "base/kv_view.h"
#include "pager/pager.h"
#include "transport/train_merger.h"

namespace kvrm {

// Adds `copies` to `merger`, due at once: adjacent pages that move to adjacent pages travel
// together.
void AddPageCopies(const KvGeometry& geometry, std::span<const Pager::PageCopy> copies,
                   TrainMerger& merger);

}  // namespace kvrm
