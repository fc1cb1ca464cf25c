// Field reports by number, over a socket: where answers end, and what of their text is told.
// reports_test.cc has those about requests and connections.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "server/prompt_encoder.h"
#include "server/testing/http_client.h"
#include "server/testing/named_events.h"
#include "server/testing/test_server.h"

namespace kvrm {
namespace {

namespace json = boost::json;
using testing::HttpClient;
using testing::kChat;
using testing::kCompletions;
using testing::kTurnBegin;
using testing::MakeByteTokenizer;
using testing::Post;
using testing::PostStream;
using testing::StreamAnswer;
using testing::TestServer;
using testing::Text;

// ---- B034: stop texts of several tokens
TEST(B034, AStopTextOfManyTokensEndsTheAnswerBeforeIt) {
  TestServer server;
  const std::string said = "5 6 7 8 9 10 11 12";
  for (const char* stop : {R"(["9 10 11"])", R"("9 10 11")", R"(["9 10 11","9 10 11 12"])",
                           R"(["9 10 11 12","9 10"])", R"(["zzz","9 10 11"])"}) {
    const std::string fields = R"(,"temperature":0,"max_tokens":40,"stop":)" + std::string(stop);
    const std::string prompt = R"({"prompt":")" + said + "\"" + fields;
    const std::string chat = R"({"messages":[{"role":"user","content":")" + said + "\"}]" + fields;
    for (const auto& [target, body] : {std::pair(kCompletions, prompt), std::pair(kChat, chat)}) {
      const StreamAnswer stream = PostStream(server.port(), target, body + R"(,"stream":true})");
      EXPECT_EQ(stream.text(), "5 6 7 8 ") << stop;
      EXPECT_EQ(stream.finish_reasons(), std::vector<std::string>{"stop"}) << stop;
      const json::value whole = Post(server.port(), target, body + "}").json();
      const json::value& choice = whole.at("choices").as_array()[0];
      const json::value& text =
          target == kChat ? choice.at("message").at("content") : choice.at("text");
      EXPECT_EQ(Text(text), "5 6 7 8 ") << stop;
      EXPECT_EQ(Text(choice.at("finish_reason")), "stop") << stop;
    }
  }
}

// ---- B038: bytes of log-probabilities
std::string JoinedBytes(const json::value& entries) {
  std::string joined;
  for (const auto& entry : entries.as_array()) {
    EXPECT_TRUE(entry.at("token").is_string());
    for (const auto& byte : entry.at("bytes").as_array()) {
      joined += static_cast<char>(byte.as_int64());
    }
    for (const auto& top : entry.at("top_logprobs").as_array()) {
      EXPECT_EQ(top.at("bytes").as_array().size(), 1u) << "the tests' tokens are bytes";
    }
  }
  return joined;
}

TEST(B038, TheBytesOfAnEmojiAnswerAreItsUtf8WholeAndStreamed) {
  TestServer server;
  const std::string emoji = "\xF0\x9F\x98\x80";
  const std::string body = R"({"temperature":0,"max_tokens":4,"logprobs":true,"top_logprobs":1,)"
                           R"("messages":[{"role":"user","content":"\ud83d\ude00"}])";
  const json::value whole = Post(server.port(), kChat, body + "}").json();
  const json::value& choice = whole.at("choices").as_array()[0];
  EXPECT_EQ(Text(choice.at("message").at("content")), emoji);
  EXPECT_EQ(JoinedBytes(choice.at("logprobs").at("content")), emoji);
  std::string streamed;
  for (const auto& chunk : PostStream(server.port(), kChat, body + R"(,"stream":true})").chunks) {
    const auto* logprobs = chunk.at("choices").as_array()[0].as_object().if_contains("logprobs");
    if (logprobs != nullptr && logprobs->is_object()) {
      streamed += JoinedBytes(logprobs->at("content"));
    }
  }
  EXPECT_EQ(streamed, emoji);
}

// ---- B044: empty prompts
TEST(B044, AnEmptyPromptIsTheStartTokenWhereTheModelHasOneAndElseRefused) {
  TokenizerSpec spec = MakeByteTokenizer()->spec();
  for (const bool add_bos : {false, true}) {
    spec.add_bos = add_bos;
    const auto tokenizer = Tokenizer::Create(spec);
    ASSERT_TRUE(tokenizer.ok());
    const PromptEncoder encoder(**tokenizer, nullptr, /*ctx=*/64);
    const auto ids = encoder.Raw(Prompt(std::string()), "prompt");
    if (add_bos) {
      ASSERT_TRUE(std::holds_alternative<std::vector<TokenId>>(ids));
      EXPECT_EQ(std::get<std::vector<TokenId>>(ids), std::vector<TokenId>{kTurnBegin});
    } else {
      ASSERT_TRUE(std::holds_alternative<ApiError>(ids));
      EXPECT_EQ(std::get<ApiError>(ids).param, "prompt");
    }
  }
}

// ---- B049: seeds
TEST(B049, RequestsAtOnceWithoutASeedDifferAndWithOneAgree) {
  TestServer server;
  for (const char* seed : {"", R"("seed":7,)"}) {
    server.gate().Close();
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int i = 0; i < 10; ++i) {
      clients.push_back(std::make_unique<HttpClient>(server.port()));
      clients.back()->SendRequest("POST", kCompletions,
                                  std::string("{") + seed +
                                      R"("prompt":"aaaa","temperature":100,"top_k":0,"top_p":1,
                                         "min_p":0,"ignore_eos":true,"max_tokens":24})");
    }
    server.gate().Open();
    std::set<std::string> texts;
    for (auto& client : clients) {
      texts.insert(Text(client->Receive().json().at("choices").as_array()[0].at("text")));
    }
    EXPECT_EQ(texts.size(), *seed == '\0' ? 10u : 1u) << seed;
  }
}

}  // namespace
}  // namespace kvrm
