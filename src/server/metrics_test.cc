// Metrics that only a server tells of: each moves when what it counts happens. (Those of engine and
// pager: tests/cli/metrics_test.py, which also holds docs/metrics.md to both tests together.)
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <map>
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
using testing::Post;
using testing::TestServer;

using testing::kCompletions;

// Every series with its value.
std::map<std::string, double> Scrape(uint16_t port) {
  std::map<std::string, double> values;
  const std::string text = Get(port, "/metrics").body;
  for (size_t at = 0; at < text.size();) {
    const std::string line = text.substr(at, text.find('\n', at) - at);
    at += line.size() + 1;
    if (line.empty() || line[0] == '#') continue;
    const size_t blank = line.rfind(' ');
    values[line.substr(0, blank)] = std::strtod(line.c_str() + blank, nullptr);
  }
  return values;
}

// What `happens` adds to `series`.
double Added(TestServer& server, const std::string& series, const std::function<void()>& happens) {
  const double before = Scrape(server.port())[series];
  happens();
  return Scrape(server.port())[series] - before;
}

bool Reaches(TestServer& server, const std::string& series, double value) {
  return Eventually([&] { return Scrape(server.port())[series] == value; });
}

TEST(ServerMetrics, ReadinessAndConnections) {
  ServerConfig config;
  config.max_connections = 3;
  TestServer server(config, {.attach = false});
  EXPECT_EQ(Scrape(server.port())["kvrm_ready"], 0);
  EXPECT_EQ(Added(server, R"(kvrm_http_responses_total{route="/v1/completions",status="503"})",
                  [&] { Post(server.port(), kCompletions, "{}"); }),
            1);
  server.Attach();
  EXPECT_EQ(Scrape(server.port())["kvrm_ready"], 1);
  EXPECT_EQ(Scrape(server.port())[R"(kvrm_requests_refused_total{reason="not_ready"})"], 1);
  const double accepted = Scrape(server.port())["kvrm_http_connections_accepted_total"];
  auto held = std::make_unique<HttpClient>(server.port());
  EXPECT_TRUE(Reaches(server, "kvrm_http_connections", 2));
  EXPECT_GE(Scrape(server.port())["kvrm_http_connections_accepted_total"], accepted + 2);
  HttpClient second(server.port()), third(server.port()), fourth(server.port());
  EXPECT_EQ(fourth.Receive().status, 503);
  held.reset();
  second.Close();
  third.Close();
  // At least: a look that comes before the server has seen the three go is refused, too.
  EXPECT_TRUE(Eventually(
      [&] { return Scrape(server.port())["kvrm_http_connections_refused_total"] >= 1; }));
}

TEST(ServerMetrics, RequestsByApiAndEnd) {
  TestServer server;
  const auto count = [&](const std::string& series, const char* target, const char* body) {
    return Added(server, series, [&] { Post(server.port(), target, body); });
  };
  const char* chat = R"({"messages":[{"role":"user","content":"a"}],"max_tokens":4})";
  const char* prompt = R"({"prompt":"ab","temperature":0})";
  EXPECT_EQ(count(R"(kvrm_requests_total{api="chat"})", "/v1/chat/completions", chat), 1);
  EXPECT_EQ(count(R"(kvrm_requests_total{api="completions"})", kCompletions, prompt), 1);
  EXPECT_EQ(count(R"(kvrm_requests_total{api="native"})", "/completion", prompt), 1);
  EXPECT_EQ(count(R"(kvrm_requests_total{api="responses"})", "/v1/responses", R"({"input":"a"})"),
            1);
  EXPECT_EQ(count(R"(kvrm_requests_total{api="messages"})", "/v1/messages", chat), 1);
  EXPECT_EQ(count(R"(kvrm_choices_finished_total{reason="stop"})", kCompletions, prompt), 1);
  EXPECT_EQ(count(R"(kvrm_choices_finished_total{reason="stop"})", kCompletions,
                  R"({"prompt":"a.b","temperature":0,"stop":"."})"),
            1)
      << "by a stop string";
  EXPECT_EQ(count(R"(kvrm_choices_finished_total{reason="length"})", kCompletions,
                  R"({"prompt":"abc","temperature":0,"max_tokens":1,"n":2})"),
            2);
  EXPECT_EQ(count("kvrm_requests_failed_total", kCompletions, R"({"prompt":[70,290]})"), 1);
  for (const char* histogram : {"kvrm_time_to_first_token_seconds_count",
                                "kvrm_request_seconds_count", "kvrm_queue_seconds_count"}) {
    EXPECT_EQ(count(histogram, kCompletions, prompt), 1) << histogram;
  }
}

TEST(ServerMetrics, WhatRunsWaitsIsRefusedAndGivesUp) {
  TestServer server({}, {.slots = 1, .max_queued = 1});
  EXPECT_EQ(Scrape(server.port())["kvrm_slots"], 1);
  EXPECT_EQ(Scrape(server.port())["kvrm_kv_tokens_capacity"],
            static_cast<double>(server.engine().kv_tokens()));
  server.gate().Close();
  HttpClient running(server.port());
  auto queued = std::make_unique<HttpClient>(server.port());
  running.SendRequest("POST", kCompletions, R"({"prompt":"ab"})");
  server.gate().AwaitArrived(1);
  queued->SendRequest("POST", kCompletions, R"({"prompt":"ab"})");
  EXPECT_TRUE(Reaches(server, "kvrm_requests_open", 2));
  const std::string full = R"(kvrm_requests_refused_total{reason="queue_full"})";
  EXPECT_EQ(Added(server, full, [&] { Post(server.port(), kCompletions, R"({"prompt":"a"})"); }),
            1);
  queued.reset();
  EXPECT_TRUE(Reaches(server, "kvrm_client_gone_total", 1));
  EXPECT_EQ(Scrape(server.port())["kvrm_requests_abandoned_total"], 1);
  server.gate().Open();
  EXPECT_EQ(running.Receive().status, 200);
  EXPECT_TRUE(Reaches(server, "kvrm_requests_open", 0));
}

// The engine tells of a step when it is over.
TEST(ServerMetrics, TheEnginesOwn) {
  TestServer server({}, {.slots = 1});
  server.gate().Close();
  HttpClient running(server.port()), queued(server.port());
  running.SendRequest("POST", kCompletions, R"({"prompt":"abcdef","temperature":0})");
  server.gate().AwaitArrived(1);
  queued.SendRequest("POST", kCompletions, R"({"prompt":"ab","temperature":0})");
  EXPECT_TRUE(Reaches(server, "kvrm_requests_open", 2));
  server.gate().PassOne();
  server.gate().AwaitArrived(2);  // step 1 is over, and the second request accepted
  server.gate().PassOne();
  server.gate().AwaitArrived(3);
  auto values = Scrape(server.port());
  EXPECT_EQ(values["kvrm_running"], 1);
  EXPECT_EQ(values["kvrm_queued"], 1);
  EXPECT_EQ(values[R"(vllm:num_requests_running{model_name="copy-model"})"], 1);
  EXPECT_EQ(values[R"(vllm:num_requests_waiting{model_name="copy-model"})"], 1);
  EXPECT_GT(values[R"(vllm:kv_cache_usage_perc{model_name="copy-model"})"], 0);
  EXPECT_GT(values[R"(vllm:gpu_cache_usage_perc{model_name="copy-model"})"], 0);
  EXPECT_GT(values["kvrm_read_runs"], 0);
  EXPECT_GT(values["kvrm_read_run_bytes"], 0);
  EXPECT_EQ(values["kvrm_prompt_tokens_total"], 6);
  EXPECT_EQ(values["kvrm_output_tokens_total"], 2);
  server.gate().Open();
  EXPECT_EQ(running.Receive().status, 200);
  EXPECT_EQ(queued.Receive().status, 200);
  EXPECT_TRUE(Reaches(server, "kvrm_output_tokens_total", 7 + 3));
}

TEST(ServerMetrics, RoomThatRunsOut) {
  TestServer server({}, {.slots = 4, .max_seq_tokens = 128, .pool_tokens = 256});
  std::vector<std::unique_ptr<HttpClient>> clients;
  server.gate().Close();
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server.port()));
    clients.back()->SendRequest(
        "POST", kCompletions,
        R"({"prompt":"abcdefgh","max_tokens":110,"ignore_eos":true,"temperature":0})");
  }
  EXPECT_TRUE(Reaches(server, "kvrm_requests_open", 4));
  server.gate().Open();
  for (auto& client : clients) EXPECT_EQ(client->Receive().status, 200);
  auto values = Scrape(server.port());
  EXPECT_GT(values["kvrm_preemptions_total"], 0);
  EXPECT_GT(values["kvrm_deferred_total"], 0);
}

// Two that have tests of their own: kvrm_outbox_overflow_total, by bytes and by age, in
// stream_wire_test.cc, and kvrm_view_lossy in lossy_view_test.cc.
TEST(ServerMetrics, TimeoutsAndStalls) {
  ServerConfig config;
  config.stall_timeout = std::chrono::milliseconds(50);
  config.keep_alive_interval = std::chrono::milliseconds(20);  // ticks often
  TestServer server(config, {.slots = 1});
  server.gate().Close();
  HttpClient running(server.port());
  running.SendRequest("POST", kCompletions, R"({"prompt":"ab","temperature":0})");
  server.gate().AwaitArrived(1);
  EXPECT_TRUE(Reaches(server, "kvrm_engine_stalled", 1));
  EXPECT_EQ(Added(server, "kvrm_requests_timed_out_total",
                  [&] { Post(server.port(), kCompletions, R"({"prompt":"a","timeout":0.02})"); }),
            1);
  server.gate().Open();
  EXPECT_EQ(running.Receive().status, 200);
  EXPECT_TRUE(Reaches(server, "kvrm_engine_stalled", 0));
}

TEST(ServerMetrics, KeysThatAreWrongOrBusy) {
  ServerConfig config;
  config.api_key_file = ::testing::TempDir() + "kvrm-metrics-keys";
  FILE* const file = std::fopen(config.api_key_file.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs("secret max-requests=1\n", file);
  std::fclose(file);
  TestServer server(config);
  std::remove(config.api_key_file.c_str());
  constexpr const char* kKey = "Authorization: Bearer secret\r\n";
  EXPECT_EQ(Post(server.port(), kCompletions, R"({"prompt":"a"})").status, 401);
  server.gate().Close();
  HttpClient first(server.port()), second(server.port());
  first.SendRequest("POST", kCompletions, R"({"prompt":"a"})", kKey);
  server.gate().AwaitArrived(1);
  second.SendRequest("POST", kCompletions, R"({"prompt":"a"})", kKey);
  EXPECT_EQ(second.Receive().status, 429);
  server.gate().Open();
  EXPECT_EQ(first.Receive().status, 200);
  second.SendRequest("GET", "/metrics", {}, kKey);
  const std::string text = second.Receive().body;
  EXPECT_NE(text.find(R"(kvrm_requests_refused_total{reason="no_key"} 1)"), std::string::npos);
  EXPECT_NE(text.find(R"(kvrm_requests_refused_total{reason="key_limit"} 1)"), std::string::npos);
}

}  // namespace
}  // namespace kvrm
