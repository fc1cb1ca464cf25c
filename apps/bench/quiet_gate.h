// The quiet gate: which share of the machine others used while a benchmark ran. A figure taken on a
// busy machine says little, so every result carries this share. Thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kvrm::cli {

class QuietGate {
 public:
  QuietGate();  // starts to watch
  // Percent of all CPU time since the start that neither this process and its ended children used
  // nor was idle: other processes, interrupts, time stolen by the hypervisor. nullopt: the system
  // does not say.
  std::optional<double> OthersPercent() const;

 private:
  struct Reading {
    double busy_s = 0, total_s = 0;  // of all CPUs
    double own_s = 0;
  };
  static std::optional<Reading> Read();
  std::optional<Reading> start_;
};

// Busy and total ticks of the `cpu ` line of /proc/stat; nullopt when it is none.
struct CpuTicks {
  uint64_t busy = 0, total = 0;
};
std::optional<CpuTicks> ParseCpuLine(std::string_view line);

}  // namespace kvrm::cli
