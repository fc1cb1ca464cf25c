// A rival behind pipes, played by a shell script: what it says is known, and so is what comes of
// it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "bench/load/figures.h"
#include "bench/load/load_run.h"
#include "bench/tail/engine_line.h"
#include "bench/tail/piped_engine.h"
#include "bench/tail/rival_places.h"

namespace kvrm::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

std::vector<TokenId> LettersOf(const std::string& text) { return {text.begin(), text.end()}; }

Result<std::unique_ptr<PipedEngine>> Engine(const std::string& script) {
  return PipedEngine::Start({"/bin/sh", "-c", script}, ::testing::TempDir() + "kvrm_piped_test.log",
                            30, 1000, LettersOf);
}

// One client that asks `requests` times.
LoadRun Ask(PipedEngine& engine, int requests, const std::string& more = "",
            const char* api = "completions") {
  const auto workload =
      ParseWorkload("api = \"" + std::string(api) +
                        "\"\nduration-s = 60\nrequests = " + std::to_string(requests) +
                        "\n[all]\nprompt-tokens = 2\noutput-tokens = 4\n" + more,
                    "test", {});
  KVRM_CHECK(workload.ok(), workload.ok() ? "" : workload.error().message.c_str());
  auto run = RunLoad(*workload, {{}}, engine, PromptWords(std::vector<std::string_view>{"ab"}), {});
  KVRM_CHECK(run.ok(), run.ok() ? "" : run.error().message.c_str());
  return std::move(run).value();
}

constexpr const char* kReady = "echo '{\"ready\":\"mock 1\"}'; ";

TEST(PipedEngine, TokensHaveTheTimesThatTheEngineGivesThem) {
  const std::string heard = ::testing::TempDir() + "kvrm_piped_test.heard";
  auto engine = Engine(std::string(kReady) + "read line; echo \"$line\" > '" + heard +
                       "'; echo '{\"us\":1000000,\"out\":[[1,1,\"\"]]}'"
                       "; echo '{\"us\":1020000,\"out\":[[7,1,\"\"],[1,2,\"\"]]}'"
                       "; echo '{\"us\":1070000,\"out\":[[1,1,\"length\"]]}'; read line");
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  EXPECT_EQ((*engine)->version(), "mock 1");
  const LoadRun run = Ask(**engine, 1);
  ASSERT_EQ(run.records.size(), 1u);
  const RequestRecord& record = run.records[0];
  EXPECT_EQ(record.outcome, Outcome::kDone) << record.detail;
  ASSERT_EQ(record.events.size(), 3u);
  EXPECT_EQ(record.events[1].arrived_us - record.events[0].arrived_us, 20'000);
  EXPECT_EQ(record.events[2].arrived_us - record.events[1].arrived_us, 50'000);
  EXPECT_EQ(record.tokens(), 4u);
  EXPECT_EQ(record.prompt_tokens, 5u);  // "ab ab"
  EXPECT_EQ(record.finish_reason, "length");
  std::ifstream file(heard);
  const std::string line(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(line, HasSubstr("\"tokens\":[97,98,32,97,98]"));
  EXPECT_THAT(line, HasSubstr("\"max_new\":4"));
}

TEST(PipedEngine, ARequestThatIsGivenUpIsStopped) {
  const std::string heard = ::testing::TempDir() + "kvrm_piped_test.stop";
  std::filesystem::remove(heard);
  auto engine = Engine(std::string(kReady) +
                       "read line; echo '{\"us\":1,\"out\":[[1,1,\"\"]]}'; "
                       "echo '{\"us\":2,\"out\":[[1,1,\"\"]]}'; read line; echo \"$line\" > '" +
                       heard + ".part' && mv '" + heard + ".part' '" + heard + "'; read line");
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const LoadRun run = Ask(**engine, 1, "cancel-share = 1\ncancel-after = 2\n");
  ASSERT_EQ(run.records.size(), 1u);
  EXPECT_EQ(run.records[0].outcome, Outcome::kCancelled);
  EXPECT_EQ(run.records[0].events.size(), 2u);
  std::string line;
  while (line.empty()) std::getline(std::ifstream(heard), line);  // it was told, so this ends
  EXPECT_EQ(line, "{\"stop\":1}");
}

TEST(PipedEngine, WhatAnEndedEngineOwesIsAnError) {
  auto engine =
      Engine(std::string(kReady) + "read line; echo '{\"us\":1,\"out\":[[1,1,\"\"]]}'; exit 1");
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const LoadRun run = Ask(**engine, 2);
  ASSERT_EQ(run.records.size(), 2u);
  EXPECT_EQ(run.records[0].outcome, Outcome::kReset);
  EXPECT_EQ(run.records[0].events.size(), 1u);
  EXPECT_EQ(run.records[1].outcome, Outcome::kConnect);
}

TEST(PipedEngine, ALineThatIsNoneEndsIt) {
  auto engine = Engine(std::string(kReady) + "read line; echo 'Segmentation fault'; read line");
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const LoadRun run = Ask(**engine, 1);
  EXPECT_EQ(run.records.at(0).outcome, Outcome::kReset);
  EXPECT_THAT(run.records.at(0).detail, HasSubstr("Segmentation fault"));
}

TEST(PipedEngine, ARefusalOfTheEngineIsItsOwnError) {
  auto engine = Engine(std::string(kReady) +
                       "read line; echo '{\"us\":1,\"out\":[[1,0,\"ignored\"]]}'; read line");
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const LoadRun run = Ask(**engine, 1);
  EXPECT_EQ(run.records.at(0).outcome, Outcome::kStreamError);
  EXPECT_EQ(run.records.at(0).detail, "ignored");
}

TEST(PipedEngine, HasNoChatTemplate) {
  auto engine = Engine(std::string(kReady) + "read line");
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const LoadRun run = Ask(**engine, 1, "", "chat");
  EXPECT_EQ(run.records.at(0).outcome, Outcome::kMalformed);
}

TEST(PipedEngine, SaysWhyItIsNotThere) {
  const auto engine = Engine("echo 'no such model' >&2; exit 3");
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(engine.error().message, HasSubstr("its last line: no such model"));
}

TEST(EngineLine, HoldsAStepOrAVersion) {
  const auto step = ParseEngineLine(R"({"us":17,"out":[[3,1,""],[4,2,"stop"]]})");
  ASSERT_TRUE(step.ok());
  EXPECT_EQ(step->us, 17);
  ASSERT_EQ(step->outputs.size(), 2u);
  EXPECT_EQ(step->outputs[1].id, 4u);
  EXPECT_EQ(step->outputs[1].tokens, 2u);
  EXPECT_EQ(step->outputs[1].end, "stop");
  EXPECT_EQ(ParseEngineLine(R"({"ready":"x 1"})")->ready, "x 1");
}

TEST(EngineLine, AnythingElseIsRefused) {
  for (const char* line :
       {"", "{", "[]", "7", R"({"us":1})", R"({"out":[]})", R"({"us":"1","out":[]})",
        R"({"us":1,"out":[[1,2]]})", R"({"us":1,"out":[[-1,1,""]]})",
        R"({"us":1,"out":[[1,-1,""]]})", R"({"us":1,"out":[[1,1,7]]})", R"({"ready":""})",
        R"({"ready":1})", R"({"us":1,"out":{}})", R"({"us":1e30,"out":[]})"}) {
    EXPECT_FALSE(ParseEngineLine(line).ok()) << line;
  }
}

// ---- where they lie

std::string EmptyFolder() {
  const std::string dir = ::testing::TempDir() + "kvrm_no_rivals";
  std::filesystem::create_directories(dir);
  return dir;
}

TEST(TailRivals, OneThatIsAskedForByNameMustBeThere) {
  for (const char* name : {"openvino", "vllm", "llama"}) {
    TailSetup setup;
    setup.model = "model.gguf";
    const Status found = FindTailRivals(name, EmptyFolder(), /*must=*/true, setup);
    ASSERT_FALSE(found.ok()) << name;
    EXPECT_THAT(found.error().message, HasSubstr(EmptyFolder())) << name;
  }
  TailSetup setup;
  const Status found = FindTailRivals("openvino,lama", EmptyFolder(), /*must=*/false, setup);
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.error().message, HasSubstr("'lama': takes llama, openvino, vllm"));
}

TEST(TailRivals, OneThatNobodyAskedForMayBeAbsent) {
  TailSetup setup;
  ASSERT_TRUE(FindTailRivals("openvino", EmptyFolder(), /*must=*/false, setup).ok());
  for (const TailServer& server : TailServers(setup)) {
    EXPECT_NE(server.side, TailSide::kOpenVino);
    EXPECT_NE(server.side, TailSide::kLlamaDefault);
  }
}

TEST(TailRivals, VllmIsGivenTheFolderThatWasMadeFromAFileAndOthersTheFile) {
  const std::string dir = EmptyFolder() + "_but_vllm_and_its_models";
  const std::string folder = dir + "/vllm/models/Some-Model.Q4_1";
  std::filesystem::create_directories(dir + "/vllm/bin");
  std::filesystem::create_directories(folder);
  std::ofstream(dir + "/vllm/bin/vllm") << "#!/bin/sh\n";
  std::ofstream(folder + "/config.json") << "{}";
  TailSetup setup;
  setup.model = "/models/Some-Model.Q4_1.gguf";
  ASSERT_TRUE(FindTailRivals("vllm", dir, /*must=*/true, setup).ok());
  for (const TailServer& server : TailServers(setup)) {
    const std::string& given = server.side == TailSide::kVllm ? folder : setup.model;
    EXPECT_THAT(server.command, Contains(given)) << server.name;
  }
  setup.model = "/models/Another.gguf";
  EXPECT_FALSE(FindTailRivals("vllm", dir, /*must=*/true, setup).ok());
}

TEST(TailRivals, VllmIsGivenAFolder) {
  const std::string dir = EmptyFolder() + "_but_vllm";
  std::filesystem::create_directories(dir + "/vllm/bin");
  std::ofstream(dir + "/vllm/bin/vllm") << "#!/bin/sh\n";
  TailSetup setup;
  setup.model = "model.gguf";
  const Status file = FindTailRivals("vllm", dir, /*must=*/true, setup);
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.error().message, HasSubstr("folder"));
  setup.model = dir;
  ASSERT_TRUE(FindTailRivals("vllm", dir, /*must=*/true, setup).ok());
  EXPECT_EQ(setup.vllm, dir + "/vllm/bin/vllm");
  EXPECT_EQ(setup.vllm_model, dir);
  const Status llama = FindTailRivals("llama", dir, /*must=*/true, setup);
  ASSERT_FALSE(llama.ok());
  EXPECT_THAT(llama.error().message, HasSubstr("is a folder"));
}

}  // namespace
}  // namespace kvrm::cli
