// Law I1 on the CPU executor: sequence, quiet, frozen; and what a row's faults may touch.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>

#include "exec/bound_program.h"
#include "exec/test_stack.h"
#include "model/family.h"

namespace {

// The allocation hook: counts malloc and its kin (operator new calls malloc) while a replay is
// watched, on any thread. Under a sanitizer malloc is the sanitizer's, and new alone is counted.
std::atomic<bool> g_watching{false};
std::atomic<uint64_t> g_allocations{0};

void Count() {
  if (g_watching.load(std::memory_order_relaxed)) g_allocations.fetch_add(1);
}

}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KVRM_OWN_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define KVRM_OWN_MALLOC 0
#endif
#endif
#ifndef KVRM_OWN_MALLOC
#define KVRM_OWN_MALLOC 1
#endif

#if KVRM_OWN_MALLOC
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier): glibc's own names of what is wrapped here.
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* p, size_t bytes);
// NOLINTEND(bugprone-reserved-identifier)
void* malloc(size_t bytes) {
  Count();
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  Count();
  return __libc_calloc(count, bytes);
}
void* realloc(void* p, size_t bytes) {
  Count();
  return __libc_realloc(p, bytes);
}
}
#else
void* operator new(std::size_t bytes) {
  Count();
  void* p = std::malloc(bytes == 0 ? 1 : bytes);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
#endif

namespace kvrm::testing {
namespace {

struct Watched {
  uint64_t allocations = 0;
  int64_t faults = 0;
};

int64_t Faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

// Steps one sequence `steps` times and watches the replays alone.
Watched WatchReplays(TestStack& stack, SeqId seq, uint32_t steps) {
  Watched watched;
  for (uint32_t i = 0; i < steps; ++i) {
    const FrameView view = stack.Publish({{seq, {static_cast<TokenId>(5 + i)}}});
    const int64_t faults = Faults();
    g_allocations = 0;
    g_watching = true;
    stack.executor().Replay(view);
    g_watching = false;
    watched.allocations += g_allocations;
    watched.faults += Faults() - faults;
    stack.Done();
  }
  return watched;
}

TestStackConfig Config() {
  TestStackConfig config;
  config.spec = SmallSpec();
  return config;
}

TEST(ReplayI1, EveryReplayHasTheHashOfWarmUp) {
  TestStack stack(Config());
  const SeqId a = stack.Open();
  const SeqId b = stack.Open();
  std::mt19937 random(1);
  for (uint32_t step = 0; step < 40; ++step) {
    std::vector<TokenId> tokens(1 + random() % (step % 7 == 0 ? 90 : 3));
    for (TokenId& t : tokens) t = static_cast<TokenId>(random() % 300);
    stack.Step({{step % 2 == 0 ? a : b, tokens}});
  }
  const ExecutorCounters& counters = stack.executor().counters();
  EXPECT_EQ(counters.hash_mismatches, 0u);
  EXPECT_GT(counters.replays[0], 0u);
  EXPECT_GT(counters.replays[1] + counters.replays[2], 0u);
}

TEST(ReplayI1, AllProgramsCallTheSameOpsWithTheirOwnCapacities) {
  TestStack stack(Config());
  const ExecutorCounters& counters = stack.executor().counters();
  EXPECT_NE(counters.replay_hash[0], counters.replay_hash[1]);
  EXPECT_NE(counters.replay_hash[1], counters.replay_hash[2]);
}

// Every op kind, every kind of address that it is given: one moved, and the law is red.
TEST(ReplayI1, ADroppedOpOrAMovedBufferTurnsTheHashRed) {
  // embed, norm, qkv, rope + write, attention, output, norm, gate + up, down; the last two are the
  // output norm and the head.
  const uint32_t num_ops = 1 + 8 * SmallSpec().layers + 2;
  for (const ReplayMutant mutant :
       {ReplayMutant::kDropOp, ReplayMutant::kMoveInput, ReplayMutant::kMoveOutput,
        ReplayMutant::kMoveWeights, ReplayMutant::kMovePart}) {
    for (uint32_t op = 0; op < num_ops; ++op) {
      const uint32_t kind = op == 0 ? 0 : op >= num_ops - 2 ? 9 : 1 + (op - 1) % 8;
      const bool has_input = kind != 0 && kind != 3;  // rope works in place, on its output
      const bool has_weights = kind != 3 && kind != 4;
      const bool has_part = kind == 3 || kind == 4;
      if (mutant == ReplayMutant::kMoveInput && !has_input) continue;
      if (mutant == ReplayMutant::kMoveWeights && !has_weights) continue;
      if (mutant == ReplayMutant::kMovePart && !has_part) continue;
      TestStackConfig config = Config();
      config.mutant = mutant;
      config.mutant_op = op;
      config.num_threads = 1;
      TestStack stack(config);
      stack.Step({{stack.Open(), {1, 2, 3}}});
      EXPECT_EQ(stack.executor().counters().hash_mismatches, 1u)
          << "mutant " << static_cast<int>(mutant) << ", op " << op;
    }
  }
}

#if KVRM_OWN_MALLOC  // the mutant calls malloc; a sanitizer's own is not counted
TEST(ReplayI1, AnAllocationInsideTurnsTheHookRed) {
  TestStackConfig config = Config();
  config.mutant = ReplayMutant::kAllocate;
  TestStack stack(config);
  EXPECT_GT(WatchReplays(stack, stack.Open(), 3).allocations, 0u);
}
#endif

TEST(ReplayI1, NoAllocationAndNoFaultInSteadyReplays) {
  TestStack stack(Config());
  const SeqId seq = stack.Open();
  stack.Step({{seq, std::vector<TokenId>(70, 9)}});
  WatchReplays(stack, seq, 20);  // the frame's own tables are touched for the first time here
  const Watched watched = WatchReplays(stack, seq, 200);
  EXPECT_EQ(watched.allocations, 0u);
  // A sanitizer's own shadow memory faults when it likes.
  if (KVRM_OWN_MALLOC == 1) {
    EXPECT_EQ(watched.faults, 0);
  }
}

TEST(ReplayI1, ProgramsRunFromReadOnlyMemory) {
  TestStackConfig config = Config();
  config.protect_program = true;
  TestStack stack(config);
  stack.Step({{stack.Open(), {1, 2, 3}}});
  EXPECT_EQ(stack.executor().counters().hash_mismatches, 0u);
}

TEST(ReplayI1, LinearCallsDoNotDependOnRows) {
  TestStack stack(Config());
  const SeqId seq = stack.Open();
  stack.Step({{seq, {1}}});
  const uint64_t one = stack.executor().counters().linear_calls;
  EXPECT_EQ(one, 4u * SmallSpec().layers + 1);
  stack.Step({{seq, std::vector<TokenId>(300, 7)}});
  EXPECT_EQ(stack.executor().counters().linear_calls, 2 * one);
}

// B025: sizes that need padding, up and down; each row equals its run in a batch of its own.
TEST(B025, RowsOfAnyBatchSizeEqualTheirSoloRun) {
  std::vector<std::vector<float>> solo;
  for (uint32_t i = 0; i < 8; ++i) {
    TestStack stack(Config());
    const StepResult result = stack.Step({{stack.Open(), {static_cast<TokenId>(10 + i)}}});
    solo.push_back(stack.Logits(result, 0));
  }
  TestStack stack(Config());
  for (const uint32_t live : {3u, 5u, 6u, 7u, 8u, 5u, 7u, 1u}) {
    std::vector<TestStack::Feed> feeds;
    for (uint32_t i = 0; i < live; ++i) {
      feeds.push_back({stack.Open(), {static_cast<TokenId>(10 + i)}});
    }
    const StepResult result = stack.Step(feeds);
    for (uint32_t i = 0; i < live; ++i) EXPECT_EQ(stack.Logits(result, i), solo[i]) << live;
    for (const auto& feed : feeds) stack.Close(feed.seq);
    stack.Step({});  // slots come back with the commit
  }
}

// B026: rows past the live ones are untouched.
TEST(B026, LogitsRowsPastTheLiveOnesAreUntouched) {
  TestStackConfig config = Config();
  config.spec.vocab = 4096;  // what shares the buffer before the head runs ends in the first rows
  TestStack stack(config);
  const StepResult first = stack.Step({{stack.Open(), {4}}});
  float* logits = const_cast<float*>(first.logits);
  const size_t stride = first.logits_stride;
  for (size_t i = stride; i < 8 * stride; ++i) logits[i] = 12345.0f;
  std::vector<TestStack::Feed> feeds;
  for (uint32_t i = 0; i < 5; ++i) feeds.push_back({stack.Open(), {static_cast<TokenId>(20 + i)}});
  const StepResult result = stack.Step(feeds);
  ASSERT_EQ(result.logits, first.logits);
  for (size_t i = 5 * stride; i < 8 * stride; ++i) ASSERT_EQ(logits[i], 12345.0f);
}

// B028: rows that grow over every threshold (page, chunk, split) equal the run that computes them
// in one prompt.
TEST(B028, GrowingOverEveryThresholdEqualsOnePrompt) {
  std::mt19937 random(3);
  std::vector<TokenId> tokens(516);
  for (TokenId& t : tokens) t = static_cast<TokenId>(random() % 300);
  TestStack whole(Config());
  TestStack grown(Config());
  const SeqId seq = grown.Open();
  const SeqId other = grown.Open();
  std::vector<float> last;
  for (uint32_t i = 0; i < tokens.size(); ++i) {
    std::vector<TestStack::Feed> feeds = {{seq, {tokens[i]}}};
    if (i % 3 == 0) feeds.push_back({other, {tokens[i]}});
    last = grown.Logits(grown.Step(feeds), 0);
    if (i != 15 && i != 16 && i != 254 && i != 255 && i != 256 && i != 511 && i != 512) continue;
    TestStack fresh(Config());
    const std::vector<TokenId> prefix(tokens.begin(), tokens.begin() + i + 1);
    EXPECT_EQ(fresh.Logits(fresh.Step({{fresh.Open(), prefix}}), 0), last) << i;
  }
  EXPECT_EQ(whole.Logits(whole.Step({{whole.Open(), tokens}}), 0), last);
}

// What graphs may carry and this executor does not offer is refused when a program is bound.
TEST(BoundProgram, SinksAndChunkStatsAreRefusedByName) {
  TestStack stack(Config());
  for (const bool sinks : {true, false}) {
    Graph graph = BuildGraph(stack.model().config(), stack.geometry(), true);
    for (Op& op : graph.ops) {
      if (op.kind != OpKind::kAttention) continue;
      op.sinks = sinks;
      op.chunk_stats = !sinks;
    }
    const Program program = PlanProgram(graph, {8, 8});
    EXPECT_TRUE(ValidateProgram(program).empty());
    auto arena = Arena::Create(program.arena_bytes);
    ASSERT_TRUE(arena.ok());
    std::byte* const base[kMaxKvGroups] = {stack.pager().base(0)};
    const auto bound =
        BoundProgram::Create(program, stack.model(), stack.geometry(), base, **arena);
    ASSERT_FALSE(bound.ok());
    EXPECT_NE(bound.error().message.find(sinks ? "sinks" : "(m, l)"), std::string::npos)
        << bound.error().message;
  }
}

// A NaN weight: the rows whose K or V it touches are reported, and no other row changes.
TEST(ReplayNumerics, NaNWeightsAreReportedPerRow) {
  TestStackConfig config = Config();
  config.spec.nan_tensor = "token_embd.weight";
  config.spec.nan_row = 77;
  TestStack stack(config);
  TestStackConfig clean_config = Config();
  clean_config.spec.nan_tensor = config.spec.nan_tensor;
  clean_config.spec.nan_row = config.spec.nan_row;
  TestStack alone(clean_config);
  const std::vector<float> expected = alone.Logits(alone.Step({{alone.Open(), {5, 6}}}), 0);
  const SeqId bad = stack.Open();
  const SeqId good = stack.Open();
  const StepResult result = stack.Step({{bad, {77}}, {good, {5, 6}}});
  EXPECT_EQ(result.row_status[0], kRowNonFinite);
  EXPECT_EQ(result.row_status[1], kRowOk);
  EXPECT_EQ(result.row_status[2], kRowOk);
  const std::vector<float> logits = stack.Logits(result, 1);
  EXPECT_EQ(std::memcmp(logits.data(), expected.data(), logits.size() * sizeof(float)), 0);
  EXPECT_EQ(stack.executor().counters().nonfinite_rows, 1u);
}

TEST(ReplayNumerics, OneTokenPromptGivesFiniteLogits) {
  TestStack stack(Config());
  const std::vector<float> logits = stack.Logits(stack.Step({{stack.Open(), {0}}}), 0);
  for (const float x : logits) ASSERT_TRUE(std::isfinite(x));
}

TEST(ReplayNumerics, AFrameWithoutRowsRunsAndChangesNothing) {
  TestStack stack(Config());
  const SeqId seq = stack.Open();
  stack.Step({{seq, {1, 2}}});
  const StepResult result = stack.Step({});
  EXPECT_EQ(stack.executor().counters().hash_mismatches, 0u);
  EXPECT_EQ(result.program, ProgramKind::kDecode);
}

}  // namespace
}  // namespace kvrm::testing
