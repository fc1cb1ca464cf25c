// Random scripts on every setup: whatever the verbs do, pager, frame and executors agree with the
// oracle and the shadow store. Seed and length: KVRM_HEART_SEED, KVRM_HEART_OPERATIONS.
#include <cstdio>
#include <iterator>
#include <string>

#include "gtest/gtest.h"
#include "property.h"

namespace kvrm::heart {
namespace {

#if defined(__has_feature)
#define KVRM_HAS_FEATURE(feature) __has_feature(feature)
#else
#define KVRM_HAS_FEATURE(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || KVRM_HAS_FEATURE(address_sanitizer) || \
    defined(__SANITIZE_THREAD__) || KVRM_HAS_FEATURE(thread_sanitizer)
constexpr uint64_t kOperations = 100'000;  // ten times as slow, and what is judged is the same
#else
constexpr uint64_t kOperations = 1'000'000;
#endif

// In all, shared among the setups.
uint64_t OperationsPerSetup() { return OperationsOr(kOperations) / Setups().size() + 1; }

class RandomScripts : public ::testing::TestWithParam<uint32_t> {
 protected:
  static uint64_t FirstSeed() { return 1 + 10'000 * uint64_t{GetParam()}; }

  void Check(const PropertyOptions& options) {
    const PropertyResult result = CheckRandomScripts(GetParam(), options);
    std::printf("seeds %llu to %llu, %llu operations\n",
                static_cast<unsigned long long>(options.seed),
                static_cast<unsigned long long>(result.last_seed),
                static_cast<unsigned long long>(result.operations));
    if (result.what.empty()) return;
    ADD_FAILURE() << result.what << "\nKVRM_HEART_SEED=" << result.last_seed
                  << "; the smallest script (run it: heart_script FILE):\n"
                  << ToText(result.script);
  }
};

TEST_P(RandomScripts, AgreeWithTheOracle) {
  Check({.seed = SeedOr(FirstSeed()), .operations = OperationsPerSetup()});
}

TEST_P(RandomScripts, RollBackAfterEveryEdit) {
  Check({.machine = {.fail_after_every_edit = true},
         .seed = SeedOr(FirstSeed()),
         .operations = OperationsPerSetup() / 4,
         .script_lines = 100});
}

// A random test that never comes to the hard parts proves little: what all the setups together did.
TEST(RandomScriptsReach, EverythingThatThePagerCounts) {
  PagerCounters sum;
  const auto add = [&](uint64_t PagerCounters::* counter, const PagerCounters& counters) {
    sum.*counter += counters.*counter;
  };
  constexpr uint64_t PagerCounters::* kReached[] = {
      &PagerCounters::deferred,
      &PagerCounters::unserviceable,
      &PagerCounters::copy_on_write,
      &PagerCounters::savepoint_rollbacks,
      &PagerCounters::slid_pages,
      &PagerCounters::superblocks_given_back,
      &PagerCounters::prefix_hit_tokens,
      &PagerCounters::prefix_pages_indexed,
      &PagerCounters::prefix_pages_evicted,
      &PagerCounters::prefix_collisions,
      &PagerCounters::cold_pages,
      &PagerCounters::soft_used,
      &PagerCounters::soft_stolen,
  };
  for (uint32_t setup = 0; setup < Setups().size(); ++setup) {
    const auto counters = CheckRandomScripts(setup, {.seed = 1, .operations = 3'000}).counters;
    for (const auto counter : kReached) add(counter, counters);
  }
  for (size_t i = 0; i < std::size(kReached); ++i) {
    EXPECT_GT(sum.*kReached[i], 50u) << "counter " << i << " of the list above";
  }
}

INSTANTIATE_TEST_SUITE_P(Heart, RandomScripts,
                         ::testing::Range(0u, static_cast<uint32_t>(Setups().size())),
                         [](const auto& param) {
                           std::string name(Setups()[param.param].name);
                           for (char& letter : name) letter = letter == '-' ? '_' : letter;
                           return name;
                         });

}  // namespace
}  // namespace kvrm::heart
