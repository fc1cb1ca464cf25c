// What a client that goes away costs, counted in commits: its pages are free at the first commit
// after the socket told of it, whatever state its request was in.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/testing/http_client.h"
#include "server/testing/test_server.h"

namespace kvrm {
namespace {

using testing::Eventually;
using testing::Get;
using testing::HttpClient;
using testing::TestServer;

std::string Body(size_t prompt_bytes, const char* stream) {
  return R"({"max_tokens":400,"ignore_eos":true,"temperature":0,"stream":)" + std::string(stream) +
         R"(,"prompt":")" + std::string(prompt_bytes, 'p') + "\"}";
}

bool Gone(TestServer& server, int count) {
  return Eventually([&] {
    return Get(server.port(), "/metrics")
               .body.find("\nkvrm_client_gone_total " + std::to_string(count) + "\n") !=
           std::string::npos;
  });
}

// The client leaves within replay `during` of its request, which is held there. Of the commits that
// follow the first gives its pages back, and nothing asks for a second.
void LeaveDuring(uint64_t during, size_t prompt_bytes, const char* stream) {
  TestServer server({}, {.max_seq_tokens = 1024});
  server.gate().CloseAfter(during - 1);
  HttpClient client(server.port());
  client.SendRequest("POST", "/v1/completions", Body(prompt_bytes, stream));
  server.gate().AwaitArrived(during);
  client.Close();
  ASSERT_TRUE(Gone(server, 1));
  server.gate().Open();
  EXPECT_TRUE(Eventually([&] { return server.pages_in_use() == 0; }));
  EXPECT_EQ(server.engine().Metrics().commits, during + 1) << "stream " << stream;
  EXPECT_EQ(server.engine().Metrics().requests_cancelled, 1u);
}

TEST(Cancellation, PagesOfAPromptAreFreeAtTheNextCommit) {
  for (const char* stream : {"true", "false"}) LeaveDuring(2, 500, stream);
}

TEST(Cancellation, PagesOfAnAnswerAreFreeAtTheNextCommit) {
  for (const char* stream : {"true", "false"}) LeaveDuring(30, 3, stream);
}

// Those that wait take no step at all: what runs ends when it would have ended.
TEST(Cancellation, WhoLeavesTheQueueTakesNoStep) {
  const auto commits_with = [](int waiting) {
    TestServer server({}, {.slots = 1});
    server.gate().Close();
    HttpClient running(server.port());
    running.SendRequest("POST", "/v1/completions", R"({"prompt":"abcdef","temperature":0})");
    server.gate().AwaitArrived(1);
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int i = 0; i < waiting; ++i) {
      clients.push_back(std::make_unique<HttpClient>(server.port()));
      clients.back()->SendRequest("POST", "/v1/completions", Body(50, i % 2 ? "true" : "false"));
    }
    EXPECT_TRUE(Eventually([&] {
      return Get(server.port(), "/metrics")
                 .body.find("\nkvrm_requests_open " + std::to_string(waiting + 1) + "\n") !=
             std::string::npos;
    }));
    clients.clear();
    EXPECT_TRUE(Gone(server, waiting));
    server.gate().Open();
    EXPECT_EQ(running.Receive().status, 200);
    EXPECT_TRUE(Eventually([&] { return server.pages_in_use() == 0; }));
    EXPECT_EQ(server.engine().Metrics().requests_cancelled, static_cast<uint64_t>(waiting));
    return server.engine().Metrics().commits;
  };
  EXPECT_EQ(commits_with(4), commits_with(0));
}

}  // namespace
}  // namespace kvrm
