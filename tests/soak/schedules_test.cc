// Law I5 over random schedules: whatever came together, when, and in which engine, each request's
// tokens, logits and page bytes are those of its solo run. A slice here; 10,000 with tools/soak.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>

#include "model/random_model.h"
#include "tests/invariance/workload.h"
#include "tests/soak/scale.h"

namespace kvrm::testing {
namespace {

constexpr uint32_t kVocab = 320;

class Schedules : public ::testing::Test {
 protected:
  Schedules() : bytes_(WriteRandomModel({})) {
    auto file = GgufFile::Parse(bytes_, "random");
    EXPECT_TRUE(file.ok());
    file_ = std::move(file).value();
    alone_ = Load({.kv_bytes = 4u << 20, .num_threads = 1, .max_slots = 1, .prefix_cache = false});
    // Engines that differ in everything that must not show. They live through all schedules: their
    // pages are recycled and their caches full.
    for (const uint32_t slots : {2u, 12u}) {
      for (const uint64_t kv_bytes : {uint64_t{256} << 10, uint64_t{2} << 20}) {
        crowds_.push_back(Load({.kv_bytes = kv_bytes, .num_threads = 1, .max_slots = slots}));
        crowds_.push_back(Load({.kv_bytes = kv_bytes,
                                .num_threads = 2,
                                .max_slots = slots,
                                .chunk_rows = 5,
                                .prefix_cache = false,
                                .scatter_seed = 3}));
      }
    }
    // The first ones grow until nobody finds a page; the others are mixed, and every third begins
    // as the one before it.
    std::mt19937_64 random(11);
    for (uint32_t i = 0; i < kRequests; ++i) {
      requests_.push_back(RandomItem(random, kVocab, i % 3 == 0 ? 100 : 40, 16, 0));
      WorkItem& item = requests_.back();
      item.cancel_step = -1;
      if (i < kLong) {
        item.prompt.resize(1 + item.prompt.size() % 20);
        item.max_new_tokens = 120 + static_cast<uint32_t>(random() % 80);
      } else if (i % 3 == 0) {
        const std::vector<TokenId>& other = requests_[i - 1].prompt;
        item.prompt.insert(item.prompt.begin(), other.begin(),
                           other.begin() + static_cast<ptrdiff_t>(other.size() / 3));
      }
    }
  }

  // One of eight schedules is of long requests that come together.
  std::vector<uint32_t> Choose(std::mt19937_64& random) const {
    const bool is_long = random() % 8 == 0;
    std::vector<uint32_t> chosen(is_long ? 12 : 1 + random() % 12);
    for (uint32_t& request : chosen) {
      request = static_cast<uint32_t>(is_long ? random() % kLong
                                              : kLong + random() % (kRequests - kLong));
    }
    return chosen;
  }

  struct Shape {
    uint64_t kv_bytes;
    uint32_t num_threads;
    uint32_t max_slots;
    uint32_t chunk_rows = 0;
    bool prefix_cache = true;
    uint64_t scatter_seed = 0;
  };
  std::unique_ptr<Runtime> Load(const Shape& shape) const {
    RuntimeOptions options;
    options.kv_bytes = shape.kv_bytes;
    options.num_threads = shape.num_threads;
    options.max_slots = shape.max_slots;
    options.chunk_rows = shape.chunk_rows;
    options.prefix_cache = shape.prefix_cache;
    options.scatter_seed = shape.scatter_seed;
    options.kv_keep_bytes = 64 << 10;
    auto runtime = LoadRuntime(*file_, options);
    EXPECT_TRUE(runtime.ok()) << (runtime.ok() ? "" : runtime.error().message);
    return std::move(runtime).value();
  }

  const Recording& Solo(uint32_t request) {
    auto found = solo_.find(request);
    if (found == solo_.end()) {
      found = solo_.emplace(request, RunWorkload(*alone_, {requests_[request]}).front()).first;
    }
    return found->second;
  }

  static constexpr uint32_t kRequests = 96, kLong = 12;
  const std::vector<std::byte> bytes_;
  std::unique_ptr<const GgufFile> file_;
  std::unique_ptr<Runtime> alone_;
  std::vector<std::unique_ptr<Runtime>> crowds_;
  std::vector<WorkItem> requests_;
  std::map<uint32_t, Recording> solo_;
};

TEST_F(Schedules, EachRequestEqualsItsSoloRun) {
  const uint64_t schedules = ScaleOf("KVRM_SOAK_SCHEDULES", 40);
  std::mt19937_64 random(2026);
  uint64_t compared = 0, cancelled = 0, preempted = 0, mixed_steps = 0;
  for (uint64_t s = 0; s < schedules; ++s) {
    Runtime& crowd = *crowds_[random() % crowds_.size()];
    const std::vector<uint32_t> chosen = Choose(random);
    std::vector<WorkItem> items;
    for (const uint32_t request : chosen) {
      WorkItem item = requests_[request];
      item.arrival_step = static_cast<uint32_t>(random() % 12);
      if (random() % 4 == 0)
        item.cancel_step = item.arrival_step + static_cast<int64_t>(random() % 12);
      items.push_back(std::move(item));
    }
    Recorder::Seen seen;
    const std::vector<Recording> recordings = RunWorkload(crowd, items, &seen);
    preempted += seen.preempted;
    mixed_steps += seen.mixed_steps;
    for (size_t i = 0; i < items.size(); ++i) {
      if (recordings[i].reason == StopReason::kCancelled) {
        ++cancelled;
        continue;
      }
      ExpectSame(recordings[i], Solo(chosen[i]), ("schedule " + std::to_string(s)).c_str());
      ++compared;
    }
    if (HasFailure()) return;
  }
  std::printf(
      "%llu schedules on %zu engines: %llu requests equal to their solo runs (tokens, "
      "logits, page bytes), %llu cancelled, %llu preemptions, %llu mixed steps\n",
      static_cast<unsigned long long>(schedules), crowds_.size(),
      static_cast<unsigned long long>(compared), static_cast<unsigned long long>(cancelled),
      static_cast<unsigned long long>(preempted), static_cast<unsigned long long>(mixed_steps));
  EXPECT_GT(compared, 2 * schedules);
  EXPECT_GT(preempted, 0u);  // else the schedules say nothing about it
  EXPECT_GT(mixed_steps, 0u);
}

}  // namespace
}  // namespace kvrm::testing
