// Limbo: an executor one step behind never reads a page that was reused. The setups "delayed" of
// random_scripts_test.cc hold the law in random schedules; here stands that they could fail.
#include <string>

#include "gtest/gtest.h"
#include "property.h"

namespace kvrm::heart {
namespace {

Script Parse(const std::string& text) {
  std::string error;
  const auto script = ParseScript(text, &error);
  EXPECT_TRUE(script.has_value()) << error;
  return script.value_or(Script{});
}

// A page is trimmed while the frame that reads it has not run, and another sequence wants it.
const char* const kReuseScript = R"(
setup delayed
open s0 text 1 salt 0
open s1 text 2 salt 0
grow s0 40 hint 0
commit
grow s0 1 hint 0
commit
close s0          # its last frame has not run yet
grow s1 300 hint 0
commit
grow s1 50 hint 0
commit
)";

TEST(DelayedExecutor, ReadsWhatItShouldWhileItsPagesAreWanted) {
  EXPECT_EQ(RunScript(Parse(kReuseScript)), std::nullopt);
}

TEST(DelayedExecutor, WouldNoticeACompletionThatComesBeforeTheRun) {
  const auto wrong = RunScript(Parse(kReuseScript), {.complete_too_early = true});
  ASSERT_TRUE(wrong.has_value());
  EXPECT_NE(wrong->find("one step behind"), std::string::npos) << *wrong;
}

TEST(DelayedExecutor, RandomSchedulesNoticeItTooOnEverySetup) {
  for (uint32_t setup = 0; setup < Setups().size(); ++setup) {
    if (!Setups()[setup].delayed) continue;
    SCOPED_TRACE(Setups()[setup].name);
    const PropertyResult result = CheckRandomScripts(
        setup, {.machine = {.complete_too_early = true}, .seed = SeedOr(1), .operations = 100'000});
    EXPECT_NE(result.what.find("one step behind"), std::string::npos) << result.what;
    EXPECT_LT(result.script.commands.size(), 15u) << ToText(result.script);
  }
}

}  // namespace
}  // namespace kvrm::heart
