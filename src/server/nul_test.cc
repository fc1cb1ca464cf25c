// U+0000 in a text of a request: a 400 that says which field and which byte, on every route that
// reads text. Programs on the way (logs, databases, filters) may end a text there, and would then
// see another request than the model.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>

#include "server/testing/http_client.h"
#include "server/testing/named_events.h"
#include "server/testing/test_server.h"

namespace kvrm {
namespace {

using testing::HttpAnswer;
using testing::kChat;
using testing::kCompletions;
using testing::kFirstByte;
using testing::Post;
using testing::TestServer;
using testing::Text;

struct NulPlace {
  const char* target;
  const char* body;   // NUL stands for the JSON of U+0000
  const char* param;  // the field that holds it
  int byte;           // of its text
};
constexpr NulPlace kNulPlaces[] = {
    {kChat, R"({"messages":[{"role":"user","content":"abNUL"}]})", "messages[0].content", 2},
    {kChat, R"({"messages":[{"role":"NUL","content":"ab"}]})", "messages[0].role", 0},
    {kChat,
     R"({"messages":[{"role":"user","content":[{"type":"text","text":"ab"},
         {"type":"text","text":"\u00e9NUL"}]}]})",
     "messages[0].content[1].text", 2},
    {kChat, R"({"messages":[{"role":"user","content":"a"}],"stop":"NULx"})", "stop", 0},
    {kChat, R"({"messages":[{"role":"user","content":"a"}],"stop":["x","yNUL"]})", "stop[1]", 1},
    {kChat, R"({"messages":[{"role":"user","content":"a"}],"model":"mNUL"})", "model", 1},
    {kCompletions, R"({"prompt":"NUL"})", "prompt", 0},
    {kCompletions, R"({"prompt":["ab","abcNULd"]})", "prompt[1]", 3},
    {"/completion", R"({"prompt":"aNULb","stream":true})", "prompt", 1},
    {"/v1/responses", R"({"input":"abNUL"})", "input", 2},
    {"/v1/responses", R"({"input":[{"role":"user","content":"NUL"}]})", "input[0].content", 0},
    {"/v1/responses", R"({"instructions":"aNUL","input":"a"})", "instructions", 1},
    {"/v1/responses", R"({"input":"a","metadata":{"k":"vNUL"}})", "metadata.k", 1},
    {"/v1/responses", R"({"input":"a","metadata":{"kNUL":"v"}})", "metadata", 1},
    {"/v1/messages", R"({"max_tokens":4,"messages":[{"role":"user","content":"abNUL"}]})",
     "messages[0].content", 2},
    {"/v1/messages",
     R"({"max_tokens":4,"system":"abNUL","messages":[{"role":"user","content":"a"}]})", "system",
     2},
    {"/v1/messages/count_tokens", R"({"messages":[{"role":"user","content":"abNUL"}]})",
     "messages[0].content", 2},
    {"/tokenize", R"({"content":"abNUL"})", "content", 2},
    {"/tokenize", R"({"prompt":"NUL"})", "prompt", 0},
    {"/tokenize", R"({"messages":[{"role":"user","content":"abNUL"}]})", "messages[0].content", 2},
    {"/apply-template", R"({"messages":[{"role":"user","content":"abNUL"}]})",
     "messages[0].content", 2},
};

std::string WithNul(std::string body, const char* nul) {
  const size_t at = body.find("NUL");
  return body.replace(at, 3, nul);
}

TEST(Nul, IsRefusedByFieldAndByteOnEveryRouteThatReadsText) {
  TestServer server;
  for (const NulPlace& place : kNulPlaces) {
    const HttpAnswer answer = Post(server.port(), place.target, WithNul(place.body, "\\u0000"));
    EXPECT_EQ(answer.status, 400) << place.target << place.body << answer.body;
    if (answer.status != 400) continue;
    const auto error = answer.json().at("error");
    EXPECT_TRUE(Text(error.at("message"))
                    .starts_with(std::string(place.param) + ": holds U+0000 at byte " +
                                 std::to_string(place.byte) + ","))
        << place.body << error;
    if (!std::string(place.target).starts_with("/v1/messages")) {  // Anthropic's errors have none
      EXPECT_EQ(testing::ParamOf(answer), place.param);
      EXPECT_EQ(Text(error.at("code")), "invalid_text");
    }
  }
}

// As a byte of the body it is no JSON, and a text may say how it is written.
TEST(Nul, IsRefusedAsAByteAndTakenWhereItIsOnlyTalkedAbout) {
  TestServer server;
  for (const NulPlace& place : kNulPlaces) {
    std::string raw = place.body;
    raw.replace(raw.find("NUL"), 3, 1, '\0');
    const HttpAnswer answer = Post(server.port(), place.target, raw);
    EXPECT_EQ(answer.status, 400) << place.body;
    EXPECT_NE(answer.body.find("not valid JSON"), std::string::npos) << answer.body;
  }
  const HttpAnswer talk =
      Post(server.port(), kChat,
           R"({"temperature":0,"messages":[{"role":"user","content":"\\u0000 and \u0001"}]})");
  EXPECT_EQ(Text(talk.json().at("choices").as_array()[0].at("message").at("content")),
            "\\u0000 and \x01");
}

// The byte is a token like others: whoever names it by its id gets it, and what the model says is
// told as it is.
TEST(Nul, IsATokenLikeOthersByItsId) {
  TestServer server;
  const std::string prompt = std::to_string(kFirstByte + 'a') + "," + std::to_string(kFirstByte);
  const HttpAnswer answer =
      Post(server.port(), kCompletions, R"({"temperature":0,"prompt":[)" + prompt + "]}");
  EXPECT_EQ(Text(answer.json().at("choices").as_array()[0].at("text")), std::string("a\0", 2));
  const HttpAnswer text = Post(server.port(), "/detokenize", R"({"tokens":[)" + prompt + "]}");
  EXPECT_EQ(Text(text.json().at("content")), std::string("a\0", 2));
}

}  // namespace
}  // namespace kvrm
