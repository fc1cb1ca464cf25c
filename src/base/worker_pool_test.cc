#include "base/worker_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>

namespace kvrm {
namespace {

// Runs one region; each worker comes once.
bool RunsAll(WorkerPool& pool, uint32_t num_threads) {
  std::atomic<uint64_t> seen{0};
  pool.Run(
      [](void* arg, uint32_t worker) {
        static_cast<std::atomic<uint64_t>*>(arg)->fetch_add(uint64_t{1} << (8 * worker));
      },
      &seen);
  uint64_t expected = 0;
  for (uint32_t worker = 0; worker < num_threads; ++worker) expected += uint64_t{1} << (8 * worker);
  return pool.num_threads() == num_threads && seen == expected;
}

TEST(WorkerPool, EachWorkerRunsEachRegionOnce) {
  for (const uint32_t num_threads : {1u, 2u, 3u}) {
    const auto pool = WorkerPool::Create(num_threads);
    ASSERT_TRUE(pool.ok());
    for (int region = 0; region < 100; ++region) EXPECT_TRUE(RunsAll(**pool, num_threads));
  }
}

// Bytes of address space that this process has mapped.
uint64_t MappedBytes() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// In a process of its own: exit status 0 when each refusal was a value and a small pool runs.
[[noreturn]] void StartUnderALimit() {
  constexpr uint64_t kRoom = uint64_t{100} << 20;  // for a dozen stacks of the usual 8 MiB
  const rlimit limit{MappedBytes() + kRoom, RLIM_INFINITY};
  if (setrlimit(RLIMIT_AS, &limit) != 0) std::exit(2);
  for (int again = 0; again < 20; ++again) {
    const auto refused = WorkerPool::Create(256);
    unsigned given = 0;
    if (refused.ok() || refused.error().kind != ErrorKind::kNoRoom ||
        std::sscanf(refused.error().message.c_str(), "threads: 256 asked, the system gave %u",
                    &given) != 1 ||
        given < 1 || given > 255) {
      std::exit(3);
    }
  }
  const auto pool = WorkerPool::Create(2);
  std::exit(pool.ok() && RunsAll(**pool, 2) ? 0 : 4);
}

TEST(WorkerPool, ARefusedThreadIsNoRoomAndLeavesNothingBehind) {
  if (MappedBytes() > uint64_t{1} << 40) {
    GTEST_SKIP() << "a sanitizer maps terabytes, and its mappings do not bear a limit";
  }
  EXPECT_EXIT(StartUnderALimit(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace kvrm
