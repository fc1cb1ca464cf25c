#include "bench/result.h"

#include <gtest/gtest.h>

#include "bench/ceilings.h"
#include "bench/quiet_gate.h"
#include "bench/statistics.h"
#include "bench/subprocess.h"

namespace kvrm::cli {
namespace {

BenchResult Example() {
  BenchResult result;
  result.test = "tg128";
  result.tokens_per_s = {90, 110, 100};
  result.ms = {11, 9, 10};
  result.max_others_percent = 5;
  return result;
}

TEST(Statistics, MedianMinMaxAndSpreadWhateverTheOrder) {
  const Summary odd = Summarize({3, 1, 2});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.max, 3);
  EXPECT_EQ(odd.spread(), 1);
  EXPECT_EQ(Summarize({4, 1, 2, 3}).median, 2.5);
}

TEST(BenchResult, AFloorIsHeldAgainstTheMedianTime) {
  BenchResult result = Example();
  EXPECT_FALSE(result.floor_share().has_value());
  result.floor = Floor{5, 100, 0, 1000};
  EXPECT_DOUBLE_EQ(*result.floor_share(), 0.5);
}

TEST(BenchResult, MoreOfOthersThanTheGateAllowsIsMarkedNoisy) {
  BenchResult result = Example();
  EXPECT_FALSE(result.noisy());
  result.others_percent = 5;
  EXPECT_FALSE(result.noisy());
  result.others_percent = 5.1;
  EXPECT_TRUE(result.noisy());
  EXPECT_NE(ToText({result}, {}).find("NOISY"), std::string::npos);
  EXPECT_TRUE(ToJson(result, {}).at("noisy").as_bool());
}

TEST(BenchResult, JsonKeepsEachSampleAndNamesSchemaMachineAndDate) {
  BenchResult result = Example();
  result.date = DateUtc();
  const auto json = ToJson(result, ThisMachine());
  EXPECT_EQ(json.at("schema").as_int64(), kResultSchema);
  EXPECT_EQ(json.at("tokens_per_s").at("samples").as_array().size(), 3u);
  EXPECT_EQ(json.at("tokens_per_s").at("median").to_number<double>(), 100);
  EXPECT_GT(json.at("machine").at("cpus").to_number<int>(), 0);
  EXPECT_EQ(json.at("date").as_string().size(), 20u);
  EXPECT_EQ(json.if_contains("floor"), nullptr);
}

TEST(QuietGate, BusyTimeIsAllButIdleAndWaitingForDisks) {
  const auto ticks = ParseCpuLine("cpu  10 20 30 1000 500 1 2 4 7 8");
  ASSERT_TRUE(ticks.has_value());
  EXPECT_EQ(ticks->busy, 67u);
  EXPECT_EQ(ticks->total, 1567u);
  EXPECT_FALSE(ParseCpuLine("cpu0 1 2 3 4 5 6 7 8").has_value());
  EXPECT_FALSE(ParseCpuLine("").has_value());
}

TEST(Ceilings, ReadBandwidthOfASmallBufferIsMeasured) {
  EXPECT_GT(MeasureReadBandwidth(1 << 20, 1), 1e6);
}

TEST(Subprocess, OutputComesBackAndFailuresNameTheCommand) {
  const auto output = RunProgram({"/bin/sh", "-c", "printf hello; printf unseen >&2"});
  ASSERT_TRUE(output.ok());
  EXPECT_EQ(*output, "hello");
  const auto failed = RunProgram({"/bin/sh", "-c", "exit 3"});
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.error().message.find("exit code 3"), std::string::npos);
  EXPECT_FALSE(RunProgram({"/nonexistent/program"}).ok());
}

TEST(Subprocess, CommandLinesAreQuotedForAShell) {
  const std::vector<std::string> words = {"/bin/echo", "-n", "a b", "it's", "", "$x"};
  const auto direct = RunProgram(words);
  const auto through_shell = RunProgram({"/bin/sh", "-c", CommandLine(words)});
  ASSERT_TRUE(direct.ok() && through_shell.ok());
  EXPECT_EQ(*direct, *through_shell);
}

}  // namespace
}  // namespace kvrm::cli
