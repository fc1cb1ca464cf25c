#include "base/run_delay.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace kvrm {
namespace {

TEST(RunDelay, TheSecondNumberOfASchedstatIsTheDelay) {
  EXPECT_EQ(ParseRunDelayNs("3614886 41732 17\n"), 41732u);
  EXPECT_EQ(ParseRunDelayNs("0 0 0\n"), 0u);
  EXPECT_EQ(ParseRunDelayNs("3614886"), std::nullopt);
  EXPECT_EQ(ParseRunDelayNs(""), std::nullopt);
  EXPECT_EQ(ParseRunDelayNs("12 x 3"), std::nullopt);
}

TEST(RunDelay, TheEighthNumberOfTheFirstLineIsWhatTheHypervisorTook) {
  EXPECT_EQ(ParseStealTicks("cpu  3068918 660030 408864 534254 2790 0 1699 3485 0 0\ncpu0 1"),
            3485u);
  EXPECT_EQ(ParseStealTicks("cpu0 1 2 3 4 5 6 7 8\n"), std::nullopt);
  EXPECT_EQ(ParseStealTicks("cpu  1 2 3\n"), std::nullopt);
  EXPECT_EQ(ParseStealTicks(""), std::nullopt);
}

bool PinToOneCpu() {
  cpu_set_t allowed, one;
  CPU_ZERO(&one);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    CPU_SET(cpu, &one);
    return sched_setaffinity(0, sizeof one, &one) == 0;
  }
  return false;
}

// Two threads that spin on one CPU: each waits while the other runs, and the reader is one of them.
TEST(RunDelay, GrowsWhileAnotherThreadHoldsTheCpuWhereTheKernelTells) {
  bool pinned = false, told = false;
  std::thread both([&pinned, &told] {
    pinned = PinToOneCpu();
    if (!pinned) return;
    WorkerPool pool(1);
    RunDelay delay(pool);
    const int64_t before = delay.ReadUs();
    std::atomic<bool> stop{false};
    std::thread other([&stop] {
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
    // A kernel that tells nothing would keep this loop for ever: after so much work it has had
    // reason to switch.
    for (int i = 0; i < 1'000'000 && delay.ReadUs() - before < 2000; ++i) {
    }
    told = delay.ReadUs() - before >= 2000;
    stop = true;
    other.join();
  });
  both.join();
  EXPECT_EQ(told, pinned && access("/proc/self/schedstat", R_OK) == 0);
}

TEST(RunDelay, NeverFalls) {
  WorkerPool pool(3);
  RunDelay delay(pool);
  int64_t last = delay.ReadUs();
  EXPECT_GE(last, 0);
  for (int i = 0; i < 100; ++i) {
    pool.Run([](void*, uint32_t) {}, nullptr);
    const int64_t now = delay.ReadUs();
    ASSERT_GE(now, last);
    last = now;
  }
}

}  // namespace
}  // namespace kvrm
