// Nothing runs, somebody waits, and there is room: that must not last (B021). Here the whole
// entrance is under it: threads that submit and cancel in bursts, silences long enough for the
// engine to tidy and to sleep, and the engine's own thread that has to wake up each time. A slice
// here; half an hour with tools/soak.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <deque>
#include <thread>

#include "engine/test_rig.h"
#include "tests/soak/scale.h"
#include "tests/soak/soak_goals.h"

namespace kvrm::testing {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookEvery{5};
// Looks in a row at which work is open and nothing came of it. A second's worth is the report's
// bound; a slice that shares its machine with other tests gets ten.
constexpr uint32_t kMostLooks = 200, kMostLooksOfASlice = 2000;
constexpr uint64_t kSliceSeconds = 3, kLeastSecondsOfAFullRun = 60;
constexpr uint32_t kLongestPrompt = 900;

struct WaitingCounts {
  std::atomic<uint64_t> submitted{0}, ended{0};
};

// One request and its sink: the engine's thread writes what came of it, who reads has joined that.
struct WaitingRequest final : EventSink {
  void OnToken(RequestId, const TokenEvent&) override { ++tokens; }
  void OnFinish(RequestId, const FinishEvent& event) override {
    ++ends;
    reason = event.reason;
    ++counts->ended;
  }
  // It ended once, of itself with all its tokens, or because it was given up.
  bool is_right() const {
    if (ends != 1) return false;
    return reason == StopReason::kCancelled ? cancelled
                                            : reason == StopReason::kLength && tokens == asked;
  }
  WaitingCounts* counts = nullptr;
  RequestId id;
  uint32_t asked = 0, tokens = 0, ends = 0;
  bool cancelled = false;
  StopReason reason = StopReason::kNone;
};

class WaitingClient {
 public:
  WaitingClient(Engine& engine, WaitingCounts& counts, uint64_t seed)
      : engine_(engine), counts_(counts), rng_(seed) {}

  // Bursts and silences for `time`, in the middle of it one that lets the engine tidy.
  void Run(std::chrono::seconds time, milliseconds longest_silence) {
    const auto begin = std::chrono::steady_clock::now();
    bool has_rested = false;
    for (;;) {
      const auto passed = std::chrono::steady_clock::now() - begin;
      if (passed >= time) return;
      for (uint32_t i = 1 + Below(24); i > 0; --i) Submit();
      const auto bound = Below(2) == 0 ? longest_silence : longest_silence / 20;
      std::this_thread::sleep_for(milliseconds(Below(static_cast<uint32_t>(bound.count()) + 1)));
      for (uint32_t i = Below(4); i > 0; --i) CancelOne();
      if (has_rested || passed < time / 2) continue;
      has_rested = true;
      std::this_thread::sleep_for(milliseconds(1200));
    }
  }
  const std::deque<WaitingRequest>& requests() const { return requests_; }

 private:
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(rng_() % bound); }

  void Submit() {
    WaitingRequest& mine = requests_.emplace_back();
    mine.counts = &counts_;
    mine.asked = 1 + Below(60);
    GenerateRequest request = Greedy(RandomPrompt(1 + Below(kLongestPrompt), rng_()), mine.asked);
    request.sink = &mine;
    ++counts_.submitted;
    const auto id = engine_.Submit(std::move(request));
    KVRM_CHECK(id.ok(), "the queue has room for what two clients ask");
    mine.id = *id;
    mine.cancelled = Below(5) == 0;
    if (mine.cancelled) engine_.Cancel(mine.id);
  }

  // Of the last few; it may have ended.
  void CancelOne() {
    const auto back = Below(static_cast<uint32_t>(std::min<size_t>(requests_.size(), 40)));
    WaitingRequest& request = requests_[requests_.size() - 1 - back];
    request.cancelled = true;
    engine_.Cancel(request.id);
  }

  Engine& engine_;
  WaitingCounts& counts_;
  std::mt19937_64 rng_;
  std::deque<WaitingRequest> requests_;  // stay where they are
};

// Looks until all have ended, or until nothing has come of open work for `most` looks. Returns the
// most looks in a row at which nothing had come of it.
uint32_t WatchUntilAllEnded(const Engine& engine, const WaitingCounts& counts,
                            const std::atomic<uint32_t>& clients_at_work, uint32_t most) {
  uint64_t last = 0;
  uint32_t still = 0, longest = 0;
  while (longest <= most) {
    const bool at_work = clients_at_work > 0;
    const uint64_t submitted = counts.submitted, ended = counts.ended;
    if (!at_work && ended >= submitted) break;
    const EngineMetrics metrics = engine.Metrics();
    const uint64_t progress = metrics.prompt_tokens + metrics.output_tokens + ended;
    still = submitted > ended && progress == last ? still + 1 : 0;
    longest = std::max(longest, still);
    last = progress;
    std::this_thread::sleep_for(kLookEvery);
  }
  return longest;
}

struct WaitingReport {
  uint64_t requests = 0, cancelled = 0, wrong = 0, leaked_pages = 0, preempted = 0;
  uint32_t longest_looks = 0, open_at_end = 0;
  std::vector<std::string> violations;
};

WaitingReport RunWaiting(std::chrono::seconds time, milliseconds longest_silence, uint32_t most) {
  SystemClock clock;
  const auto engine = MakeEngine({.slots = 6,
                                  .pool_pages = 96,
                                  .max_seq_tokens = 1000,
                                  .max_queued = 1u << 20,
                                  .validate = false},
                                 clock);
  std::thread runner([&] { engine->Run(); });
  WaitingCounts counts;
  std::atomic<uint32_t> at_work{2};
  WaitingClient clients[] = {{*engine, counts, 1}, {*engine, counts, 2}};
  std::vector<std::thread> threads;
  for (WaitingClient& client : clients) {
    threads.emplace_back([&] {
      client.Run(time, longest_silence);
      --at_work;
    });
  }
  WaitingReport report;
  report.longest_looks = WatchUntilAllEnded(*engine, counts, at_work, most);
  for (std::thread& thread : threads) thread.join();
  const EngineMetrics before_stop = engine->Metrics();
  report.open_at_end = before_stop.running + before_stop.queued;
  engine->Stop();
  runner.join();
  const EngineMetrics metrics = engine->Metrics();
  report.preempted = metrics.sched.preempted;
  report.leaked_pages = metrics.books.in_use - 1;  // 1: the null page
  report.violations = Validate(engine->pager().Snapshot());
  for (const WaitingClient& client : clients) {
    for (const WaitingRequest& request : client.requests()) {
      ++report.requests;
      report.cancelled += request.reason == StopReason::kCancelled ? 1 : 0;
      report.wrong += request.is_right() ? 0 : 1;
    }
  }
  return report;
}

TEST(B021, WorkDoesNotWaitWhileNothingIsComputedThroughBurstsCancelsAndSilences) {
  const uint64_t seconds = ScaleOf("KVRM_SOAK_SECONDS", kSliceSeconds);
  const bool full = seconds >= kLeastSecondsOfAFullRun;
  const uint32_t most = full ? kMostLooks : kMostLooksOfASlice;
  const WaitingReport report =
      RunWaiting(std::chrono::seconds(seconds), milliseconds(full ? 5000 : 200), most);
  std::printf("%llu s: %llu requests of two threads, %llu cancelled, %llu preemptions\n",
              static_cast<unsigned long long>(seconds),
              static_cast<unsigned long long>(report.requests),
              static_cast<unsigned long long>(report.cancelled),
              static_cast<unsigned long long>(report.preempted));
  const std::vector<SoakGoal> goals = {
      {"open work never stands still for " + std::to_string(most) + " looks, one each 5 ms",
       std::to_string(report.longest_looks) + " in a row", report.longest_looks <= most},
      {"each request ends once, with all its tokens or because it was cancelled",
       std::to_string(report.wrong) + " wrong of " + std::to_string(report.requests) + ", " +
           std::to_string(report.open_at_end) + " open",
       report.wrong == 0 && report.open_at_end == 0 && report.requests > 0},
      {"0 pages leaked, books balanced",
       std::to_string(report.leaked_pages) + " pages, " + std::to_string(report.violations.size()) +
           " violations",
       report.leaked_pages == 0 && report.violations.empty()}};
  std::printf("\n%s", SoakGoalsText(goals).c_str());
  for (const SoakGoal& goal : goals) EXPECT_NE(goal.met, false) << SoakGoalsText({goal});
  EXPECT_GT(report.cancelled, 0u);
}

}  // namespace
}  // namespace kvrm::testing
