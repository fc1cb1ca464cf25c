// How long the threads of a worker pool stood ready to run while the CPU was with others: the
// kernel's run-queue delay of each thread (Linux, /proc/self/task/TID/schedstat), and the time that
// a hypervisor took from this machine (/proc/stat). Where the kernel tells neither, always 0.
//
// A reading is one system call for each thread and one more: about 0.5 us each, 7 us the last one
// (2 CPUs, Linux 6; 2026-11). For whoever has a reason to ask, not for every step.
//
// Thread class: thread-compatible. Ownership: it holds a file open for each thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/worker_pool.h"

namespace kvrm {

class RunDelay {
 public:
  // Of the pool's threads; in place of its worker 0, which is whoever calls WorkerPool::Run, of the
  // thread that reads first. Requires: nothing runs on the pool.
  explicit RunDelay(WorkerPool& pool);
  ~RunDelay();
  RunDelay(const RunDelay&) = delete;
  RunDelay& operator=(const RunDelay&) = delete;

  // Summed over the threads; only differences count. Threads that wait at the same time count each,
  // so that this is at most so many times too large as there are threads; a step waits for each of
  // them in turn, at its barriers.
  int64_t ReadUs();

 private:
  std::vector<int> files_;  // of the threads
  bool has_reader_ = false;
  int stat_file_ = -1;
  double steal_share_ = 1;  // of the machine's CPUs, those that the threads can use
};

// The second number of a schedstat: nanoseconds. nullopt: it is none.
std::optional<uint64_t> ParseRunDelayNs(std::string_view schedstat);
// The eighth number of the line "cpu" of /proc/stat: ticks.
std::optional<uint64_t> ParseStealTicks(std::string_view stat);

}  // namespace kvrm
