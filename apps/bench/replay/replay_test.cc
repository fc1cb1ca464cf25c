// The load generator's other end in this process, over a random model.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <map>

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

LoadRun Replay(LoadBackend& backend, const std::string& toml) {
  const auto workload = ParseWorkload(toml, "test.toml", {});
  KVRM_CHECK(workload.ok(), workload.ok() ? "" : workload.error().message.c_str());
  auto run =
      RunLoad(*workload, std::vector<Trace>(workload->sources.size()), backend, PromptWords(), {});
  KVRM_CHECK(run.ok(), run.ok() ? "" : run.error().message.c_str());
  return std::move(run).value();
}
LoadRun Replay(const Session& session, const std::string& toml) {
  EngineBackend backend(session, 0);
  return Replay(backend, toml);
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

// Keeps what was answered to each question.
class AnswerBook final : public LoadBackend {
 public:
  explicit AnswerBook(LoadBackend& inner) : inner_(inner) {}
  uint32_t context_tokens() const override { return inner_.context_tokens(); }
  std::shared_ptr<Exchange> Ask(boost::asio::io_context& io, const Question& question,
                                RequestRecord record, Exchange::OnText on_text,
                                Exchange::OnEnd on_end) override {
    auto exchange =
        inner_.Ask(io, question, std::move(record), std::move(on_text), std::move(on_end));
    asked_[exchange.get()] = question.text;
    return exchange;
  }
  void Ended(Exchange& exchange) override {
    answers[asked_.at(&exchange)] = exchange.text();
    inner_.Ended(exchange);
  }
  std::map<std::string, std::string> answers;

 private:
  LoadBackend& inner_;
  std::map<const Exchange*, std::string> asked_;
};

// The figures come from the same code as those of a server: what is compared is what each request
// was answered, mode by mode.
TEST(Modes, UnderTheSameWorkloadEachRequestIsAnsweredTheSame) {
  std::map<std::string, std::string> first;
  for (const ModeTraits& mode : AllModes()) {
    const Session session = OpenIn(mode.mode);
    EngineBackend engine(session, 0);
    AnswerBook book(engine);
    const LoadRun run = Replay(book, kTwelve);
    ASSERT_EQ(run.records.size(), 12u) << mode.name;
    for (const RequestRecord& record : run.records) {
      EXPECT_EQ(record.outcome, Outcome::kDone) << mode.name << ": " << record.detail;
      EXPECT_EQ(record.output_tokens, 9u) << mode.name;
    }
    if (first.empty()) first = book.answers;
    EXPECT_EQ(first.size(), 12u);
    EXPECT_EQ(book.answers, first) << mode.name;
  }
}

TEST(Modes, GapsOverTheBudgetAreToldWithTheirCauses) {
  ModeRun run;
  run.name = "kvrm";
  EXPECT_NE(ModesText({run}).find("kvrm: no budget for gaps\n"), std::string::npos);
  run.max_itl_us = 50'000;
  run.gaps.gaps = 900;
  EXPECT_NE(ModesText({run}).find("kvrm: 0 of 900 gaps over the budget of 50.0 ms\n"),
            std::string::npos);
  const auto set = [&](GapCause cause, uint64_t over, int64_t excess_us) {
    run.gaps.over_budget[static_cast<uint32_t>(cause)] = over;
    run.gaps.excess_us[static_cast<uint32_t>(cause)] = excess_us;
  };
  set(GapCause::kDecode, 2, 3200);
  set(GapCause::kStolen, 1, 9000);
  EXPECT_NE(ModesText({run}).find("kvrm: 3 of 900 gaps over the budget of 50.0 ms: decode 2 "
                                  "(3.2 ms over), stolen 1 (9.0 ms over)\n"),
            std::string::npos)
      << ModesText({run});
  const boost::json::object gaps = ModeJson(run).at("gaps").as_object();
  EXPECT_EQ(gaps.at("over_budget").at("stolen"), 1);
  EXPECT_EQ(gaps.at("excess_us").at("decode"), 3200);
  EXPECT_EQ(gaps.at("over_budget").at("prefill"), 0);
}

TEST(Modes, TheTableHoldsEachRunAndWhatWasRefused) {
  ModeRun first, second, refused;
  first.name = "kvrm";
  first.report.figures.window_tokens_per_s = 200;
  second.name = "static-full + strict";
  second.report.figures.window_tokens_per_s = 50;
  first.control_share = 0.0012;
  refused.name = "static-live";
  refused.refused = "slots x ctx: too much";
  const std::string text = ModesText({first, second, refused});
  EXPECT_NE(text.find("static-full + strict"), std::string::npos);
  EXPECT_NE(text.find("0.250"), std::string::npos) << text;
  EXPECT_NE(text.find("static-live: slots x ctx: too much"), std::string::npos);
  EXPECT_EQ(ModeJson(refused).at("refused").as_string(), "slots x ctx: too much");
  EXPECT_NE(text.find("(plan, edit, commit, move): met\n"), std::string::npos) << text;
  second.control_share = 0.005;
  EXPECT_NE(ModesText({first, second}).find("missed by static-full + strict (0.50 %)"),
            std::string::npos);
  EXPECT_EQ(ModeJson(first).at("control_goal_met"), true);
  EXPECT_EQ(ModeJson(second).at("control_goal_met"), false);
}

}  // namespace
}  // namespace kvrm::cli
