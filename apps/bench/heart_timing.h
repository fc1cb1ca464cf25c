// CPU time and wall time of many short pieces of work, told apart from what is done between them.
// Thread-compatible; CPU time is the calling thread's.
#pragma once

#include <cstdint>
#include <vector>

namespace kvrm::cli {

struct Clocks {
  double cpu_ns = 0, wall_ns = 0;
};

// Sums pieces of work. What reading the clocks costs (the CPU clock is a system call) is measured
// once per process and taken off each piece.
class Stopwatch {
 public:
  void Start();
  void Stop();
  Clocks total() const { return total_; }

 private:
  Clocks start_, total_;
};

// One sample a repeat, of one unit of work (a call, a step).
struct TimeSamples {
  std::vector<double> cpu_ns, wall_ns;
  void Add(const Stopwatch& watch, uint64_t units);
  double median_cpu_ns() const;  // Requires: a sample
};

}  // namespace kvrm::cli
