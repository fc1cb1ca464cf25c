// What a stream sends beside its text: comments while it waits, stamps, progress; and what readers
// that stall cost.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/testing/http_client.h"
#include "server/testing/test_server.h"

namespace kvrm {
namespace {

using testing::Eventually;
using testing::Get;
using testing::HttpAnswer;
using testing::HttpClient;
using testing::TestServer;

using testing::kChat;
constexpr const char* kStream =
    R"({"messages":[{"role":"user","content":"abc"}],"temperature":0,"stream":true})";

ServerConfig WithKeepAlive(int milliseconds) {
  ServerConfig config;
  config.keep_alive_interval = std::chrono::milliseconds(milliseconds);
  return config;
}

// The events without the comments.
std::string WithoutComments(std::string body) {
  const std::string comment = ": keep-alive\n\n";
  for (size_t at = 0; (at = body.find(comment)) != std::string::npos;) {
    body.erase(at, comment.size());
  }
  return body;
}

TEST(KeepAlive, AStreamThatWaitsSendsCommentsAndNoRole) {
  TestServer server(WithKeepAlive(20));
  server.gate().Close();
  HttpClient client(server.port());
  client.SendRequest("POST", kChat, kStream);
  EXPECT_TRUE(client.ReceiveUntil(": keep-alive\n\n\r\n"));
  EXPECT_TRUE(client.ReceiveUntil(": keep-alive\n\n\r\ne\r\n: keep-alive\n\n\r\n")) << "and again";
  EXPECT_FALSE(client.received().find("data:") != std::string::npos)
      << "the role comes with the first token: " << client.received();
  server.gate().Open();
  HttpAnswer answer = client.Receive();
  EXPECT_TRUE(answer.body.starts_with(": keep-alive\n\n"));
  answer.body = WithoutComments(answer.body);
  const auto stream = testing::ParseStream(answer);
  EXPECT_TRUE(stream.done);
  EXPECT_EQ(stream.text(), "abc");
}

TEST(KeepAlive, AnErrorAfterACommentIsAnEvent) {
  TestServer server(WithKeepAlive(20));
  server.gate().Close();
  HttpClient client(server.port());
  client.SendRequest("POST", "/v1/completions", R"({"prompt":[70,290],"stream":true})");
  EXPECT_TRUE(client.ReceiveUntil(": keep-alive\n\n"));
  server.gate().Open();
  const HttpAnswer answer = client.Receive();
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.complete);
  EXPECT_NE(answer.body.find("data: {\"error\":"), std::string::npos) << answer.body;
  EXPECT_EQ(answer.body.find("[DONE]"), std::string::npos);
}

TEST(KeepAlive, WholeAnswersAndOldClientsAreNotDisturbed) {
  TestServer server(WithKeepAlive(20));
  server.gate().Close();
  HttpClient whole(server.port()), streamed(server.port());
  whole.SendRequest("POST", "/v1/completions", R"({"prompt":"ab","temperature":0})");
  streamed.SendRequest("POST", "/v1/completions", R"({"prompt":"ab","stream":true})");
  EXPECT_TRUE(streamed.ReceiveUntil(": keep-alive\n\n"));
  server.gate().Open();
  EXPECT_EQ(whole.Receive().json().at("choices").as_array()[0].at("text").as_string(), "ab");
}

TEST(SendStamps, StandBeforeEventsWhenAskedFor) {
  TestServer server;
  HttpClient client(server.port());
  client.SendRequest("POST", kChat, kStream, "X-Send-Stamps: 1\r\n");
  const std::string stamped = client.Receive().body;
  EXPECT_TRUE(stamped.starts_with(": sent-us=")) << stamped;
  int64_t last = 0;
  size_t stamps = 0;
  for (size_t at = 0; (at = stamped.find(": sent-us=", at)) != std::string::npos; ++stamps) {
    at += 10;
    const int64_t stamp = std::stoll(stamped.substr(at));
    EXPECT_GE(stamp, last);
    last = stamp;
    EXPECT_EQ(stamped.substr(stamped.find('\n', at) + 1, 6), "data: ");
  }
  EXPECT_GE(stamps, 1u);
  client.SendRequest("POST", kChat, kStream);
  EXPECT_EQ(client.Receive().body.find("sent-us"), std::string::npos);
}

TEST(Progress, ALongPromptIsToldOfInLlamaServersWords) {
  TestServer server({}, {.max_seq_tokens = 512});
  const std::string prompt(200, 'x');
  for (const char* target : {"/v1/completions", "/completion"}) {
    HttpClient client(server.port());
    client.SendRequest(
        "POST", target,
        R"({"max_tokens":2,"stream":true,"return_progress":true,"prompt":")" + prompt + "\"}");
    const std::string body = client.Receive().body;
    uint64_t events = 0;
    int64_t processed = 0;
    for (size_t at = 0; (at = body.find("\"prompt_progress\":", at)) != std::string::npos;
         ++events) {
      at += 18;
      const auto progress = boost::json::parse(body.substr(at, body.find('}', at) - at + 1));
      EXPECT_EQ(progress.at("total").as_int64(), 200);
      EXPECT_GT(progress.at("processed").as_int64(), processed);
      processed = progress.at("processed").as_int64();
    }
    EXPECT_GE(events, 2u) << target;
    EXPECT_LT(processed, 200) << "the first token says the rest";
  }
  HttpClient plain(server.port());
  plain.SendRequest("POST", "/completion",
                    R"({"max_tokens":2,"stream":true,"prompt":")" + prompt + "\"}");
  EXPECT_EQ(plain.Receive().body.find("prompt_progress"), std::string::npos);
}

// A reader that stalls below the bound in bytes is cut by age; nobody else waits for it.
TEST(Outbox, AWriteThatTakesTooLongEndsItsStreamOnly) {
  ServerConfig config;
  config.send_buffer_bytes = 4096;
  config.write_timeout = std::chrono::milliseconds(100);
  config.max_outbox_bytes = uint64_t{1} << 40;
  TestServer server(config, {.max_seq_tokens = 8192});
  HttpClient stalled(server.port(), /*receive_buffer_bytes=*/4096);
  stalled.SendRequest(
      "POST", "/v1/completions",
      R"({"max_tokens":4000,"logprobs":20,"stream":true,"temperature":0,"prompt":")" +
          std::string(4000, 'x') + "\"}");
  EXPECT_TRUE(Eventually([&] {
    return Get(server.port(), "/metrics")
               .body.find("kvrm_outbox_overflow_total{bound=\"age\"} 1") != std::string::npos;
  }));
  EXPECT_TRUE(Eventually([&] { return server.pages_in_use() == 0; }));
  EXPECT_EQ(testing::Post(server.port(), "/v1/completions", R"({"prompt":"ab"})").status, 200);
}

TEST(Outbox, FiftyStalledReadersChangeNoOtherStream) {
  ServerConfig config;
  config.send_buffer_bytes = 4096;
  config.max_outbox_bytes = 32'768;
  TestServer server(config, {.slots = 60, .max_seq_tokens = 4096, .pool_tokens = 1u << 19});
  std::vector<std::unique_ptr<HttpClient>> stalled;
  const std::string body =
      R"({"max_tokens":1000,"logprobs":20,"stream":true,"temperature":0,"prompt":")" +
      std::string(1000, 'x') + "\"}";
  for (int i = 0; i < 50; ++i) {
    stalled.push_back(std::make_unique<HttpClient>(server.port(), /*receive_buffer_bytes=*/4096));
    stalled.back()->SendRequest("POST", "/v1/completions", body);
  }
  for (int i = 0; i < 5; ++i) {
    const auto stream = testing::PostStream(
        server.port(), "/v1/completions",
        R"({"prompt":"the quick brown fox","temperature":0,"max_tokens":30,"stream":true})");
    EXPECT_TRUE(stream.done);
    EXPECT_EQ(stream.text(), "the quick brown fox");
  }
  EXPECT_TRUE(Eventually([&] {
    return Get(server.port(), "/metrics")
               .body.find("kvrm_outbox_overflow_total{bound=\"bytes\"} 50\n") != std::string::npos;
  }));
  EXPECT_TRUE(Eventually([&] { return server.pages_in_use() == 0; }));
}

}  // namespace
}  // namespace kvrm
