// /v1/completions in full: echo, scores of the prompt, prompts of every kind, nothing but the
// prompt, several choices; each over a socket and streamed as well where that differs.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <string>
#include <vector>

#include "server/testing/http_client.h"
#include "server/testing/test_server.h"

namespace kvrm {
namespace {

namespace json = boost::json;
using testing::HttpAnswer;
using testing::Post;
using testing::PostStream;
using testing::StreamAnswer;
using testing::TestServer;

using testing::kChat;
using testing::kCompletions;

json::value Completion(TestServer& server, const std::string& fields) {
  const HttpAnswer answer =
      Post(server.port(), kCompletions, R"({"temperature":0,)" + fields + "}");
  EXPECT_EQ(answer.status, 200) << answer.body;
  return answer.json();
}
const json::object& Choice(const json::value& body, size_t index = 0) {
  return body.at("choices").as_array()[index].as_object();
}

// What evaluation harnesses need of `logprobs`: entries of the prompt, then of the output.
void ExpectScoredShape(const json::value& logprobs, size_t count, const std::string& text) {
  const auto& tokens = logprobs.at("tokens").as_array();
  const auto& values = logprobs.at("token_logprobs").as_array();
  const auto& tops = logprobs.at("top_logprobs").as_array();
  const auto& offsets = logprobs.at("text_offset").as_array();
  ASSERT_EQ(tokens.size(), count);
  ASSERT_EQ(values.size(), count);
  ASSERT_EQ(tops.size(), count);
  ASSERT_EQ(offsets.size(), count);
  EXPECT_TRUE(values[0].is_null());
  EXPECT_TRUE(tops[0].is_null());
  std::string joined;
  for (size_t i = 0; i < count; ++i) {
    EXPECT_EQ(offsets[i].as_int64(), static_cast<int64_t>(joined.size()));
    joined += std::string(tokens[i].as_string());
    if (i == 0) continue;
    ASSERT_FALSE(tops[i].as_object().empty());
    double best = -1e30;
    for (const auto& entry : tops[i].as_object()) {
      best = std::max(best, entry.value().to_number<double>());
    }
    // Compared as harnesses do: the token's own number is one of the map, to the last digit.
    EXPECT_EQ(tops[i].at(tokens[i].as_string()).to_number<double>(), values[i].to_number<double>());
    EXPECT_GE(best, values[i].to_number<double>());
  }
  EXPECT_EQ(joined.substr(0, text.size()), text);
}

TEST(Completions, LoglikelihoodRequestsOfHarnessesGetTheirExactShape) {
  TestServer server;
  const json::value body = Completion(
      server, R"("prompt":[[100,101,102],[103,104]],"max_tokens":1,"logprobs":1,"seed":1234,
                "echo":true)");
  ASSERT_EQ(body.at("choices").as_array().size(), 2u);
  EXPECT_EQ(Choice(body, 0).at("text").as_string(), "abca");
  EXPECT_EQ(Choice(body, 1).at("text").as_string(), "ded");
  ExpectScoredShape(Choice(body, 0).at("logprobs"), 4, "abca");
  ExpectScoredShape(Choice(body, 1).at("logprobs"), 3, "ded");
  EXPECT_EQ(body.at("usage").at("prompt_tokens").as_int64(), 5);
  EXPECT_EQ(body.at("usage").at("total_tokens").as_int64(), 7);
}

// The one token made is listed even when it is the end and has no text.
TEST(Completions, TheEndTokenIsListedBehindAnEchoedPrompt) {
  TestServer server;
  const json::value body =
      Completion(server, R"("prompt":"ab","max_tokens":9,"logprobs":1,"echo":true)");
  EXPECT_EQ(Choice(body).at("text").as_string(), "abab");
  EXPECT_EQ(Choice(body).at("finish_reason").as_string(), "stop");
  ExpectScoredShape(Choice(body).at("logprobs"), 5, "abab");
}

TEST(Completions, NoTokenAtAllScoresThePrompt) {
  TestServer server;
  json::value body =
      Completion(server, R"("prompt":"abcd","max_tokens":0,"logprobs":2,"echo":true)");
  EXPECT_EQ(Choice(body).at("text").as_string(), "abcd");
  EXPECT_EQ(Choice(body).at("finish_reason").as_string(), "length");
  ExpectScoredShape(Choice(body).at("logprobs"), 4, "abcd");
  EXPECT_EQ(body.at("usage").at("completion_tokens").as_int64(), 0);
  body = Completion(server, R"("prompt":"abcd","max_tokens":0)");
  EXPECT_EQ(Choice(body).at("text").as_string(), "");
  body = Completion(server, R"("prompt":"a","max_tokens":0,"logprobs":1,"echo":true)");
  EXPECT_EQ(Choice(body).at("logprobs").at("token_logprobs"), (json::array{nullptr}));
  EXPECT_TRUE(testing::Eventually([&] { return server.pages_in_use() == 0; }));
}

TEST(Completions, EchoIsStreamedFirstWithItsScores) {
  TestServer server;
  const std::string body = R"({"temperature":0,"prompt":["abc","xy"],"max_tokens":2,"n":2,
    "stop":["bc"],"echo":true,"logprobs":1,"stream":true,"stream_options":{"include_usage":true}})";
  const StreamAnswer stream = PostStream(server.port(), kCompletions, body);
  ASSERT_TRUE(stream.done);
  EXPECT_EQ(stream.text(0), "abcab") << "the prompt's own text is no stop";
  EXPECT_EQ(stream.text(1), "abcab");
  EXPECT_EQ(stream.text(2), "xyxy");
  EXPECT_EQ(stream.text(3), "xyxy");
  std::vector<size_t> listed(4, 0);
  for (const json::value& chunk : stream.chunks) {
    for (const json::value& choice : chunk.at("choices").as_array()) {
      const json::value& logprobs = choice.at("logprobs");
      if (logprobs.is_null()) continue;
      const auto index = static_cast<size_t>(choice.at("index").as_int64());
      if (listed[index] == 0) {
        EXPECT_TRUE(logprobs.at("token_logprobs").as_array()[0].is_null());
      }
      listed[index] += logprobs.at("tokens").as_array().size();
    }
  }
  EXPECT_EQ(listed, (std::vector<size_t>{5, 5, 4, 4}));
  const json::value& usage = stream.chunks.back().at("usage");
  EXPECT_EQ(usage.at("prompt_tokens").as_int64(), 5) << "each prompt once";
  EXPECT_EQ(usage.at("completion_tokens").as_int64(), 8);
  EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens").as_int64(), 0);
  const StreamAnswer prompt_only = PostStream(
      server.port(), kCompletions, R"({"prompt":"abc","max_tokens":0,"echo":true,"stream":true})");
  EXPECT_EQ(prompt_only.text(), "abc");
  EXPECT_EQ(prompt_only.finish_reasons(), std::vector<std::string>{"length"});
}

TEST(Completions, PromptLogprobsStandWhereOtherServersPutThem) {
  TestServer server;
  const json::value text =
      Completion(server, R"("prompt":"abc","max_tokens":1,"prompt_logprobs":2)");
  EXPECT_TRUE(Choice(text).at("logprobs").is_null());
  const auto& places = Choice(text).at("prompt_logprobs").as_array();
  ASSERT_EQ(places.size(), 3u);
  EXPECT_TRUE(places[0].is_null());
  for (size_t i = 1; i < 3; ++i) {
    const auto& place = places[i].as_object();
    ASSERT_GE(place.size(), 2u);
    const auto& own = place.at(std::to_string(100 + i));  // 'b', 'c'
    EXPECT_EQ(own.at("decoded_token").as_string(), std::string(1, static_cast<char>('a' + i)));
    EXPECT_GE(own.at("rank").as_int64(), 1);
    size_t first = 0;
    for (const auto& entry : place) {
      first += entry.value().at("rank").as_int64() == 1 ? 1 : 0;
      EXPECT_LE(entry.value().at("logprob").to_number<double>(), 0);
    }
    EXPECT_EQ(first, 1u);
  }
  const json::value both = Completion(
      server, R"("prompt":"abc","max_tokens":0,"prompt_logprobs":0,"echo":true,"logprobs":5)");
  EXPECT_EQ(Choice(both).at("prompt_logprobs").as_array()[1].as_object().size(), 1u);
  EXPECT_GE(Choice(both).at("logprobs").at("top_logprobs").as_array()[1].as_object().size(), 5u);
  const json::value chat =
      Post(server.port(), kChat,
           R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":1,"prompt_logprobs":0})")
          .json();
  EXPECT_EQ(static_cast<int64_t>(chat.at("prompt_logprobs").as_array().size()),
            chat.at("usage").at("prompt_tokens").as_int64());
  EXPECT_FALSE(Choice(chat).contains("prompt_logprobs"));
}

// Choices of one prompt: computed once, counted once, drawn apart.
TEST(Completions, ChoicesShareTheirPromptAndItsScores) {
  TestServer server;
  const std::string prompt(100, 'q');
  const uint64_t before = server.engine().Metrics().prompt_tokens;
  // All four are with the engine before the first of them has ended its prompt.
  server.gate().Close();
  testing::HttpClient client(server.port());
  client.SendRequest(
      "POST", kCompletions,
      R"({"temperature":0,"max_tokens":3,"n":4,"echo":true,"logprobs":0,"prompt":")" + prompt +
          "\"}");
  EXPECT_TRUE(testing::Eventually([&] {
    return testing::Get(server.port(), "/metrics").body.find("\nkvrm_requests_open 1\n") !=
           std::string::npos;
  }));
  server.gate().Open();
  const json::value body = client.Receive().json();
  EXPECT_EQ(server.engine().Metrics().prompt_tokens - before, 100u + 3u)
      << "three choices compute their last row once more";
  EXPECT_EQ(body.at("usage").at("prompt_tokens").as_int64(), 100);
  EXPECT_EQ(body.at("usage").at("completion_tokens").as_int64(), 12);
  EXPECT_EQ(body.at("timings").at("cache_n").as_int64(), 0);
  EXPECT_EQ(body.at("timings").at("prompt_n").as_int64(), 103);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(Choice(body, i).at("index").as_int64(), static_cast<int64_t>(i));
    EXPECT_EQ(Choice(body, i).at("text").as_string(), prompt + "qqq");
    EXPECT_EQ(Choice(body, i).at("logprobs").at("tokens").as_array().size(), 103u);
  }
}

// 128 prompts of 500 tokens with 21 entries each would be more than a million.
TEST(Completions, ScoresOfOneAnswerAreBounded) {
  TestServer server;
  std::string prompts;
  for (int i = 0; i < 128; ++i) prompts += ",\"" + std::string(500, 'q') + "\"";
  const HttpAnswer answer =
      Post(server.port(), kCompletions,
           R"({"prompt":[)" + prompts.substr(1) + R"(],"max_tokens":0,"prompt_logprobs":20})");
  ASSERT_EQ(answer.status, 400) << answer.body;
  EXPECT_NE(answer.body.find("64000 tokens with 21"), std::string::npos) << answer.body;
}

TEST(Completions, AScoredPromptThatFailsIsAnErrorAndNoEcho) {
  TestServer server;
  for (const char* stream : {"false", "true"}) {
    const HttpAnswer answer =
        Post(server.port(), kCompletions,
             R"({"prompt":[100,290,101],"max_tokens":2,"echo":true,"logprobs":1,"stream":)" +
                 std::string(stream) + "}");
    EXPECT_EQ(answer.status, 500) << answer.body;
    EXPECT_EQ(answer.json().at("error").at("code").as_string(), "generation_failed");
  }
  EXPECT_EQ(Choice(Completion(server, R"("prompt":"ab","max_tokens":2)")).at("text").as_string(),
            "ab");
}

}  // namespace
}  // namespace kvrm
