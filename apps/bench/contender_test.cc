#include "bench/contender.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "options/option_values.h"

namespace kvrm::cli {
namespace {

namespace fs = std::filesystem;

std::string ValueAfter(const std::vector<std::string>& command, const std::string& flag) {
  const auto found = std::find(command.begin(), command.end(), flag);
  return found == command.end() || found + 1 == command.end() ? "" : *(found + 1);
}

TEST(Contender, FiguresAreReadFromEachToolsOwnOutput) {
  EXPECT_EQ(*ParseTokensPerSecond(OutputKind::kKvrm,
                                  R"({"tokens_per_s": {"median": 1.5, "samples": [1]}})"),
            1.5);
  EXPECT_EQ(*ParseTokensPerSecond(OutputKind::kLlamaBench,
                                  R"([{"avg_ts": 9, "samples_ts": [ 10.5, 1.0, 12.5 ]}])"),
            10.5);
  EXPECT_EQ(*ParseTokensPerSecond(OutputKind::kLlamaBatchedBench,
                                  "\nnote\n{\"pl\": 8, \"speed_tg\": 175.25}\n"),
            175.25);
  EXPECT_EQ(
      *ParseTokensPerSecond(
          OutputKind::kBatchedTable,
          "note\n|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s "
          "|      T s |    S t/s |\n|---|---|---|---|---|---|---|---|---|---|\n|   512 |    "
          "128 |    8 |   5120 |    3.900 |  1050.26 |    5.120 |   200.00 |    9.020 |   "
          "567.63 |\n\n"),
      200);
  EXPECT_EQ(*ParseTokensPerSecond(OutputKind::kOpenVinoBench, R"({"tokens_per_s": 56.5})"), 56.5);
}

TEST(Contender, OutputOfAnotherFormIsAnError) {
  for (OutputKind kind :
       {OutputKind::kKvrm, OutputKind::kLlamaBench, OutputKind::kLlamaBatchedBench,
        OutputKind::kBatchedTable, OutputKind::kOpenVinoBench}) {
    for (const char* text : {"", "[]", "{}", "null", "| a | b |", R"([{"samples_ts": []}])"}) {
      EXPECT_FALSE(ParseTokensPerSecond(kind, text).ok()) << static_cast<int>(kind) << text;
    }
  }
}

const ComparisonRow& RowOf(const std::string& key) {
  return *std::find_if(ComparisonRows().begin(), ComparisonRows().end(),
                       [&](const ComparisonRow& row) { return row.key == key; });
}

bool Holds(const std::vector<std::string>& command, const char* word) {
  return std::find(command.begin(), command.end(), word) != command.end();
}

TEST(Contender, EverySettingOfThePeerIsTriedOnTheSameWork) {
  RivalPlaces places;
  places.programs = {"/r/native/bin", "/r/no-fp16/bin"};
  places.models = {"/m/x.Q4_0.gguf", "/m/x.F16.gguf"};
  for (const ComparisonRow& row : ComparisonRows()) {
    const auto contenders = RivalContenders(row, places, 2);
    EXPECT_EQ(contenders.size(), 12u) << row.name;
    for (const Contender& contender : contenders) {
      EXPECT_EQ(ValueAfter(contender.command, "-t"), "2");
      // Each sequence has its own prompt, but where that would take minutes.
      EXPECT_EQ(Holds(contender.command, "-pps"), row.key == "32x2048");
      EXPECT_EQ(Holds(contender.screening, "-pps"), row.num_seqs > 1);
    }
  }
  const auto lone = RivalContenders(RowOf("1x512"), places, 2);
  EXPECT_EQ(lone[1].name, "Q4_0, fa on, KV q8_0 (native)");
  EXPECT_TRUE(lone[1].kv_q8_0);
  EXPECT_EQ(ValueAfter(lone[1].command, "-ctv"), "q8_0");
  EXPECT_EQ(ValueAfter(lone[1].command, "-fa"), "on");
  EXPECT_EQ(ValueAfter(lone[1].command, "-d"), "512");
  EXPECT_EQ(ValueAfter(lone[2].command, "-ctv"), "f16");
  const Contender alone = WithThreads(lone[1], 1);
  EXPECT_EQ(ValueAfter(alone.command, "-t"), "1");
  EXPECT_EQ(ValueAfter(alone.screening, "-t"), "1");
  EXPECT_EQ(alone.name, "Q4_0, fa on, KV q8_0 (native), 1 thread");
}

TEST(Contender, IkIsCalledInItsOwnWords) {
  RivalPlaces places;
  places.programs = {"/r/ik/bin"};
  places.models = {"/m/x.Q4_1.gguf"};
  const auto lone = RivalContenders(RowOf("1x512"), places, 2);
  ASSERT_EQ(lone.size(), 3u);
  EXPECT_EQ(ValueAfter(lone[0].command, "-gp"), "512,128");
  EXPECT_EQ(ValueAfter(lone[0].command, "-fa"), "1");
  EXPECT_EQ(ValueAfter(lone[2].command, "-fa"), "0");
  EXPECT_FALSE(Holds(lone[0].command, "-d"));
  const auto batched = RivalContenders(RowOf("8x512"), places, 2);
  EXPECT_EQ(batched[0].kind, OutputKind::kBatchedTable);
  EXPECT_FALSE(Holds(batched[0].command, "-fa"));
  EXPECT_TRUE(Holds(batched[2].command, "-no-fa"));
  EXPECT_TRUE(Holds(batched[0].command, "-rtr"));
  EXPECT_EQ(batched[0].command[0], "/bin/sh") << "its table goes to standard error";
}

TEST(Contender, OpenVinoReadsTheFileThatItIsGiven) {
  RivalPlaces places;
  places.models = {"/m/x.Q4_0.gguf", "/m/x.Q4_1.gguf", "/m/x.Q8_0.gguf"};
  places.open_vino = "/r/openvino/bin/openvino-bench";
  const auto decode = RivalContenders(RowOf("8x512"), places, 2);
  ASSERT_EQ(decode.size(), 2u);
  EXPECT_EQ(decode[0].family, Family::kOpenVino);
  EXPECT_EQ(ValueAfter(decode[0].command, "-np"), "8");
  EXPECT_EQ(ValueAfter(decode[0].command, "-d"), "512");
  EXPECT_EQ(ValueAfter(decode[1].command, "-m"), "/m/x.Q8_0.gguf");
  const auto prefill = RivalContenders(RowOf("prefill512"), places, 2);
  EXPECT_EQ(ValueAfter(prefill[0].command, "-p"), "512");
}

TEST(Contender, LongRowsAreScreenedAsOnesBeforeThem) {
  for (size_t i = 0; i < ComparisonRows().size(); ++i) {
    const std::string& other = ComparisonRows()[i].screened_as;
    if (other.empty()) continue;
    EXPECT_LT(&RowOf(other), &ComparisonRows()[i]);
    EXPECT_FALSE(ComparisonRows()[i].in_default);
  }
}

TEST(Contender, TheBatchedPeerHasRoomForEverySequence) {
  RivalPlaces places;
  places.programs = {"/r/bin"};
  places.models = {"/m/x.Q4_0.gguf"};
  const auto command = RivalContenders(RowOf("8x512"), places, 2)[0].command;
  EXPECT_EQ(ValueAfter(command, "-npl"), "8");
  EXPECT_EQ(ValueAfter(command, "-npp"), "512");
  EXPECT_EQ(ValueAfter(command, "-ntg"), "128");
  EXPECT_EQ(ValueAfter(command, "-c"), "5120");
}

TEST(Contender, OurOwnCommandIsOneThatTheOptionTableTakes) {
  for (const ComparisonRow& row : ComparisonRows()) {
    for (const Contender& own : OwnContenders(row, "/bin/kvrm", "/m/x.gguf", 2)) {
      const CommandBit bit = row.prefill ? kBenchPrefill : kBenchDecode;
      const auto values = ParseOptions(bit, {own.command.begin() + 3, own.command.end()},
                                       [](const std::string&) -> const char* { return nullptr; });
      ASSERT_TRUE(values.ok()) << values.error().message;
      EXPECT_TRUE(values->Flag("json"));
      EXPECT_TRUE(values->positionals().empty());
      if (row.prefill) {
        EXPECT_EQ(values->Int("n-prompt"), row.tokens);
      } else {
        EXPECT_EQ(values->Int("slots"), row.num_seqs);
        EXPECT_EQ(values->Int("depth"), row.depth);
        EXPECT_EQ(values->Int("n-gen"), row.tokens);
      }
    }
  }
}

TEST(Contender, RivalsAreFoundInEachBuildFolderAndModelsBesideTheModel) {
  const fs::path dir = fs::path(::testing::TempDir()) / "kvrm_rivals";
  fs::remove_all(dir);
  EXPECT_NE(FindRivals(dir.string(), "x.gguf").error().message.find("`tools/rivals`"),
            std::string::npos);
  for (const char* build : {"native", "no-fp16"}) {
    fs::create_directories(dir / build / "bin");
    for (const char* program : {"llama-bench", "llama-batched-bench"}) {
      std::ofstream(dir / build / "bin" / program) << "x";
    }
  }
  for (const char* file : {"m.Q4_1.gguf", "m.Q8_0.gguf", "n.Q4_0.gguf"}) {
    std::ofstream(dir / file) << "x";
  }
  const auto places = FindRivals(dir.string(), (dir / "m.Q4_1.gguf").string());
  ASSERT_TRUE(places.ok());
  EXPECT_EQ(places->programs, (std::vector<std::string>{(dir / "native/bin").string(),
                                                        (dir / "no-fp16/bin").string()}));
  EXPECT_EQ(places->models, (std::vector<std::string>{(dir / "m.Q4_1.gguf").string(),
                                                      (dir / "m.Q8_0.gguf").string()}));
  fs::remove_all(dir);
}

}  // namespace
}  // namespace kvrm::cli
