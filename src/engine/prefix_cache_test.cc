// The prefix cache, seen from requests: what is cached is not computed, and nothing else changes.
#include <chrono>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "engine/test_rig.h"

namespace kvrm {
namespace {

using testing::Greedy;
using testing::RandomPrompt;
using testing::Rig;
using testing::Solo;

std::vector<TokenId> Joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Prompt rows that `request` makes the executor compute.
uint64_t RowsOf(Rig& rig, const GenerateRequest& request, RequestId* id) {
  const EngineMetrics before = rig.engine().Metrics();
  *id = rig.Submit(request);
  rig.Drain();
  const EngineMetrics after = rig.engine().Metrics();
  const uint64_t rows = after.prompt_tokens - before.prompt_tokens;
  // The executor counts what it computed: these, and a row for each token but the last.
  const uint64_t tokens = after.output_tokens - before.output_tokens;
  const uint64_t decode_rows = tokens == 0 ? 0 : tokens - 1;
  EXPECT_EQ(after.exec.rows - before.exec.rows, rows + decode_rows);
  return rows;
}

TEST(PrefixCache, CachedTokensAreThePromptRowsThatWereNotComputed) {
  const auto first = RandomPrompt(49, 1);
  for (uint32_t shared = 0; shared <= 49; ++shared) {
    Rig rig({.slots = 4});
    RequestId id;
    RowsOf(rig, Greedy(first, 20), &id);
    const auto head = std::vector<TokenId>(first.begin(), first.begin() + shared);
    const GenerateRequest next = Greedy(Joined(head, RandomPrompt(11, 2)), 20);
    const uint64_t rows = RowsOf(rig, next, &id);
    const uint32_t cached = rig.stream(id).finish.timings.cached_tokens;
    EXPECT_EQ(rows, next.prompt.size() - cached);
    // Whole pages, and what the page after them has in common.
    EXPECT_GE(cached, shared);
    EXPECT_LE(cached, shared + 2) << "two random prompts begin alike by chance only";
    EXPECT_EQ(rig.stream(id).tokens, Solo(next).tokens) << shared;
  }
}

TEST(PrefixCache, APromptThatIsCachedWholeComputesItsLastRowOnly) {
  for (const uint32_t length : {1u, 15u, 16u, 17u, 31u, 32u, 33u}) {
    Rig rig({.slots = 4});
    const GenerateRequest request = Greedy(RandomPrompt(length, 3), 20);
    RequestId id;
    for (int again = 0; again < 3; ++again) {
      const uint64_t rows = RowsOf(rig, request, &id);
      const uint32_t cached = rig.stream(id).finish.timings.cached_tokens;
      EXPECT_EQ(rows, length - cached);
      EXPECT_EQ(cached, again == 0 ? 0 : length - 1) << length;
      EXPECT_EQ(rig.stream(id).tokens, Solo(request).tokens);
    }
  }
}

TEST(PrefixCache, TheNextTurnOfAChatFindsTheAnswerToo) {
  Rig rig({.slots = 4});
  const auto prompt = RandomPrompt(40, 4);
  RequestId id;
  RowsOf(rig, Greedy(prompt, 60), &id);
  const auto so_far = Joined(prompt, rig.stream(id).tokens);  // 100 tokens, 99 of them computed
  const GenerateRequest next = Greedy(Joined(so_far, RandomPrompt(20, 5)), 10);
  const uint64_t rows = RowsOf(rig, next, &id);
  EXPECT_EQ(rig.stream(id).finish.timings.cached_tokens, 96u);
  EXPECT_EQ(rows, 24u);
  EXPECT_EQ(rig.stream(id).tokens, Solo(next).tokens);
}

TEST(PrefixCache, TenantsShareNothing) {
  Rig rig({.slots = 4});
  GenerateRequest request = Greedy(RandomPrompt(64, 6), 4);
  RequestId id;
  request.tenant = 1;
  RowsOf(rig, request, &id);
  request.tenant = 2;
  RowsOf(rig, request, &id);
  EXPECT_EQ(rig.stream(id).finish.timings.cached_tokens, 0u);
  request.tenant = 1;
  RowsOf(rig, request, &id);
  EXPECT_EQ(rig.stream(id).finish.timings.cached_tokens, 63u);
}

TEST(PrefixCache, SwitchedOffItFindsNothing) {
  Rig rig({.slots = 4, .prefix_cache = false});
  const GenerateRequest request = Greedy(RandomPrompt(64, 6), 4);
  RequestId id;
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(RowsOf(rig, request, &id), 64u);
    EXPECT_EQ(rig.stream(id).finish.timings.cached_tokens, 0u);
  }
}

TEST(PrefixCache, ASequenceThatWasPreemptedFindsWhatItHadComputed) {
  // 31 pages of 16 tokens: four that grow to 200 tokens each do not fit at once.
  Rig rig({.slots = 4, .pool_pages = 32});
  std::vector<GenerateRequest> requests;
  std::vector<RequestId> ids;
  for (uint32_t i = 0; i < 4; ++i) {
    requests.push_back(Greedy(RandomPrompt(60, 10 + i), 140));
    ids.push_back(rig.Submit(requests.back()));
  }
  rig.Drain();
  uint32_t preemptions = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    preemptions += rig.stream(ids[i]).finish.timings.preemptions;
    EXPECT_EQ(rig.stream(ids[i]).tokens, Solo(requests[i]).tokens);
  }
  EXPECT_GT(preemptions, 0u);
  EXPECT_GT(rig.engine().Metrics().sched.cached_tokens, 0u);
}

// A prompt with a value that is not finite leaves nothing behind that others could find.
TEST(PrefixCache, APageWithAFaultIsNeverFound) {
  Rig rig({.slots = 4});
  auto faulty = RandomPrompt(64, 7);
  faulty[20] = testing::kFaultToken;
  RequestId id;
  for (int again = 0; again < 2; ++again) {
    RowsOf(rig, Greedy(faulty, 4), &id);
    EXPECT_EQ(rig.stream(id).finish.reason, StopReason::kError);
    EXPECT_EQ(rig.stream(id).finish.timings.cached_tokens, 0u);
  }
}

TEST(PrefixCache, SharedPrefixesOfACrowdLeaveEveryAnswerAsItWas) {
  for (const uint64_t scatter : {0ull, 9ull}) {
    Rig rig({.slots = 8, .pool_pages = 96, .max_seq_tokens = 200, .scatter_seed = scatter});
    std::vector<std::pair<RequestId, GenerateRequest>> requests;
    for (uint32_t i = 0; i < 60; ++i) {
      auto prompt = RandomPrompt(70, i % 5);
      prompt.resize(20 + 7 * (i % 8));
      requests.emplace_back(RequestId{},
                            Greedy(Joined(prompt, RandomPrompt(i % 9, i)), 5 + i % 30));
      requests.back().first = rig.Submit(requests.back().second);
      for (uint32_t step = 0; step < i % 4; ++step) rig.Step();
      if (i % 10 == 9) rig.engine().Cancel(requests[i - 3].first);
    }
    rig.Drain();
    for (const auto& [id, request] : requests) {
      if (rig.stream(id).finish.reason == StopReason::kCancelled) continue;
      EXPECT_EQ(rig.stream(id).tokens, Solo(request, 200).tokens);
    }
    EXPECT_GT(rig.engine().Metrics().sched.cached_tokens, 500u);
    EXPECT_EQ(rig.pages_in_use(), 0u);
  }
}

// An engine that runs and has nothing to do gives back what it only kept.
TEST(IdleEngine, GivesBackCachedPagesOverTheirBoundAndEmptySuperblocks) {
  constexpr uint64_t kKeepBytes = 64 * testing::kFakePageBytes;
  Rig rig({.slots = 4, .kv_keep_bytes = kKeepBytes, .validate = false});
  for (uint32_t i = 0; i < 20; ++i) rig.Submit(Greedy(RandomPrompt(300, i), 2));
  std::thread thread([&] { rig.engine().Run(); });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (rig.engine().Metrics().pager.superblocks_given_back < 5 &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  rig.engine().Stop();
  thread.join();
  const PagerBooks books = rig.engine().pager().books(0);
  EXPECT_GE(rig.engine().pager().counters().superblocks_given_back, 5u);
  EXPECT_LE(books.cached * testing::kFakePageBytes, kKeepBytes);
  EXPECT_GT(books.cached, 0u);
}

// What tidying gives back is not made ready again: else the two would go round for ever.
TEST(IdleEngine, ComesToRest) {
  Rig rig({.slots = 4, .prefix_cache = false, .kv_keep_bytes = 0, .validate = false});
  for (uint32_t i = 0; i < 4; ++i) rig.Submit(Greedy(RandomPrompt(300, i), 2));
  std::thread thread([&] { rig.engine().Run(); });
  const auto given_back = [&] { return rig.engine().Metrics().pager.superblocks_given_back; };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  uint64_t before = 0, now = 0;
  do {
    before = now;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    now = given_back();
  } while ((now == 0 || now != before) && std::chrono::steady_clock::now() < deadline);
  EXPECT_GT(now, 0u);
  EXPECT_EQ(now, before);
  rig.engine().Stop();
  thread.join();
}

}  // namespace
}  // namespace kvrm
