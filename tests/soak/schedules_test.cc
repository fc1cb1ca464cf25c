// Law I5 over random schedules: whatever came together, when, and in which engine and mode, each
// request's tokens, logits and page bytes are those of its solo run. A slice here; 10,000 with
// tools/soak.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>

#include "model/random_model.h"
#include "tests/invariance/workload.h"
#include "tests/soak/scale.h"
#include "tests/soak/soak_goals.h"

namespace kvrm::testing {
namespace {

constexpr uint32_t kVocab = 320;

struct Shape {
  uint64_t kv_bytes = 2u << 20;
  uint32_t num_threads = 1;
  uint32_t max_slots = 12;
  uint32_t chunk_rows = 0;
  bool prefix_cache = true;
  uint64_t scatter_seed = 0;
  Mode mode = Mode::kKvrm;
};

// A model, an engine that runs each request alone, and engines that differ in everything that must
// not show. They live through all schedules: their pages are recycled and their caches full.
class World {
 public:
  explicit World(const RandomModelSpec& spec) : bytes_(WriteRandomModel(spec)) {
    auto file = GgufFile::Parse(bytes_, "random");
    EXPECT_TRUE(file.ok());
    file_ = std::move(file).value();
    alone_ = Load({.kv_bytes = 4u << 20, .max_slots = 1, .prefix_cache = false});
    for (const uint32_t slots : {2u, 12u}) {
      for (const uint64_t kv_bytes : {uint64_t{256} << 10, uint64_t{2} << 20}) {
        Add({.kv_bytes = kv_bytes, .max_slots = slots});
        Add({.kv_bytes = kv_bytes,
             .num_threads = 2,
             .max_slots = slots,
             .chunk_rows = 5,
             .prefix_cache = false,
             .scatter_seed = 3});
      }
    }
    for (const ModeTraits& mode : AllModes()) {
      if (mode.mode == Mode::kKvrm) continue;
      Add({.max_slots = 6, .prefix_cache = !mode.slot_runs, .mode = mode.mode});
    }
  }

  struct Crowd {
    Mode mode;
    std::unique_ptr<Runtime> runtime;
  };
  std::vector<Crowd>& crowds() { return crowds_; }

  // Of request `number`, which is `item`.
  const Recording& Solo(uint32_t number, const WorkItem& item) {
    auto found = solo_.find(number);
    if (found == solo_.end()) {
      found = solo_.emplace(number, RunWorkload(*alone_, {item}).front()).first;
    }
    return found->second;
  }

 private:
  void Add(const Shape& shape) { crowds_.push_back({shape.mode, Load(shape)}); }
  std::unique_ptr<Runtime> Load(const Shape& shape) const {
    RuntimeOptions options;
    options.kv_bytes = shape.kv_bytes;
    options.num_threads = shape.num_threads;
    options.max_slots = shape.max_slots;
    options.chunk_rows = shape.chunk_rows;
    options.prefix_cache = shape.prefix_cache;
    options.scatter_seed = shape.scatter_seed;
    options.mode = shape.mode;
    options.kv_keep_bytes = 64 << 10;
    auto runtime = LoadRuntime(*file_, options);
    EXPECT_TRUE(runtime.ok()) << (runtime.ok() ? "" : runtime.error().message);
    return std::move(runtime).value();
  }

  const std::vector<std::byte> bytes_;
  std::unique_ptr<const GgufFile> file_;
  std::unique_ptr<Runtime> alone_;
  std::vector<Crowd> crowds_;
  std::map<uint32_t, Recording> solo_;
};

constexpr uint32_t kRequests = 96, kLong = 12;

// The first ones grow until nobody finds a page; the others are mixed, and every third begins as
// the one before it.
std::vector<WorkItem> AllRequests() {
  std::vector<WorkItem> requests;
  std::mt19937_64 random(11);
  for (uint32_t i = 0; i < kRequests; ++i) {
    requests.push_back(RandomItem(random, kVocab, i % 3 == 0 ? 100 : 40, 16, 0));
    WorkItem& item = requests.back();
    item.cancel_step = -1;
    if (i < kLong) {
      item.prompt.resize(1 + item.prompt.size() % 20);
      item.max_new_tokens = 120 + static_cast<uint32_t>(random() % 80);
    } else if (i % 3 == 0) {
      const std::vector<TokenId>& other = requests[i - 1].prompt;
      item.prompt.insert(item.prompt.begin(), other.begin(),
                         other.begin() + static_cast<ptrdiff_t>(other.size() / 3));
    }
  }
  return requests;
}

// One of eight schedules is of long requests that come together.
std::vector<uint32_t> Choose(std::mt19937_64& random) {
  const bool is_long = random() % 8 == 0;
  std::vector<uint32_t> chosen(is_long ? 12 : 1 + random() % 12);
  for (uint32_t& request : chosen) {
    request =
        static_cast<uint32_t>(is_long ? random() % kLong : kLong + random() % (kRequests - kLong));
  }
  return chosen;
}

// The same requests, each with a time to come, and some with a time to be given up.
std::vector<WorkItem> ScheduleOf(const std::vector<WorkItem>& requests,
                                 const std::vector<uint32_t>& chosen, std::mt19937_64& random) {
  std::vector<WorkItem> items;
  for (const uint32_t request : chosen) {
    WorkItem item = requests[request];
    item.arrival_step = static_cast<uint32_t>(random() % 12);
    if (random() % 4 == 0) {
      item.cancel_step = item.arrival_step + static_cast<int64_t>(random() % 12);
    }
    items.push_back(std::move(item));
  }
  return items;
}

struct Tally {
  uint64_t schedules = 0, compared = 0, cancelled = 0, preempted = 0, mixed_steps = 0;
  std::map<std::string, uint64_t> by_mode;  // schedules
};

void RunSchedule(World& world, const std::vector<WorkItem>& requests, std::mt19937_64& random,
                 Tally& tally) {
  World::Crowd& crowd = world.crowds()[random() % world.crowds().size()];
  const std::vector<uint32_t> chosen = Choose(random);
  const std::vector<WorkItem> items = ScheduleOf(requests, chosen, random);
  const std::string name(TraitsOf(crowd.mode).name);
  const std::string what = "schedule " + std::to_string(tally.schedules) + ", mode " + name;
  Recorder::Seen seen;
  const std::vector<Recording> recordings = RunWorkload(*crowd.runtime, items, &seen);
  for (size_t i = 0; i < items.size(); ++i) {
    if (recordings[i].reason == StopReason::kCancelled) {
      ++tally.cancelled;
      continue;
    }
    ExpectSame(recordings[i], world.Solo(chosen[i], requests[chosen[i]]), what.c_str());
    ++tally.compared;
  }
  ++tally.schedules;
  ++tally.by_mode[name];
  tally.preempted += seen.preempted;
  tally.mixed_steps += seen.mixed_steps;
}

void Print(const Tally& tally) {
  const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf(
      "%llu schedules: %llu requests equal to their solo runs (tokens, logits, page bytes), %llu "
      "cancelled, %llu preemptions, %llu mixed steps\n",
      number(tally.schedules), number(tally.compared), number(tally.cancelled),
      number(tally.preempted), number(tally.mixed_steps));
  for (const auto& [mode, schedules] : tally.by_mode) {
    std::printf("  mode %s: %llu schedules\n", mode.c_str(), number(schedules));
  }
}

std::vector<SoakGoal> GoalsOf(const Tally& tally, uint64_t schedules, bool all_equal) {
  return {{std::to_string(schedules) + " random schedules, each answer equal to its solo run in "
                                       "tokens, logits and page bytes",
           std::to_string(tally.schedules) + " schedules, " + std::to_string(tally.compared) +
               " answers" + (all_equal ? "" : ", the last schedule differs"),
           all_equal && tally.schedules == schedules && tally.compared > 2 * schedules},
          {"schedules in every mode",
           std::to_string(tally.by_mode.size()) + " of " + std::to_string(AllModes().size()),
           tally.by_mode.size() == AllModes().size()},
          // Else the schedules say nothing about it.
          {"sequences give way, and prompts are computed beside answers",
           std::to_string(tally.preempted) + " preemptions, " + std::to_string(tally.mixed_steps) +
               " such steps",
           tally.preempted > 0 && tally.mixed_steps > 0}};
}

// Every fourth schedule is over a model whose layers have windows, but for every second one.
TEST(Schedules, EachRequestEqualsItsSoloRunInEveryMode) {
  RandomModelSpec windowed;
  windowed.window = 40;
  windowed.full_every = 2;
  World dense({}), sliding(windowed);
  const std::vector<WorkItem> requests = AllRequests();
  const uint64_t schedules = ScaleOf("KVRM_SOAK_SCHEDULES", 400);
  std::mt19937_64 random(2026);
  Tally tally;
  for (uint64_t s = 0; s < schedules && !HasFailure(); ++s) {
    RunSchedule(s % 4 == 3 ? sliding : dense, requests, random, tally);
  }
  Print(tally);
  const std::vector<SoakGoal> goals = GoalsOf(tally, schedules, !HasFailure());
  std::printf("\n%s", SoakGoalsText(goals).c_str());
  for (const SoakGoal& goal : goals) EXPECT_NE(goal.met, false) << SoakGoalsText({goal});
}

}  // namespace
}  // namespace kvrm::testing
