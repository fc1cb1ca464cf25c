// Preemption by recompute: who falls, who is spared, and that everybody ends all the same.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "sched/scheduler_testing.h"

namespace kvrm {
namespace {

using testing::Config;
using testing::Driver;
using testing::MakePager;

// What a test knows of one request: its tokens when it last came back, if it ever lost its pages.
struct Came {
  bool running = false;
  bool was_preempted = false;
  uint32_t known = 0;
};

// A sequence that came back runs kLeastTokensOfAResumed tokens before it falls again, unless
// everybody else has just come back, too.
TEST(Preemption, ASequenceThatCameBackIsSparedForThirtyTwoTokens) {
  uint32_t fell_again = 0, spared_others = 0;
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    std::mt19937 rng(seed);
    Driver driver(Config(8, 64), MakePager(24, 8, 360));
    for (uint32_t i = 0; i < 24; ++i) driver.Add(1 + rng() % 60, 40 + rng() % 200);
    std::map<RequestId, Came> came;
    for (uint32_t step = 0; step < 60'000 && !driver.scheduler().idle(); ++step) {
      const StepPlan& plan = driver.Plan();
      // Admissions come before victims in a plan.
      for (const RequestId id : plan.admitted) {
        came[id].running = true;
        came[id].known = driver.known(id);
      }
      std::set<RequestId> fresh, seasoned;
      for (const auto& [id, request] : came) {
        if (!request.running) continue;
        const bool is_fresh =
            request.was_preempted && driver.known(id) - request.known < kLeastTokensOfAResumed;
        (is_fresh ? fresh : seasoned).insert(id);
      }
      for (const RequestId id : plan.preempted) {
        if (came[id].was_preempted) ++fell_again;
        if (fresh.contains(id)) {
          EXPECT_LE(seasoned.size(), 1u) << "only the one that is kept may be seasoned";
        } else {
          spared_others += fresh.empty() ? 0 : 1;
        }
        seasoned.erase(id);
        fresh.erase(id);
        came[id].running = false;
        came[id].was_preempted = true;
      }
      driver.Finish(plan);
      for (const RequestId id : driver.finished()) came[id].running = false;
    }
    EXPECT_TRUE(driver.scheduler().idle());
    EXPECT_EQ(driver.finished().size(), 24u) << "seed " << seed;
  }
  EXPECT_GT(fell_again, 20u);     // else the test says nothing about those that came back
  EXPECT_GT(spared_others, 20u);  // and nothing about sparing them
}

// Ten times what the pool holds: nobody is lost, and work that is done over stays a small part.
TEST(Preemption, TenTimesMoreThanThePoolHoldsEndsWithLittleWorkDoneTwice) {
  std::mt19937 rng(5);
  Driver driver(Config(16, 128), MakePager(32, 16, 400));  // 496 places
  uint64_t wanted = 0, computed = 0;
  for (uint32_t i = 0; i < 60; ++i) {
    const uint32_t prompt = 1 + rng() % 60, output = 10 + rng() % 90;
    driver.Add(prompt, output);
    wanted += prompt + output - 1;
  }
  ASSERT_GT(wanted, 10u * 496u);
  for (uint32_t step = 0; step < 20'000 && driver.finished().size() < 60; ++step) {
    computed += driver.Step().num_rows;
  }
  EXPECT_EQ(driver.finished().size(), 60u);
  EXPECT_GT(driver.scheduler().counters().preempted, 0u);
  EXPECT_GT(computed, wanted);
  EXPECT_LT(computed, 2 * wanted);
}

}  // namespace
}  // namespace kvrm
