#include "bench/heart_timing.h"

#include <algorithm>
#include <ctime>

#include "base/check.h"
#include "bench/statistics.h"

namespace kvrm::cli {
namespace {

double ReadNs(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return 1e9 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec);
}

// The wall clock outside, because it is the cheap one: the CPU clock's cost is then in both.
Clocks ReadAtStart() {
  const double wall_ns = ReadNs(CLOCK_MONOTONIC);
  return {ReadNs(CLOCK_THREAD_CPUTIME_ID), wall_ns};
}
Clocks ReadAtStop() {
  const double cpu_ns = ReadNs(CLOCK_THREAD_CPUTIME_ID);
  return {cpu_ns, ReadNs(CLOCK_MONOTONIC)};
}

Clocks CostOfReading() {
  std::vector<double> cpu_ns, wall_ns;
  for (int i = 0; i < 501; ++i) {
    const Clocks start = ReadAtStart(), stop = ReadAtStop();
    cpu_ns.push_back(stop.cpu_ns - start.cpu_ns);
    wall_ns.push_back(stop.wall_ns - start.wall_ns);
  }
  return {Summarize(cpu_ns).median, Summarize(wall_ns).median};
}

}  // namespace

void Stopwatch::Start() { start_ = ReadAtStart(); }

void Stopwatch::Stop() {
  const Clocks now = ReadAtStop();
  static const Clocks cost = CostOfReading();
  total_.cpu_ns += std::max(0.0, now.cpu_ns - start_.cpu_ns - cost.cpu_ns);
  total_.wall_ns += std::max(0.0, now.wall_ns - start_.wall_ns - cost.wall_ns);
}

void TimeSamples::Add(const Stopwatch& watch, uint64_t units) {
  KVRM_CHECK(units > 0, "bench: a sample is of some work");
  cpu_ns.push_back(watch.total().cpu_ns / static_cast<double>(units));
  wall_ns.push_back(watch.total().wall_ns / static_cast<double>(units));
}

double TimeSamples::median_cpu_ns() const { return Summarize(cpu_ns).median; }

}  // namespace kvrm::cli
