#include "bench/quiet_gate.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace kvrm::cli {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

double UsedSeconds(int who) {
  rusage usage{};
  getrusage(who, &usage);
  return Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
}

}  // namespace

std::optional<CpuTicks> ParseCpuLine(std::string_view line) {
  std::istringstream stream{std::string(line)};
  std::string label;
  if (!(stream >> label) || label != "cpu") return std::nullopt;
  // user nice system idle iowait irq softirq steal; guest times are part of user and nice.
  CpuTicks ticks;
  uint64_t value = 0;
  int field = 0;
  for (; field < 8 && stream >> value; ++field) {
    ticks.total += value;
    if (field != 3 && field != 4) ticks.busy += value;
  }
  if (field < 4) return std::nullopt;
  return ticks;
}

std::optional<QuietGate::Reading> QuietGate::Read() {
  std::ifstream stat("/proc/stat");
  std::string line;
  if (!std::getline(stat, line)) return std::nullopt;
  const std::optional<CpuTicks> ticks = ParseCpuLine(line);
  if (!ticks) return std::nullopt;
  const auto ticks_per_s = static_cast<double>(sysconf(_SC_CLK_TCK));
  Reading reading;
  reading.busy_s = static_cast<double>(ticks->busy) / ticks_per_s;
  reading.total_s = static_cast<double>(ticks->total) / ticks_per_s;
  reading.own_s = UsedSeconds(RUSAGE_SELF) + UsedSeconds(RUSAGE_CHILDREN);
  return reading;
}

QuietGate::QuietGate() : start_(Read()) {}

std::optional<double> QuietGate::OthersPercent() const {
  const std::optional<Reading> now = Read();
  if (!start_ || !now || now->total_s <= start_->total_s) return std::nullopt;
  const double busy_s = now->busy_s - start_->busy_s;
  const double own_s = now->own_s - start_->own_s;
  return 100 * std::max(0.0, busy_s - own_s) / (now->total_s - start_->total_s);
}

}  // namespace kvrm::cli
