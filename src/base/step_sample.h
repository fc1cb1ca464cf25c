// A measured step, as executors take it at warm-up and the scheduler's cost model reads it. Plain
// data.
#pragma once

#include <cstdint>

namespace kvrm {

// `rows` adjacent rows of one sequence, the last of which stands at `position`.
struct StepSample {
  uint32_t rows = 0;
  uint32_t position = 0;
  int64_t us = 0;
};

}  // namespace kvrm
