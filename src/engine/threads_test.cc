// Other threads meet the engine in its event queue alone. Run under ThreadSanitizer, too.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

#include "engine/test_rig.h"

namespace kvrm {
namespace {

using testing::Greedy;
using testing::MakeEngine;
using testing::RandomPrompt;
using testing::Solo;

// One request's sink; the engine thread writes, the submitting thread reads after the end.
class Waiter final : public EventSink {
 public:
  void OnToken(RequestId, const TokenEvent& event) override { tokens_.push_back(event.token); }
  void OnFinish(RequestId, const FinishEvent& event) override {
    // Notifies under the lock: the waiter may destroy this object as soon as it is let go.
    const std::lock_guard lock(mutex_);
    reason_ = event.reason;
    ended_.notify_one();
  }
  StopReason Wait() {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return reason_ != StopReason::kNone; });
    return reason_;
  }
  const std::vector<TokenId>& tokens() const { return tokens_; }  // after Wait

 private:
  std::vector<TokenId> tokens_;
  std::mutex mutex_;
  std::condition_variable ended_;
  StopReason reason_ = StopReason::kNone;
};

TEST(Threads, FourThatSubmitAndCancelEachGetTheirOwnTokens) {
  SystemClock clock;
  const auto engine = MakeEngine({.slots = 6, .pool_pages = 64, .max_seq_tokens = 120}, clock);
  std::thread runner([&] { engine->Run(); });
  std::atomic<uint32_t> wrong{0}, cancelled{0}, complete{0};
  std::vector<std::thread> clients;
  for (uint32_t t = 0; t < 4; ++t) {
    clients.emplace_back([&, t] {
      std::mt19937 rng(t);
      for (uint32_t i = 0; i < 25; ++i) {
        GenerateRequest request = Greedy(RandomPrompt(1 + rng() % 60, rng()), 1 + rng() % 30);
        const std::vector<TokenId> expected = Solo(request, 120).tokens;
        Waiter waiter;
        request.sink = &waiter;
        const auto id = engine->Submit(request);
        if (!id.ok()) {
          ++wrong;
          continue;
        }
        const bool cancel = rng() % 4 == 0;
        if (cancel) engine->Cancel(id.value());
        const EngineMetrics metrics = engine->Metrics();
        wrong += metrics.commits == metrics.steps ? 0 : 1;
        if (waiter.Wait() == StopReason::kCancelled) {
          wrong += cancel ? 0 : 1;
          ++cancelled;
          continue;
        }
        ++complete;
        wrong += waiter.tokens() == expected ? 0 : 1;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  engine->Stop();
  runner.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(cancelled + complete, 100u);
  EXPECT_GE(complete, 50u);
  const EngineMetrics metrics = engine->Metrics();
  EXPECT_EQ(metrics.requests_submitted, 100u);
  EXPECT_EQ(metrics.running + metrics.queued, 0u);
  EXPECT_EQ(metrics.books.in_use, 1u);  // the null page
}

// The step that needs a superblock finds it populated: Run() does one chore after each step. Only
// what a first step takes beyond the first superblock's 7 pages nobody can know beforehand.
TEST(Threads, SteadyGrowthPopulatesNoSuperblockInAStep) {
  for (const uint32_t streams : {1u, 3u, 12u}) {
    SystemClock clock;
    const auto engine =
        MakeEngine({.slots = streams, .max_seq_tokens = 390, .validate = false}, clock);
    std::vector<Waiter> waiters(streams);
    for (Waiter& waiter : waiters) {
      GenerateRequest request = Greedy({1}, 0);
      request.sink = &waiter;
      EXPECT_TRUE(engine->Submit(request).ok());
    }
    std::thread runner([&] { engine->Run(); });  // now, so that all grow in step
    for (Waiter& waiter : waiters) waiter.Wait();
    engine->Stop();
    runner.join();
    const EngineMetrics metrics = engine->Metrics();
    EXPECT_GE(metrics.books.superblocks, streams * 3u);
    EXPECT_EQ(metrics.pager.superblocks_taken_cold, streams > 7 ? 1u : 0u);
  }
}

TEST(Threads, StopEndsWhatIsOpenAndRunReturns) {
  SystemClock clock;
  const auto engine = MakeEngine({.slots = 2, .max_seq_tokens = 390, .validate = false}, clock);
  std::thread runner([&] { engine->Run(); });
  std::vector<Waiter> waiters(6);
  for (Waiter& waiter : waiters) {
    GenerateRequest request = Greedy({1, 2, 3}, 0);
    request.sink = &waiter;
    ASSERT_TRUE(engine->Submit(request).ok());
  }
  engine->Stop();
  for (Waiter& waiter : waiters) waiter.Wait();
  runner.join();
  EXPECT_EQ(engine->Metrics().books.in_use, 1u);
}

}  // namespace
}  // namespace kvrm
