// Fields of the sampler over a socket: that what a client writes reaches the draw, and what a bad
// value costs.
#include <gtest/gtest.h>

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
using testing::TestServer;

using testing::kCompletions;

std::string Body(const std::string& prompt, const std::string& fields) {
  return R"({"temperature":0,"prompt":")" + prompt + R"(",)" + fields + "}";
}

std::string Text(const HttpAnswer& answer) {
  if (answer.status != 200) return "status " + std::to_string(answer.status) + " " + answer.body;
  return std::string(answer.json().at("choices").as_array()[0].at("text").as_string());
}

// The model copies its prompt with a margin of ten to twelve over every other token.
TEST(SamplingFields, PenaltiesOfTheOutputGrowUntilTheCopyBreaks) {
  TestServer server;
  const auto answer = [&](const std::string& fields) {
    return Text(Post(server.port(), kCompletions, Body("aaaaaaaaaa", fields)));
  };
  EXPECT_EQ(answer(R"("max_tokens":10)"), "aaaaaaaaaa");
  EXPECT_EQ(answer(R"("max_tokens":10,"presence_penalty":2)"), "aaaaaaaaaa")
      << "once, not each time";
  const std::string broken = answer(R"("max_tokens":10,"frequency_penalty":2)");
  EXPECT_EQ(broken.substr(0, 5), "aaaaa") << "the prompt's ten do not count";
  EXPECT_NE(broken, "aaaaaaaaaa");
}

TEST(SamplingFields, BiasForcesATokenAndForbidsOne) {
  TestServer server;
  const auto answer = [&](const std::string& bias) {
    return Text(
        Post(server.port(), kCompletions, Body("abc", R"("max_tokens":3,"logit_bias":)" + bias)));
  };
  EXPECT_EQ(answer(R"({"125":100})"), "zzz");  // 3 + 'z'
  EXPECT_EQ(answer(R"({"125":1})"), "abc");
  const std::string without_b = answer(R"({"101":-100})");
  EXPECT_EQ(without_b[0], 'a');
  EXPECT_NE(without_b[1], 'b');
}

// B042: an id from a client is no index.
TEST(B042, BadBiasesAreRefusedByPathBesideAStream) {
  TestServer server;
  const std::pair<std::string, std::string> cases[] = {
      {R"({"300":1})", "logit_bias.300"},
      {R"({"301":1})", "logit_bias.301"},
      {R"({"2147483647":1})", "logit_bias.2147483647"},
      {R"({"-1":1})", "logit_bias"},
      {R"({"abc":1})", "logit_bias"},
      {R"({"1e3":1})", "logit_bias"},
      {R"({"07":1})", "logit_bias"},
      {R"({"":1})", "logit_bias"},
      {R"({"9223372036854775808":1})", "logit_bias"},
      {R"({"5":1e30})", "logit_bias.5"},
      {R"({"5":-100.5})", "logit_bias.5"},
      {R"({"5":"x"})", "logit_bias.5"},
      {R"({"5":null})", "logit_bias.5"},
      {R"([[5,1],[6,101]])", "logit_bias[1][1]"},
  };
  for (const auto& [bias, param] : cases) {
    const HttpAnswer answer =
        Post(server.port(), kCompletions, Body("a", R"("logit_bias":)" + bias));
    ASSERT_EQ(answer.status, 400) << bias << answer.body;
    EXPECT_EQ(answer.json().at("error").at("param").as_string(), param) << answer.body;
  }
  std::string many, all;
  for (int id = 0; id < 100'000; ++id) many += R"(,")" + std::to_string(id) + R"(":1)";
  for (int id = 0; id < 300; ++id) all += R"(,")" + std::to_string(id) + R"(":-100)";
  EXPECT_EQ(Post(server.port(), kCompletions, Body("a", R"("logit_bias":{)" + many.substr(1) + "}"))
                .status,
            400);
  // All alike: as if there were none.
  EXPECT_EQ(Text(Post(server.port(), kCompletions,
                      Body("abc", R"("max_tokens":3,"logit_bias":{)" + all.substr(1) + "}"))),
            "abc");
}

TEST(MinTokens, HoldBackStopStringsThatAreCompleteTooEarly) {
  TestServer server;
  for (const char* stream : {"false", "true"}) {
    const auto answer = [&](const std::string& fields) {
      const std::string body =
          Body("ab ab ab ab", R"("max_tokens":11,"stream":)" + std::string(stream) + "," + fields);
      if (std::string(stream) == "false") return Text(Post(server.port(), kCompletions, body));
      return PostStream(server.port(), kCompletions, body).text();
    };
    EXPECT_EQ(answer(R"("stop":"ab")"), "");
    EXPECT_EQ(answer(R"("stop":"ab","min_tokens":1)"), "") << "complete with the second token";
    EXPECT_EQ(answer(R"("stop":"ab","min_tokens":2)"), "ab ");
    EXPECT_EQ(answer(R"("stop":"ab","min_tokens":4)"), "ab ") << "begun within, complete after";
    EXPECT_EQ(answer(R"("stop":"ab","min_tokens":5)"), "ab ab ");
    EXPECT_EQ(answer(R"("stop":"ab","min_tokens":11)"), "ab ab ab ab");
  }
}

TEST(MinTokens, HoldBackEndAndStopTokensAlike) {
  TestServer server;
  const auto tokens = [&](const std::string& fields) {
    const HttpAnswer answer = Post(server.port(), kCompletions, Body("ab", fields));
    return answer.json().at("usage").at("completion_tokens").as_int64();
  };
  EXPECT_EQ(tokens(R"("max_tokens":20)"), 3);  // a, b, end
  EXPECT_GE(tokens(R"("max_tokens":20,"min_tokens":7)"), 8);
  EXPECT_EQ(tokens(R"("max_tokens":20,"stop_token_ids":[100])"), 1);
  EXPECT_GE(tokens(R"("max_tokens":20,"stop_token_ids":[100],"min_tokens":4)"), 5);
  EXPECT_EQ(tokens(R"("max_tokens":20,"ignore_eos":true)"), 20);
}

TEST(Seeds, OfAnySizeAndSignAreTakenAndRepeat) {
  TestServer server;
  const auto text = [&](const std::string& seed) {
    return Text(Post(server.port(), kCompletions,
                     R"({"prompt":"q","max_tokens":24,"ignore_eos":true,"temperature":40,"top_k":0,
                       "top_p":1,"min_p":0,"seed":)" +
                         seed + "}"));
  };
  std::vector<std::string> seen;
  for (const char* seed :
       {"0", "1", "-2", "-9223372036854775808", "9223372036854775807", "18446744073709551615"}) {
    const std::string once = text(seed);
    EXPECT_EQ(once, text(seed)) << seed;
    for (const std::string& other : seen) EXPECT_NE(once, other) << seed;
    seen.push_back(once);
  }
  EXPECT_NE(text("-1"), text("-1")) << "drawn anew";
  EXPECT_EQ(Post(server.port(), kCompletions, R"({"prompt":"q","seed":1.5})").status, 400);
}

}  // namespace
}  // namespace kvrm
