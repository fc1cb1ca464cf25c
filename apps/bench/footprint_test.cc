#include "bench/footprint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "bench/subprocess.h"
#include "bench/versus_plot.h"
#include "bench/versus_report.h"

namespace kvrm::cli {
namespace {

VersusSetting ThreeFiles() {
  VersusSetting setting;
  setting.program = "/bin/kvrm";
  setting.model = "/m/x.Q4_1.gguf";
  setting.threads = 2;
  setting.places.programs = {"/r/native/bin"};
  setting.places.models = {"/m/x.Q4_0.gguf", "/m/x.Q4_1.gguf", "/m/x.Q8_0.gguf"};
  setting.places.open_vino = "/r/openvino/bin/openvino-bench";
  setting.loss = {{"Q4_0", 0.2}};
  return setting;
}

const FootprintRow& RowOf(FootprintKind kind) {
  return *std::find_if(FootprintRows().begin(), FootprintRows().end(),
                       [&](const FootprintRow& row) { return row.kind == kind; });
}

bool Holds(const std::vector<std::string>& command, const std::string& word) {
  return std::find(command.begin(), command.end(), word) != command.end();
}

TEST(Footprint, MemoryIsHeldAgainstRivalsOfTheSameKvWidth) {
  const auto pairs = FootprintPairs(RowOf(FootprintKind::kMemory), ThreeFiles());
  ASSERT_EQ(pairs.size(), 3u);
  const char* own_kv[] = {"f16", "int8", "int8"};
  const char* their_kv[] = {"KV f16", "KV q8_0", "its own KV format"};
  for (size_t i = 0; i < pairs.size(); ++i) {
    EXPECT_TRUE(Holds(pairs[i].own.command, own_kv[i])) << pairs[i].name;
    ASSERT_FALSE(pairs[i].rivals.empty());
    for (const Contender& rival : pairs[i].rivals) {
      EXPECT_NE(rival.name.find(their_kv[i]), std::string::npos) << rival.name;
      EXPECT_EQ(FileType(rival.model) == "Q4_0", false) << "loses too much";
    }
  }
}

TEST(Footprint, EachRivalAlsoRunsWithWhatMayMakeItTakeLess) {
  const auto pairs = FootprintPairs(RowOf(FootprintKind::kMemory), ThreeFiles());
  const auto runs_with = [](const FootprintPair& pair, const std::vector<std::string>& words) {
    return std::count_if(pair.rivals.begin(), pair.rivals.end(), [&](const Contender& rival) {
      return std::all_of(words.begin(), words.end(), [&](const std::string& word) {
        return Holds(rival.command, word) && Holds(rival.screening, word);
      });
    });
  };
  for (size_t i : {0, 1}) {
    const auto each = static_cast<std::ptrdiff_t>(pairs[i].rivals.size() / 3);
    EXPECT_EQ(runs_with(pairs[i], {"-lm", "none"}), each) << pairs[i].name;
    EXPECT_EQ(runs_with(pairs[i], {"-ub", "128"}), each) << pairs[i].name;
  }
  EXPECT_EQ(runs_with(pairs[2], {"--grow"}), 2);
  VersusSetting ik = ThreeFiles();
  ik.places.programs = {"/r/ik/bin"};
  const auto words_of_ik = FootprintPairs(RowOf(FootprintKind::kMemory), ik);
  EXPECT_EQ(runs_with(words_of_ik[0], {"--no-mmap"}), 4) << "two files, flash attention on and off";
  EXPECT_EQ(runs_with(words_of_ik[0], {"-lm"}), 0);
}

TEST(Footprint, AServerIsTimedWithAndWithoutItsWarmUp) {
  const auto pairs = FootprintPairs(RowOf(FootprintKind::kReady), ThreeFiles());
  ASSERT_EQ(pairs.size(), 2u);
  ASSERT_EQ(pairs[0].rivals.size(), 4u);  // two files that count, twice
  for (const Contender& server : pairs[0].rivals) {
    EXPECT_EQ(server.command[0], "/r/native/bin/llama-server");
    EXPECT_EQ(Holds(server.command, "--no-warmup"),
              server.name.find("no warm-up") != std::string::npos);
  }
  EXPECT_EQ(pairs[1].rivals[0].command[0], "/r/openvino/bin/openvino-driver");
  EXPECT_EQ(pairs[0].own.command,
            (std::vector<std::string>{"/bin/kvrm", "serve", "-m", "/m/x.Q4_1.gguf"}));
}

TEST(Footprint, WithoutOpenVinoThereIsNoPairOfIt) {
  VersusSetting setting = ThreeFiles();
  setting.places.open_vino.clear();
  EXPECT_EQ(FootprintPairs(RowOf(FootprintKind::kMemory), setting).size(), 2u);
  EXPECT_EQ(FootprintPairs(RowOf(FootprintKind::kReady), setting).size(), 1u);
}

TEST(Footprint, AGoalHoldsBothTheShareAndOurOwnFigure) {
  const FootprintGoal ready{1, 0, 1.0, 0.5};
  EXPECT_STREQ(FootprintVerdict(ready, 0.4, 0.9), "goal");
  EXPECT_STREQ(FootprintVerdict(ready, 0.6, 0.9), "met");
  EXPECT_STREQ(FootprintVerdict(ready, 0.4, 1.1), "MISSED");
  EXPECT_STREQ(FootprintVerdict(ready, 1.1, 0.9), "MISSED");
  const FootprintGoal memory{0.85, 0.75, 0, 0};
  EXPECT_STREQ(FootprintVerdict(memory, 1e9, 0.74), "goal");
  EXPECT_STREQ(FootprintVerdict(memory, 1e9, 0.8), "met");
  EXPECT_STREQ(FootprintVerdict(memory, 1e9, 0.86), "MISSED");
  EXPECT_STREQ(FootprintVerdict({0.2, 0, 0, 0}, 1, 0.1), "met") << "a row without a goal";
}

TEST(Screening, LeavesOutWhatFailsAndKeepsTheBest) {
  std::vector<Contender> contenders(4);
  for (size_t i = 0; i < contenders.size(); ++i) {
    contenders[i].screening = {std::vector<std::string>{"30", "10", "fails", "20"}[i]};
  }
  const auto samples_of = [](const std::vector<Measured>& screened) {
    std::vector<double> samples;
    for (const Measured& one : screened) samples.push_back(one.samples.at(0));
    return samples;
  };
  std::vector<Measured> screened =
      Screen(contenders, [](Measured& one, const std::vector<std::string>& command) -> Status {
        if (command[0] == "fails") return InvalidInput("it fails");
        one.samples.push_back(std::stod(command[0]));
        return Ok();
      });
  EXPECT_EQ(samples_of(screened), (std::vector<double>{30, 10, 20}));
  std::vector<Measured> least = screened;
  KeepFinalists(Best::kMost, screened);
  EXPECT_EQ(samples_of(screened), (std::vector<double>{30, 20}));
  KeepFinalists(Best::kLeast, least);
  EXPECT_EQ(samples_of(least), (std::vector<double>{10, 20}));
}

TEST(RunMeasuredProgram, TellsTheProgramsOwnPeakAndNotItsParents) {
  constexpr size_t kMib = size_t{1} << 20;
  {
    const std::vector<char> mine(300 * kMib, 'x');
  }  // a peak of ours that is over
  const auto small = RunMeasuredProgram({"/bin/sh", "-c", "echo done"});
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(small->output, "done\n");
  EXPECT_GT(small->peak_resident_bytes, 0u);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(small->peak_resident_bytes, 250 * kMib);
#endif
}

boost::json::value Figure(double median) {
  return {{"setting", "s"}, {"command", "c"}, {"median", median}, {"samples", {median}}};
}

TEST(VersusText, RowsInWhichLessIsBetterHaveATableOfTheirOwn) {
  const boost::json::array sheet = {{{"key", "ready"},
                                     {"row", "exec to ready"},
                                     {"unit", "s"},
                                     {"date", "2026"},
                                     {"pairs",
                                      {{{"rivals", "llama.cpp family"},
                                        {"kvrm", Figure(0.25)},
                                        {"best", Figure(0.5)},
                                        {"share", 0.5},
                                        {"at_most", 1},
                                        {"goal", 0},
                                        {"own_at_most", 1},
                                        {"own_goal", 0.5},
                                        {"verdict", "goal"}}}}}};
  const std::string text = VersusText(sheet, {});
  EXPECT_NE(text.find("| exec to ready | 0.25 s (0.25..0.25) | llama.cpp family | 0.50 s"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("0.50x | 1.00x, 1.0 s / 0.5 s: goal"), std::string::npos) << text;
  EXPECT_EQ(text.find("kvrm t/s"), std::string::npos) << "no table without rows";
}

TEST(VersusPlot, EachRatioIsABarAsLongAsItIsLargeWithItsGoals) {
  const auto family = [](const char* name, double ratio) {
    return boost::json::value{{"family", name}, {"ratio", ratio}, {"at_least", 1.5}, {"goal", 0}};
  };
  const boost::json::object row{
      {"row", "decode <8>"}, {"families", boost::json::array{family("one", 4), family("two", 2)}}};
  const boost::json::object less{{"row", "ready"}, {"pairs", boost::json::array()}};
  const std::string svg = VersusPlot({row, less});
  EXPECT_NE(svg.find("decode &lt;8&gt;"), std::string::npos);
  EXPECT_NE(svg.find("width=\"420.0\""), std::string::npos) << "the longest bar fills the plot";
  EXPECT_NE(svg.find("width=\"210.0\""), std::string::npos);
  EXPECT_NE(svg.find(">4.00x<"), std::string::npos);
  EXPECT_NE(svg.find("stroke-dasharray=\"none\""), std::string::npos) << "at least";
  EXPECT_EQ(svg.find("stroke-dasharray=\"3,2\""), std::string::npos) << "no goal, no tick";
  EXPECT_EQ(svg.find("ready"), std::string::npos);
}

}  // namespace
}  // namespace kvrm::cli
