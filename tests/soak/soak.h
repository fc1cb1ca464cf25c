// A soak: requests of all lengths without end, ten times what the pool holds waiting at any time,
// almost a third of them cancelled at random moments. What it found out is a report. Test code.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/loader.h"
#include "model/gguf.h"

namespace kvrm::testing {

struct SoakOptions {
  uint64_t answered = 0;         // requests that have to be answered to their end
  uint32_t books_every = 64;     // steps
  uint32_t solo_per_mille = 15;  // of the answers that are compared with their solo run
  uint64_t seed = 1;
};

struct SoakReport {
  uint64_t submitted = 0, answered = 0, cancelled = 0, failed = 0;
  uint64_t wrong_length = 0;  // answers that are longer or shorter than was asked for
  uint64_t tokens = 0, steps = 0, preemptions = 0, most_open = 0;
  uint64_t compared = 0, differed = 0;  // with solo runs
  uint64_t most_wanted_tokens = 0;      // token places that open requests wanted, at the most
  uint64_t kv_tokens = 0;               // that the pool holds
  uint64_t books_checks = 0;
  std::vector<std::string> violations;  // of the books; the first few
  uint64_t leaked_pages = 0;            // in use, soft or in limbo when nothing runs
  // In use by the process when nothing runs: after a tenth of the requests, and at the end.
  uint64_t heap_bytes_early = 0, heap_bytes_late = 0;          // 0 where the allocator tells none
  uint64_t resident_bytes_early = 0, resident_bytes_late = 0;  // 0 where the system tells none
};

// Requires: options.answered >= 10.
SoakReport RunSoak(const SoakOptions& options);

// The report as lines of text.
std::string SoakText(const SoakReport& report);

}  // namespace kvrm::testing
