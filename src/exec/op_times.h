// What each op of a step took, for measuring (`kvrm bench ops`): the time from one barrier to the
// next, as worker 0 sees it. The ops of all programs are the same list, so an index means the same
// op in each. Plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/program.h"
#include "tensor/encoding.h"

namespace kvrm {

struct OpTime {
  OpKind kind;
  uint16_t layer = 0;
  RowSet rows = RowSet::kLive;
  Encoding encoding;      // of its weights
  uint32_t n = 0, k = 0;  // outputs and inputs, values
  uint64_t ns = 0;        // of all replays since it was last set to 0
};
using OpTimes = std::vector<OpTime>;

}  // namespace kvrm
