// Random scripts on every setup: whatever the verbs do, pager, frame and executors agree with the
// oracle and the shadow store. Seed and length: KVRM_HEART_SEED, KVRM_HEART_OPERATIONS.
#include <cstdio>
#include <string>

#include "gtest/gtest.h"
#include "property.h"

namespace kvrm::heart {
namespace {

// 10^6 in all, shared among the setups.
uint64_t OperationsPerSetup() { return OperationsOr(1'000'000) / Setups().size() + 1; }

class RandomScripts : public ::testing::TestWithParam<uint32_t> {
 protected:
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
  Check({.seed = SeedOr(1), .operations = OperationsPerSetup()});
}

TEST_P(RandomScripts, RollBackAfterEveryEdit) {
  Check({.machine = {.fail_after_every_edit = true},
         .seed = SeedOr(1),
         .operations = OperationsPerSetup() / 4});
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
