#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <map>

#include "bench/tail/server_process.h"
#include "bench/tail/tail_plan.h"

namespace kvrm::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TailRun RunOf(char scenario, TailSide side, double p99_ms, double tokens_per_s = 100,
              double injected_ttft_ms = 0) {
  TailRun run;
  run.scenario = scenario;
  run.server.side = side;
  run.server.name = "server " + std::to_string(static_cast<int>(side));
  run.report.workload.name = std::string("scenario ") + scenario;
  run.report.figures.all.itl_ms = Distribution(std::vector<double>(50, p99_ms));
  run.report.figures.window_tokens_per_s = tokens_per_s;
  if (injected_ttft_ms > 0) {
    RequestFigures injected;
    injected.name = "injected";
    injected.ttft_ms = Distribution({injected_ttft_ms});
    run.report.figures.sources = {{}, injected};
  }
  if (side == TailSide::kOurs) {
    run.budget_ms = 50;
    run.unexplained = {0.0006, 0.0004};
  }
  return run;
}

const TailGoal& Goal(const std::vector<TailGoal>& goals, const std::string& text) {
  for (const TailGoal& goal : goals) {
    if (goal.text.find(text) != std::string::npos) return goal;
  }
  ADD_FAILURE() << "no goal '" << text << "'";
  return goals.front();
}

std::vector<TailRun> Sitting(double ours_p99_ms, double ours_rate, double ours_ttft_ms) {
  return {RunOf('a', TailSide::kOurs, ours_p99_ms, ours_rate, ours_ttft_ms),
          RunOf('a', TailSide::kOursWithoutBudget, 900, 100, 300),
          RunOf('a', TailSide::kLlamaDefault, 1000, 20, 6000),
          RunOf('a', TailSide::kLlamaTuned, 500, 10, 9000),
          RunOf('a', TailSide::kLlamaTuned, 240, 10, 8000)};
}

TEST(TailGoals, AreMetAtTheirLimits) {
  for (const TailGoal& goal : TailGoals(Sitting(60, 95, 2000))) {
    EXPECT_EQ(goal.met, true) << goal.text << ": " << goal.seen;
  }
}

TEST(TailGoals, AreMissedBehindThem) {
  const auto goals = TailGoals(Sitting(60.5, 94, 2001));
  EXPECT_EQ(Goal(goals, "budget + 10 ms").met, false);
  EXPECT_EQ(Goal(goals, "1/4 of its best tuning").met, false);  // 240, not 500
  EXPECT_EQ(Goal(goals, "95 %").met, false);
  EXPECT_EQ(Goal(goals, "TTFT").met, false);
  EXPECT_EQ(Goal(goals, "1/10").met, true);
  EXPECT_EQ(Goal(TailGoals(Sitting(100.1, 95, 1)), "1/10").met, false);
}

TEST(TailGoals, RefusalsCount) {
  auto runs = Sitting(60, 95, 2000);
  runs[0].report.figures.all.outcomes[static_cast<size_t>(Outcome::kHttp429)] = 1;
  EXPECT_EQ(Goal(TailGoals(runs), "429").met, false);
}

TEST(TailGoals, AMachineThatIsNotQuietGivesNoVerdict) {
  auto runs = Sitting(60, 94, 2000);
  runs[0].unexplained = {0.0015, 0.0005};
  EXPECT_EQ(NotQuiet(runs[0]), std::nullopt);
  EXPECT_EQ(Goal(TailGoals(runs), "95 %").met, false);
  runs[0].unexplained = {0.0015, 0.0006};
  const auto why = NotQuiet(runs[0]);
  ASSERT_TRUE(why.has_value());
  EXPECT_THAT(*why, HasSubstr("0.210 % (stolen 0.150, other 0.060)"));
  runs[0].set_aside = {"others used 9.0 % of the machine", *why};
  const auto goals = TailGoals(runs);
  for (const TailGoal& goal : goals) {
    EXPECT_FALSE(goal.met.has_value()) << goal.text;
    EXPECT_FALSE(goal.quiet) << goal.text;
  }
  const std::string text = TailText(runs, goals);
  EXPECT_THAT(text, HasSubstr("no verdict: machine not quiet"));
  EXPECT_THAT(text, HasSubstr("run 1 of 3 set aside and repeated: others used 9.0 %"));
  EXPECT_THAT(text, HasSubstr("none of 3 runs counts, machine not quiet: gaps over budget"));
  EXPECT_THAT(text, Not(HasSubstr("MISSED")));
  const auto json = TailJson(runs, goals, "");
  EXPECT_EQ(json.at("runs").at(0).at("set_aside").as_array().size(), 2u);
  EXPECT_FALSE(json.at("goals").at(0).at("quiet").as_bool());
}

TEST(TailGoals, AVerdictSaysWhichRunItIsAbout) {
  auto runs = Sitting(60, 94, 2000);
  EXPECT_THAT(TailText(runs, TailGoals(runs)), Not(HasSubstr("counts")));
  runs[0].set_aside = {"others used 9.0 % of the machine"};
  runs[2].report.max_others_percent = 5;
  runs[2].report.others_percent = 7;
  const auto goals = TailGoals(runs);
  const std::string text = TailText(runs, goals);
  EXPECT_THAT(text, HasSubstr("run 1 of 2 set aside and repeated: others used 9.0 %"));
  EXPECT_THAT(text, HasSubstr(runs[0].server.name + ": run 2 of 2 counts\n"));
  EXPECT_THAT(text, HasSubstr(runs[2].server.name +
                              ": run 1 of 1 counts, machine not quiet: others used 7.0 %"));
  EXPECT_THAT(text, HasSubstr("met (run 2)"));
  EXPECT_THAT(text, HasSubstr("MISSED (run 2)"));
  EXPECT_EQ(TailJson(runs, goals, "").at("goals").at(0).at("run").as_uint64(), 2u);
}

TEST(TailGoals, ARunIsRepeatedWhereOthersHadTheMachine) {
  TailRun run = RunOf('a', TailSide::kLlamaDefault, 100);
  run.report.max_others_percent = 5;
  run.report.others_percent = 5;
  EXPECT_EQ(NotQuiet(run), std::nullopt);
  run.report.others_percent = 5.1;
  ASSERT_TRUE(NotQuiet(run).has_value());
  EXPECT_THAT(*NotQuiet(run), HasSubstr("5.1 %"));
}

// Twice as good in all three, and no slower: against each setting of the rival.
TEST(TailGoals, HalfOfARivalIsHalfOfAllThreeFiguresAtNoLessThroughput) {
  const auto verdict = [](double p99_ms, double tokens_per_s, double ttft_ms) {
    auto runs = Sitting(p99_ms, tokens_per_s, ttft_ms);
    runs.push_back(RunOf('a', TailSide::kOpenVino, 400, 90, 4000));
    runs.push_back(RunOf('a', TailSide::kOpenVino, 120, 95, 3000));
    runs.back().server.name = "tuned";
    return TailGoals(runs);
  };
  EXPECT_EQ(Goal(verdict(60, 95, 1500), "tuned (its least p99)").met, true);
  EXPECT_EQ(Goal(verdict(60.1, 95, 1500), "tuned").met, false);
  EXPECT_EQ(Goal(verdict(60, 94, 1500), "tuned").met, false);
  EXPECT_EQ(Goal(verdict(60, 95, 1501), "tuned").met, false);
  EXPECT_EQ(Goal(verdict(60, 95, 1501), "tokens/s: server 4").text.find("least"),
            std::string::npos);
  EXPECT_EQ(Goal(verdict(60, 95, 1501), "tokens/s: server 4").met, true);
  auto stalled = Sitting(60, 95, 1500);
  std::vector<double> gaps(1000, 50);
  gaps[0] = 61;  // above the half of 120, and far beyond p99
  stalled[0].report.figures.all.itl_ms = Distribution(gaps);
  stalled.push_back(RunOf('a', TailSide::kOpenVino, 120, 95, 3000));
  EXPECT_EQ(Goal(TailGoals(stalled), "longest gap").met, false);
}

TEST(TailGoals, WhatWasNotSeenIsNeitherMetNorMissed) {
  TailRun ours = RunOf('b', TailSide::kOurs, 60);
  ours.budget_ms.reset();
  ours.unexplained.reset();
  const auto goals = TailGoals({ours});
  EXPECT_FALSE(Goal(goals, "budget + 10 ms").met.has_value());
  EXPECT_FALSE(Goal(goals, "stolen or other").met.has_value());
  EXPECT_TRUE(std::none_of(goals.begin(), goals.end(), [](const TailGoal& goal) {
    return goal.text.find("llama") != std::string::npos;
  })) << "no rival, no goal";
  EXPECT_TRUE(TailGoals({}).empty());
}

TEST(TailGoals, ReportsHoldEachRunAndEachGoal) {
  const auto runs = Sitting(60, 94, 2000);
  const auto goals = TailGoals(runs);
  const std::string text = TailText(runs, goals), page = TailHtml(runs, goals, "the command");
  for (const TailRun& run : runs) {
    EXPECT_THAT(text, HasSubstr(run.server.name));
    EXPECT_THAT(page, HasSubstr(run.server.name));
  }
  EXPECT_THAT(text, HasSubstr("MISSED"));
  EXPECT_THAT(page, HasSubstr("<svg"));
  const auto json = TailJson(runs, goals, "the command");
  EXPECT_EQ(json.at("runs").as_array().size(), runs.size());
  ASSERT_EQ(json.at("goals").as_array().size(), goals.size());
  for (size_t i = 0; i < goals.size(); ++i) {
    EXPECT_EQ(json.at("goals").at(i).at("met").as_bool(), *goals[i].met);
  }
}

TEST(TailGoals, UnexplainedIsStolenAndOtherOfAllGaps) {
  const auto gaps = UnexplainedIn(
      "kvrm_inter_token_seconds_count 1000\n"
      "kvrm_gaps_over_budget_total{cause=\"decode\"} 50\n"
      "kvrm_gaps_over_budget_total{cause=\"stolen\"} 2\n"
      "kvrm_gaps_over_budget_total{cause=\"other\"} 1\n");
  ASSERT_TRUE(gaps.has_value());
  EXPECT_EQ(gaps->stolen, 0.002);
  EXPECT_EQ(gaps->other, 0.001);
  EXPECT_FALSE(UnexplainedIn("kvrm_requests_total 3\n").has_value());
}

TEST(TailScenarios, EachRivalRunsAsItComesAndTuned) {
  TailSetup setup;
  setup.llama_server = "/llama-server";
  setup.open_vino_driver = "/openvino-driver";
  setup.vllm = "/vllm";
  setup.vllm_model = "/folder";
  setup.kv = "int8";
  std::map<TailSide, int> runs;
  for (const TailServer& server : TailServers(setup)) {
    ++runs[server.side];
    EXPECT_EQ(server.piped, server.side == TailSide::kOpenVino) << server.name;
    const bool ours = server.side == TailSide::kOurs || server.side == TailSide::kOursWithoutBudget;
    const auto kv = std::find(server.command.begin(), server.command.end(), "int8");
    EXPECT_EQ(kv != server.command.end(), ours) << server.name;
  }
  EXPECT_EQ(runs[TailSide::kLlamaDefault], 1);
  EXPECT_GE(runs[TailSide::kLlamaTuned], 2);
  EXPECT_GE(runs[TailSide::kOpenVino], 3);
  EXPECT_GE(runs[TailSide::kVllm], 2);
}

TEST(TailScenarios, AreWorkloads) {
  const std::string texts[] = {InjectedScenario(30), MixedScenario(30, 1.5), TraceScenario(5, 0.1),
                               MixedCapacity(15, 16), TraceCapacity(5, 16)};
  for (const std::string& text : texts) {
    const auto workload = ParseWorkload(text, "tail", {});
    EXPECT_TRUE(workload.ok()) << workload.error().message;
  }
  double rate = 0;
  const auto mixed = ParseWorkload(texts[1], "tail", {});
  for (const Source& source : mixed->sources) rate += source.rate;
  EXPECT_NEAR(rate, 1.5, 1e-9);
}

TEST(TailScenarios, ARateIsAShareOfWhatIsAnswered) {
  LoadRun run;
  for (const uint32_t tokens : {50u, 150u}) {
    RequestRecord record;
    record.asked_output_tokens = tokens;
    run.records.push_back(record);
  }
  EXPECT_NEAR(RateAtShare(0.6, 200, run), 1.2, 1e-9);  // 200 tokens/s are 2 requests/s
  EXPECT_EQ(RateAtShare(0.6, 200, {}), 0);
}

TEST(ServerProcess, SaysWhyItIsNotThere) {
  EXPECT_FALSE(ServerProcess::Start({"/nonexistent/server"}, "/dev/null").ok());
  const std::string log = ::testing::TempDir() + "kvrm_server_process_test.log";
  auto process =
      ServerProcess::Start({"/bin/sh", "-c", "echo first; echo no room >&2; exit 3"}, log);
  ASSERT_TRUE(process.ok()) << process.error().message;
  LoadTarget target;
  target.host = "127.0.0.1";
  const auto port = FreePort();
  ASSERT_TRUE(port.ok());
  target.port = *port;
  const auto ready = process->AwaitReady(target, 30);
  ASSERT_FALSE(ready.ok());
  EXPECT_THAT(ready.error().message, HasSubstr("ended before it was ready"));
  EXPECT_THAT(ready.error().message, HasSubstr("its last line: no room"));
}

// A server that does not listen to SIGTERM would keep its port and its memory.
TEST(ServerProcess, IsGoneAfterwards) {
  int64_t pid = 0;
  {
    auto process = ServerProcess::Start({"/bin/sleep", "60"}, "/dev/null");
    ASSERT_TRUE(process.ok());
    pid = process->pid();
    ASSERT_EQ(kill(static_cast<pid_t>(pid), 0), 0);
  }
  EXPECT_NE(kill(static_cast<pid_t>(pid), 0), 0);
}

}  // namespace
}  // namespace kvrm::cli
