// Law I7 to the last byte: a gap that the connection made is counted under `output`, one of the
// engine's under its own cause, and no gap twice.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

#include "server/testing/http_client.h"
#include "server/testing/test_server.h"

namespace kvrm {
namespace {

using testing::Eventually;
using testing::Get;
using testing::HttpAnswer;
using testing::HttpClient;
using testing::TestServer;

using testing::kCompletions;

// What a family of metrics says of each cause.
std::map<std::string, double> ByCause(TestServer& server, const std::string& family) {
  std::map<std::string, double> values;
  const std::string text = Get(server.port(), "/metrics").body;
  const std::string begin = "\n" + family + "{cause=\"";
  for (size_t at = 0; (at = text.find(begin, at)) != std::string::npos;) {
    at += begin.size();
    const size_t quote = text.find('"', at);
    values[text.substr(at, quote - at)] = std::strtod(text.c_str() + quote + 2, nullptr);
  }
  EXPECT_EQ(values.size(), kNumGapCauses);
  return values;
}
std::map<std::string, double> Excess(TestServer& server) {
  return ByCause(server, "kvrm_gap_excess_seconds_total");
}
std::map<std::string, double> OverBudget(TestServer& server) {
  return ByCause(server, "kvrm_gaps_over_budget_total");
}
double Sum(const std::map<std::string, double>& values) {
  double sum = 0;
  for (const auto& [cause, value] : values) sum += value;
  return sum;
}

// A stream of `tokens` events of a kilobyte or more each.
std::string WideStream(uint32_t tokens) {
  return R"({"logprobs":20,"stream":true,"temperature":0,"max_tokens":)" + std::to_string(tokens) +
         R"(,"prompt":")" + std::string(tokens, 'x') + "\"}";
}
ServerConfig NarrowSockets() {
  ServerConfig config;
  config.send_buffer_bytes = 4096;
  config.max_outbox_bytes = uint64_t{1} << 40;
  return config;
}

bool AnswersOpen(TestServer& server, int count) {
  return Eventually([&] {
    return Get(server.port(), "/metrics")
               .body.find("\nkvrm_requests_open " + std::to_string(count) + "\n") !=
           std::string::npos;
  });
}

// Until the client has the first text: how much of the answer is made by then is the test's choice.
void SendAndReadTheFirstText(TestServer& server, HttpClient& client, const std::string& body) {
  server.gate().Close();
  client.SendRequest("POST", kCompletions, body);
  for (uint64_t step = 1; server.engine().Metrics().output_tokens == 0; ++step) {
    server.gate().AwaitArrived(step);
    server.gate().PassOne();
    server.gate().AwaitArrived(step + 1);  // and the step before it is over
  }
  EXPECT_TRUE(client.ReceiveUntil("data:"));
}

// The engine makes the rest of the answer meanwhile; what its reader leaves in the socket is late.
TEST(OutputGaps, AClientThatStopsReadingIsOutput) {
  TestServer server(NarrowSockets(), {.max_seq_tokens = 2048, .max_itl_us = 50'000});
  HttpClient client(server.port(), /*receive_buffer_bytes=*/4096);
  SendAndReadTheFirstText(server, client, WideStream(500));
  server.gate().Open();
  ASSERT_TRUE(Eventually([&] { return server.engine().Metrics().output_tokens == 500; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  const HttpAnswer answer = client.Receive();
  EXPECT_TRUE(answer.complete);
  ASSERT_TRUE(AnswersOpen(server, 0));
  const auto excess = Excess(server);
  EXPECT_GT(excess.at("output"), 1.0);
  EXPECT_GE(excess.at("output"), 0.95 * Sum(excess));
}

TEST(OutputGaps, AStreamThatIsCutCountsTheGapThatCutIt) {
  ServerConfig config = NarrowSockets();
  config.write_timeout = std::chrono::milliseconds(400);
  TestServer server(config, {.max_seq_tokens = 2048, .max_itl_us = 50'000});
  HttpClient client(server.port(), /*receive_buffer_bytes=*/4096);
  SendAndReadTheFirstText(server, client, WideStream(1000));
  server.gate().Open();
  ASSERT_TRUE(Eventually([&] { return Excess(server)["output"] > 0; }));
  const auto excess = Excess(server);
  EXPECT_GE(excess.at("output"), 0.95 * Sum(excess));
}

// The socket shows the same gap as the engine; it is counted where its cause is known.
TEST(OutputGaps, AGapOfTheEnginesIsCountedOnce) {
  TestServer server({}, {.max_itl_us = 200'000});
  server.gate().CloseAfter(3);
  HttpClient client(server.port());
  client.SendRequest("POST", kCompletions,
                     R"({"prompt":"abcdefgh","temperature":0,"stream":true})");
  server.gate().AwaitArrived(4);
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  server.gate().Open();
  EXPECT_TRUE(client.Receive().complete);
  ASSERT_TRUE(AnswersOpen(server, 0));
  const auto over = OverBudget(server);
  EXPECT_EQ(over.at("decode"), 1);
  EXPECT_EQ(Sum(over), 1);
  EXPECT_GT(Excess(server).at("decode"), 0.7);
}

}  // namespace
}  // namespace kvrm
