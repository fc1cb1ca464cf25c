// A batch file over the copying model: what is answered, what a bad line costs, and that a run
// which was cut off goes on.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <tuple>

#include "batch/batch_run.h"
#include "server/testing/test_server.h"

namespace kvrm::cli {
namespace {

namespace json = boost::json;
using testing::Gate;
using testing::MakeByteTokenizer;
using testing::MakeChatTemplate;
using testing::MakeCopyEngine;
using testing::TestOptions;

class Batch : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("kvrm_batch_" +
               std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const char* name) const { return (folder_ / name).string(); }
  void Write(const char* name, const std::string& text) const {
    std::ofstream(Path(name), std::ios::binary) << text;
  }
  std::string Text(const char* name) const {
    std::ostringstream text;
    text << std::ifstream(Path(name), std::ios::binary).rdbuf();
    return text.str();
  }
  std::vector<json::object> Answers() const {
    std::vector<json::object> answers;
    std::istringstream lines(Text("out.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      answers.push_back(json::parse(line).as_object());
    }
    return answers;
  }
  // By custom_id; of lines without one by id.
  std::map<std::string, json::object> ById() const {
    std::map<std::string, json::object> by_id;
    for (const json::object& answer : Answers()) {
      const json::value& id = answer.at(answer.at("custom_id").is_null() ? "id" : "custom_id");
      EXPECT_TRUE(by_id.emplace(std::string(id.as_string()), answer).second) << id;
    }
    return by_id;
  }

  // One run; stops once `stop_after` answers are written, if that is not 0.
  BatchCounts Run(const TestOptions& options = {.slots = 4}, uint32_t window = 6,
                  size_t stop_after = 0) {
    SystemClock clock;
    Gate gate;
    const auto tokenizer = MakeByteTokenizer();
    const auto chat_template = MakeChatTemplate();
    const auto engine = MakeCopyEngine(options, clock, gate);
    auto input = BatchInput::Open(Path("in.jsonl"));
    auto output = BatchOutput::Open(Path("out.jsonl"), Path("in.jsonl"));
    EXPECT_TRUE(input.ok() && output.ok());
    if (!input.ok() || !output.ok()) return {};
    const auto enough = [&] {
      const std::string text = Text("out.jsonl");
      return stop_after > 0 &&
             static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) >= stop_after;
    };
    BatchRun run(*engine, *tokenizer, chat_template.get(), "copy-model", {}, window);
    progress_.clear();
    const auto counts = run.Run(*input, *output, enough, [this](double share) {
      const std::string text = Text("out.jsonl");
      progress_.emplace_back(share, std::count(text.begin(), text.end(), '\n'));
    });
    EXPECT_TRUE(counts.ok()) << (counts.ok() ? "" : counts.error().message);
    EXPECT_EQ(engine->Metrics().running + engine->Metrics().queued, 0u);
    return counts.ok() ? *counts : BatchCounts{};
  }

  std::filesystem::path folder_;
  std::vector<std::pair<double, int64_t>> progress_;  // of the last run: share, answers in the file
};

std::string Line(const std::string& custom_id, const std::string& url, const std::string& body) {
  return R"({"custom_id":")" + custom_id + R"(","method":"POST","url":")" + url + R"(","body":)" +
         body + "}\n";
}
std::string TextLine(const std::string& custom_id, const std::string& prompt,
                     const std::string& fields = "") {
  return Line(custom_id, "/v1/completions",
              R"({"temperature":0,"max_tokens":40,"prompt":")" + prompt + "\"" + fields + "}");
}
std::string AnswerText(const json::object& answer) {
  return std::string(
      answer.at("response").at("body").at("choices").as_array()[0].at("text").as_string());
}

TEST_F(Batch, AnswersAsTheServerDoes) {
  Write("in.jsonl",
        TextLine("text", "abc") +
            Line("chat", "/v1/chat/completions",
                 R"({"messages":[{"role":"user","content":"hi you"}],"temperature":0})") +
            TextLine("scored", "abcd", R"(,"echo":true,"logprobs":1)") + "\n \r\n" +
            Line("responses", "/v1/responses", R"({"input":"hello","temperature":0})"));
  const BatchCounts counts = Run();
  EXPECT_EQ(counts.answered, 4u);
  EXPECT_EQ(counts.errors, 0u);
  const auto answers = ById();
  ASSERT_EQ(answers.size(), 4u);
  for (const auto& [id, answer] : answers) {
    EXPECT_EQ(answer.at("response").at("status_code").as_int64(), 200) << id;
    EXPECT_TRUE(answer.at("error").is_null());
    EXPECT_EQ(answer.at("response").at("body").at("model").as_string(), "copy-model");
  }
  EXPECT_EQ(AnswerText(answers.at("text")), "abc");
  EXPECT_EQ(AnswerText(answers.at("scored")), "abcdabcd");
  EXPECT_EQ(answers.at("chat")
                .at("response")
                .at("body")
                .at("choices")
                .as_array()[0]
                .at("message")
                .at("content")
                .as_string(),
            "hi you");
}

TEST_F(Batch, ManyLinesAreEachAnsweredOnceWhateverTheWindow) {
  std::string lines;
  for (int i = 0; i < 300; ++i) {
    lines +=
        TextLine("r" + std::to_string(i), "p" + std::to_string(i), i % 3 == 0 ? R"(,"n":3)" : "");
  }
  Write("in.jsonl", lines);
  for (const uint32_t window : {1u, 7u, 64u}) {
    std::filesystem::remove(Path("out.jsonl"));
    EXPECT_EQ(Run({.slots = 3, .max_queued = 8}, window).answered, 300u);
    const auto answers = ById();
    ASSERT_EQ(answers.size(), 300u);
    for (int i = 0; i < 300; ++i) {
      EXPECT_EQ(AnswerText(answers.at("r" + std::to_string(i))), "p" + std::to_string(i));
    }
  }
}

// What is read ahead is not done, and the bar never goes back.
TEST_F(Batch, ProgressIsTheShareThatIsAnswered) {
  constexpr int kLines = 64;
  std::string lines;
  for (int i = 0; i < kLines; ++i) {
    lines += TextLine("r" + std::to_string(100 + i), std::string(static_cast<size_t>(1 + i), 'p'));
  }
  Write("in.jsonl", lines);
  for (const uint32_t window : {5u, 200u}) {
    std::filesystem::remove(Path("out.jsonl"));
    Run({.slots = 2}, window);
    ASSERT_GE(progress_.size(), 3u);
    EXPECT_TRUE(std::is_sorted(progress_.begin(), progress_.end()));
    EXPECT_EQ(progress_.front().first, 0);
    EXPECT_EQ(progress_.back(), std::pair(1.0, int64_t{kLines}));
    for (const auto& [share, answers] : progress_) {
      EXPECT_LE(share, static_cast<double>(answers) / kLines + 1e-9) << "longer lines come later";
    }
  }
  Run();
  EXPECT_EQ(progress_.back().first, 1) << "nothing was left";
}

TEST_F(Batch, ABadLineCostsItsOwnAnswerOnly) {
  const std::string bad[] = {
      "no json\n",
      "[1]\n",
      std::string(R"({"method":"POST","url":"/v1/completions","body":{"prompt":"x"}})") + "\n",
      std::string(
          R"({"custom_id":5,"method":"POST","url":"/v1/completions","body":{"prompt":"x"}})") +
          "\n",
      std::string(R"({"custom_id":"get","method":"GET","url":"/v1/completions","body":{}})") + "\n",
      std::string(R"({"custom_id":"url","method":"POST","url":"/v1/embeddings","body":{}})") + "\n",
      std::string(R"({"custom_id":"body","method":"POST","url":"/v1/completions","body":"x"})") +
          "\n",
      "\xFF\xFE\n",
      Line("empty", "/v1/completions", "{}"),
      TextLine("range", "x", R"(,"top_p":7)"),
      TextLine("stream", "x", R"(,"stream":true)"),
      Line("long", "/v1/completions", R"({"prompt":")" + std::string(9000, 'x') + "\"}"),
      Line("fault", "/v1/completions", R"({"prompt":[290]})"),
      TextLine("good", "again"),
      std::string(kMaxLineBytes + 10, ' ') + "x\n",
  };
  std::string lines = TextLine("good", "fine");
  for (const std::string& line : bad)
    lines += line + TextLine("ok" + std::to_string(lines.size()), "ok");
  Write("in.jsonl", lines);
  const BatchCounts counts = Run();
  EXPECT_EQ(counts.answered, 1 + 2 * std::size(bad));
  EXPECT_EQ(counts.errors, std::size(bad));
  size_t good = 0;
  std::map<std::string, int> statuses;
  std::map<std::string, std::string> codes;
  for (const json::object& answer : Answers()) {
    const std::string id(answer.at("custom_id").is_null() ? answer.at("id").as_string()
                                                          : answer.at("custom_id").as_string());
    if (answer.at("response").is_null()) {
      codes[id] = answer.at("error").at("code").as_string();
      EXPECT_NE(std::string(answer.at("error").at("message").as_string()).find("line "),
                std::string::npos);
      continue;
    }
    const auto status = static_cast<int>(answer.at("response").at("status_code").as_int64());
    good += status == 200 ? 1 : 0;
    if (status != 200) statuses[id] = status;
  }
  EXPECT_EQ(good, 1 + std::size(bad));
  EXPECT_EQ(statuses,
            (std::map<std::string, int>{
                {"empty", 400}, {"range", 400}, {"stream", 400}, {"long", 400}, {"fault", 500}}));
  EXPECT_EQ(codes["get"], "invalid_method");
  EXPECT_EQ(codes["url"], "invalid_url");
  EXPECT_EQ(codes["body"], "invalid_request");
  EXPECT_EQ(codes["good"], "duplicate_custom_id");
  EXPECT_EQ(codes["line-2"], "invalid_json");
  EXPECT_EQ(codes.size(), std::size(bad) - statuses.size());
  // Bad lines, too, are answered once.
  EXPECT_EQ(Run().answered, 0u);
}

TEST_F(Batch, ATextWithNulIsRefusedByFieldAndByte) {
  Write("in.jsonl", TextLine("prompt", R"(ab\u0000)") + TextLine(R"(id\u0000)", "x") +
                        Line("chat", "/v1/chat/completions",
                             R"({"messages":[{"role":"user","content":"\u0000"}]})") +
                        TextLine("good", R"(\\u0000)"));
  EXPECT_EQ(Run().errors, 3u);
  const auto answers = ById();
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_EQ(AnswerText(answers.at("good")), R"(\u0000)");
  EXPECT_EQ(answers.at("line-2").at("error").at("code").as_string(), "invalid_request");
  for (const auto& [id, param, byte] :
       {std::tuple("prompt", "prompt", "2"), std::tuple("chat", "messages[0].content", "0")}) {
    const json::value& response = answers.at(id).at("response");
    EXPECT_EQ(response.at("status_code").as_int64(), 400);
    const json::value& error = response.at("body").at("error");
    EXPECT_EQ(error.at("param").as_string(), param);
    EXPECT_NE(std::string(error.at("message").as_string()).find("at byte " + std::string(byte)),
              std::string::npos);
  }
}

TEST_F(Batch, WhatWasCutOffGoesOnWhereItStopped) {
  std::string lines;
  for (int i = 0; i < 60; ++i) lines += TextLine("r" + std::to_string(i), "p" + std::to_string(i));
  Write("in.jsonl", lines + "oops\n");
  const BatchCounts first = Run({.slots = 2}, 4, 10);
  EXPECT_GE(first.answered, 10u);
  EXPECT_LT(first.answered, 61u);
  // Killed in the middle of a line.
  std::string text = Text("out.jsonl");
  Write("out.jsonl", text + text.substr(0, text.size() / 2 - 3).substr(0, 40));
  const BatchCounts second = Run();
  EXPECT_EQ(second.skipped, first.answered);
  EXPECT_EQ(first.answered + second.answered, 61u);
  const auto answers = ById();
  ASSERT_EQ(answers.size(), 61u);
  for (int i = 0; i < 60; ++i) {
    EXPECT_EQ(AnswerText(answers.at("r" + std::to_string(i))), "p" + std::to_string(i));
  }
  EXPECT_EQ(Run().answered, 0u);
  EXPECT_EQ(ById().size(), 61u);
}

TEST_F(Batch, RefusesFilesThatAreNotItsOwn) {
  Write("in.jsonl", TextLine("a", "x"));
  Write("out.jsonl", "some notes of mine\n");
  auto output = BatchOutput::Open(Path("out.jsonl"), Path("in.jsonl"));
  ASSERT_FALSE(output.ok());
  EXPECT_NE(output.error().message.find("line 1"), std::string::npos) << output.error().message;
  EXPECT_EQ(Text("out.jsonl"), "some notes of mine\n");
  EXPECT_FALSE(BatchOutput::Open(Path("in.jsonl"), Path("in.jsonl")).ok());
  EXPECT_EQ(Text("in.jsonl"), TextLine("a", "x"));
  EXPECT_FALSE(BatchOutput::Open(folder_.string(), Path("in.jsonl")).ok());
  EXPECT_FALSE(BatchInput::Open(Path("absent.jsonl")).ok());
  EXPECT_FALSE(BatchInput::Open(folder_.string()).ok());
  const auto held = BatchOutput::Open(Path("new.jsonl"), Path("in.jsonl"));
  ASSERT_TRUE(held.ok());
  EXPECT_FALSE(BatchOutput::Open(Path("new.jsonl"), Path("in.jsonl")).ok()) << "two at once";
}

}  // namespace
}  // namespace kvrm::cli
