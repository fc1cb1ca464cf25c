// The load generator's other end in this process, over a random model.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "bench/load/figures.h"
#include "bench/replay/engine_backend.h"
#include "bench/replay/mode_run.h"
#include "model/random_model.h"

namespace kvrm::cli {
namespace {

// Written once; with the vocabulary that random models have.
const std::string& ModelPath() {
  static const std::string path = [] {
    RandomModelSpec spec;
    spec.hidden = 64;
    spec.heads = 4;
    spec.kv_heads = 2;
    spec.head_dim = 16;
    spec.ffn = 96;
    spec.context = 256;
    const std::vector<std::byte> bytes = WriteRandomModel(spec);
    std::string file = ::testing::TempDir() + "kvrm_replay_test.gguf";
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return file;
  }();
  return path;
}

Session OpenIn(Mode mode) {
  RuntimeOptions options;
  options.model_path = ModelPath();
  options.mode = mode;
  options.prefix_cache = !TraitsOf(mode).slot_runs;
  options.kv_bytes = 8u << 20;
  options.max_slots = 4;
  options.num_threads = 1;
  const auto values =
      ParseOptions(kBenchReplay, {"any.toml"}, [](const std::string&) { return nullptr; });
  KVRM_CHECK(values.ok(), "a workload is all that `bench replay` has to be told");
  auto session = OpenSession(*values, options, ChatUse::kNone);
  KVRM_CHECK(session.ok(), session.ok() ? "" : session.error().message.c_str());
  return std::move(session).value();
}

LoadRun Replay(const Session& session, const std::string& toml) {
  const auto workload = ParseWorkload(toml, "test.toml", {});
  KVRM_CHECK(workload.ok(), workload.ok() ? "" : workload.error().message.c_str());
  EngineBackend backend(session, 0);
  auto run =
      RunLoad(*workload, std::vector<Trace>(workload->sources.size()), backend, PromptWords(), {});
  KVRM_CHECK(run.ok(), run.ok() ? "" : run.error().message.c_str());
  return std::move(run).value();
}

constexpr const char* kTwelve =
    "api = \"completions\"\nduration-s = 60\nrequests = 12\n[all]\nclients = 6\n"
    "prompt-tokens = \"uniform 3 10\"\noutput-tokens = 9\n";

TEST(EngineBackend, AnswersEachRequestWithAsManyTokensAsAsked) {
  const Session session = OpenIn(Mode::kKvrm);
  const LoadRun run = Replay(session, kTwelve);
  ASSERT_EQ(run.records.size(), 12u);
  for (const RequestRecord& record : run.records) {
    EXPECT_EQ(record.outcome, Outcome::kDone) << record.detail;
    EXPECT_EQ(record.output_tokens, 9u);
    EXPECT_GT(record.prompt_tokens.value_or(0), 0u);
    EXPECT_EQ(record.finish_reason, "length");
    EXPECT_LE(record.intended_us, record.sent_us);
    EXPECT_GE(record.end_us, record.sent_us);
    for (size_t i = 1; i < record.events.size(); ++i) {
      EXPECT_LE(record.events[i - 1].arrived_us, record.events[i].arrived_us);
    }
  }
}

TEST(EngineBackend, ARequestThatIsGivenUpLeavesTheEngine) {
  const Session session = OpenIn(Mode::kKvrm);
  const LoadRun run = Replay(session,
                             "api = \"completions\"\nduration-s = 60\nrequests = 4\n[all]\n"
                             "clients = 2\nprompt-tokens = 5\noutput-tokens = 200\n"
                             "cancel-share = 1\ncancel-after = 3\n");
  ASSERT_EQ(run.records.size(), 4u);
  for (const RequestRecord& record : run.records) {
    EXPECT_EQ(record.outcome, Outcome::kCancelled) << record.detail;
    EXPECT_EQ(record.events.size(), 3u);
  }
  // The engine may have been faster than the cancel.
  const EngineMetrics metrics = session.runtime->engine->Metrics();
  EXPECT_EQ(metrics.requests_cancelled + metrics.requests_finished, 4u);
  EXPECT_EQ(metrics.running + metrics.queued, 0u);
}

TEST(EngineBackend, LengthsAreCutToTheContextOfTheSession) {
  const Session session = OpenIn(Mode::kKvrm);
  const LoadRun run =
      Replay(session,
             "api = \"completions\"\nduration-s = 60\nrequests = 1\ncontext = 4096\n"
             "[all]\nprompt-tokens = 3000\noutput-tokens = 2\n");
  ASSERT_EQ(run.records.size(), 1u);
  EXPECT_GT(run.records[0].cut_tokens, 0u);
  EXPECT_LE(run.records[0].asked_prompt_tokens + run.records[0].asked_output_tokens,
            session.runtime->ctx);
}

// The figures come from the same code as those of a server: what is compared are the tokens that
// each request got, mode by mode.
TEST(Modes, UnderTheSameWorkloadEachRequestGetsTheSameTokens) {
  for (const ModeTraits& mode : AllModes()) {
    const Session session = OpenIn(mode.mode);
    const LoadRun run = Replay(session, kTwelve);
    ASSERT_EQ(run.records.size(), 12u) << mode.name;
    for (const RequestRecord& record : run.records) {
      EXPECT_EQ(record.outcome, Outcome::kDone) << mode.name << ": " << record.detail;
      EXPECT_EQ(record.output_tokens, 9u) << mode.name;
    }
  }
}

TEST(Modes, TheTableHoldsEachRunAndWhatWasRefused) {
  ModeRun first, second, refused;
  first.name = "kvrm";
  first.report.figures.window_tokens_per_s = 200;
  second.name = "static-full + strict";
  second.report.figures.window_tokens_per_s = 50;
  refused.name = "static-live";
  refused.refused = "slots x ctx: too much";
  const std::string text = ModesText({first, second, refused});
  EXPECT_NE(text.find("static-full + strict"), std::string::npos);
  EXPECT_NE(text.find("0.250"), std::string::npos) << text;
  EXPECT_NE(text.find("static-live: slots x ctx: too much"), std::string::npos);
  EXPECT_EQ(ModeJson(refused).at("refused").as_string(), "slots x ctx: too much");
}

}  // namespace
}  // namespace kvrm::cli
