// A frame with its tables as JSON, made from the field lists: for programs; people read DumpFrame.
#pragma once

#include <string>

#include "frame/frame.h"

namespace kvrm {

// {"head":{..},"rows":[..],"slots":[{..,"tables":[{"pages":[..],"segments":[..]}, one a group]}],
// "deltas":[..]}. Pure.
// Requires: the counts of the slots lie within the tables (FRAME-0).
std::string FrameJson(const KvGeometry& geometry, const FrameView& frame);

}  // namespace kvrm
