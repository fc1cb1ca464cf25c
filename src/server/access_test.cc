// Who may ask: API keys, pages of other origins, what a request's head may carry; and the log line
// that each request leaves.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "server/routes.h"
#include "server/testing/http_client.h"
#include "server/testing/test_server.h"

namespace kvrm {
namespace {

using testing::Eventually;
using testing::HttpAnswer;
using testing::HttpClient;
using testing::TestServer;

constexpr const char* kBody = R"({"prompt":"ab","temperature":0})";
using testing::kCompletions;

ServerConfig WithKeys(std::vector<std::string> keys) {
  ServerConfig config;
  config.api_keys = std::move(keys);
  return config;
}

HttpAnswer Ask(uint16_t port, std::string_view method, std::string_view target,
               const std::string& headers) {
  HttpClient client(port);
  client.SendRequest(method, target, method == "POST" ? kBody : "", headers);
  return client.Receive(/*head=*/method == "OPTIONS");
}

TEST(ApiKeyAccess, WithoutKeysWhateverIsPresentedPasses) {
  TestServer server;
  // An evaluation harness sends an empty one.
  for (const char* headers : {"", "Authorization: Bearer \r\n", "Authorization: Bearer x\r\n"}) {
    EXPECT_EQ(Ask(server.port(), "POST", kCompletions, headers).status, 200) << headers;
  }
}

TEST(ApiKeyAccess, BothHeadersCarryAKeyAndWrongOnesAreRefused) {
  TestServer server(WithKeys({"sk-one", "sk-two"}));
  for (const char* headers : {"Authorization: Bearer sk-one\r\n",
                              "Authorization: bearer  sk-two\r\n", "x-api-key: sk-two\r\n"}) {
    EXPECT_EQ(Ask(server.port(), "POST", kCompletions, headers).status, 200) << headers;
  }
  for (const char* headers :
       {"", "Authorization: Bearer \r\n", "Authorization: Bearer sk-on\r\n",
        "Authorization: Bearer sk-one1\r\n", "Authorization: Basic sk-one\r\n",
        "Authorization: sk-one\r\n", "x-api-key: sk-three\r\n"}) {
    const HttpAnswer answer = Ask(server.port(), "POST", kCompletions, headers);
    EXPECT_EQ(answer.status, 401) << headers;
    EXPECT_EQ(answer.headers.at("www-authenticate"), "Bearer");
    EXPECT_EQ(answer.json().at("error").at("code").as_string(), "invalid_api_key");
    EXPECT_EQ(answer.body.find("sk-one"), std::string::npos) << "no secret comes back";
  }
}

TEST(ApiKeyAccess, OnlyProbesAreOpen) {
  TestServer server(WithKeys({"sk-one"}));
  for (const RouteInfo& info : AllRoutes()) {
    const std::string method = IsPost(info.route) ? "POST" : "GET";
    const int status = Ask(server.port(), method, info.path, "").status;
    const bool probe =
        info.route == Route::kHealth || info.route == Route::kReady || info.route == Route::kLive;
    EXPECT_EQ(status, probe ? 200 : 401) << info.path;
  }
  EXPECT_EQ(Ask(server.port(), "GET", "/nowhere", "").status, 401)
      << "what there is, is not told either";
}

TEST(ApiKeyAccess, RefusedBodiesAreNotTakenForTheNextRequest) {
  TestServer server(WithKeys({"sk-one"}));
  HttpClient client(server.port());
  client.SendRequest("POST", kCompletions, "GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const HttpAnswer answer = client.Receive();
  EXPECT_EQ(answer.status, 401);
  EXPECT_EQ(answer.headers.at("connection"), "close");
  EXPECT_TRUE(client.AwaitClose());
}

TEST(ApiKeyAccess, AKeysAnswersAtOnceAreBoundedForItAlone) {
  const std::string path = ::testing::TempDir() + "access-keys-" + std::to_string(getpid());
  std::ofstream(path) << "sk-small max-requests=2\nsk-other\n";
  ServerConfig config;
  config.api_key_file = path;
  TestServer server(config);
  server.gate().Close();
  const std::string small = "Authorization: Bearer sk-small\r\n";
  std::vector<std::unique_ptr<HttpClient>> open;
  for (int i = 0; i < 2; ++i) {
    open.push_back(std::make_unique<HttpClient>(server.port()));
    open.back()->SendRequest("POST", kCompletions, kBody, small);
  }
  EXPECT_TRUE(Eventually([&] {
    HttpClient client(server.port());
    client.SendRequest("GET", "/metrics", "", small);
    return client.Receive().body.find("\nkvrm_requests_open 2\n") != std::string::npos;
  }));
  const HttpAnswer refused = Ask(server.port(), "POST", kCompletions, small);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.json().at("error").at("code").as_string(), "key_limit");
  EXPECT_EQ(refused.headers.count("retry-after"), 1u);
  HttpClient other(server.port());
  other.SendRequest("POST", kCompletions, kBody, "x-api-key: sk-other\r\n");
  open[1]->Close();  // hanging up gives its place back
  server.gate().Open();
  EXPECT_EQ(open[0]->Receive().status, 200);
  EXPECT_EQ(other.Receive().status, 200);
  EXPECT_TRUE(
      Eventually([&] { return Ask(server.port(), "POST", kCompletions, small).status == 200; }));
  std::remove(path.c_str());
}

// ---- pages of other origins
TEST(Cors, IsOffUnlessAnOriginIsNamed) {
  TestServer server;
  const HttpAnswer plain = Ask(server.port(), "GET", "/v1/models", "Origin: https://a.example\r\n");
  EXPECT_EQ(plain.status, 200);
  EXPECT_EQ(plain.headers.count("access-control-allow-origin"), 0u);
  const HttpAnswer asked =
      Ask(server.port(), "OPTIONS", kCompletions,
          "Origin: https://a.example\r\nAccess-Control-Request-Method: POST\r\n");
  EXPECT_EQ(asked.status, 405);
  EXPECT_EQ(asked.headers.count("access-control-allow-origin"), 0u);
}

TEST(Cors, NamedOriginsMayAskAndOthersMayNot) {
  ServerConfig config = WithKeys({"sk-one"});
  config.cors_origins = {"https://a.example", "https://b.example"};
  TestServer server(config);
  const std::string ask = "Access-Control-Request-Method: POST\r\n";
  const HttpAnswer leave =
      Ask(server.port(), "OPTIONS", kCompletions, "Origin: https://b.example\r\n" + ask);
  EXPECT_EQ(leave.status, 204);
  EXPECT_EQ(leave.headers.at("access-control-allow-origin"), "https://b.example");
  EXPECT_EQ(leave.headers.at("vary"), "Origin");
  EXPECT_NE(leave.headers.at("access-control-allow-headers").find("Authorization"),
            std::string::npos);
  EXPECT_EQ(leave.headers.count("content-length"), 0u);
  // The leave is no answer: the key is still needed.
  const HttpAnswer refused =
      Ask(server.port(), "POST", kCompletions, "Origin: https://b.example\r\n");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers.at("access-control-allow-origin"), "https://b.example");
  for (const char* origin : {"https://c.example", "http://a.example", "https://a.example.evil",
                             "null", "https://A.example"}) {
    const std::string header = "Origin: " + std::string(origin) + "\r\n";
    EXPECT_EQ(Ask(server.port(), "OPTIONS", kCompletions, header + ask).status, 401) << origin;
    const HttpAnswer answer =
        Ask(server.port(), "GET", "/v1/models", header + "x-api-key: sk-one\r\n");
    EXPECT_EQ(answer.headers.count("access-control-allow-origin"), 0u) << origin;
  }
}

TEST(Cors, StreamsCarryTheLeaveToo) {
  ServerConfig config;
  config.cors_origins = {"*"};
  TestServer server(config);
  HttpClient client(server.port());
  client.SendRequest("POST", kCompletions, R"({"prompt":"ab","stream":true})",
                     "Origin: https://any.example\r\n");
  EXPECT_EQ(client.Receive().headers.at("access-control-allow-origin"), "*");
  client.SendRequest("GET", "/health", "");
  EXPECT_EQ(client.Receive().headers.count("access-control-allow-origin"), 0u)
      << "a request without an origin asks for no leave";
}

// ---- the log
TEST(AccessLog, EachRequestLeavesOneLineAndNoTokenDoes) {
  ServerConfig config = WithKeys({"sk-one"});
  config.log_format = LogFormat::kJson;
  TestServer server(config);
  HttpClient client(server.port());
  const std::string trace = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01";
  client.SendRequest(
      "POST", kCompletions,
      R"({"prompt":")" + std::string(100, 'x') + R"(","stream":true,"max_tokens":80})",
      "x-api-key: sk-one\r\nX-Request-ID: mine\r\ntraceparent: " + trace + "\r\n");
  EXPECT_TRUE(client.Receive().complete);
  client.SendRequest("GET", "/health");
  EXPECT_EQ(client.Receive().status, 200);
  client.SendRequest("POST", "/tokenize", "{}", "x-api-key: sk-one\r\n");
  const HttpAnswer bad = client.Receive();
  EXPECT_EQ(bad.status, 400);
  EXPECT_TRUE(Eventually([&] { return server.log().size() >= 2; }));
  const std::vector<std::string> log = server.log();
  ASSERT_EQ(log.size(), 2u) << "probes leave none";
  const auto line = boost::json::parse(log[0]);
  EXPECT_EQ(line.at("request_id").as_string(), "mine");
  EXPECT_EQ(line.at("traceparent").as_string(), trace);
  EXPECT_EQ(line.at("key").as_string(), "key-1");
  EXPECT_EQ(line.at("route").as_string(), kCompletions);
  EXPECT_EQ(line.at("status").as_int64(), 200);
  EXPECT_EQ(line.at("prompt_tokens").as_int64(), 100);
  EXPECT_EQ(line.at("output_tokens").as_int64(), 80);
  EXPECT_EQ(line.at("finish_reason").as_string(), "length");
  const auto second = boost::json::parse(log[1]);
  EXPECT_EQ(second.at("status").as_int64(), 400);
  EXPECT_EQ(std::string(second.at("request_id").as_string()), bad.headers.at("x-request-id"))
      << "a request without an id is given one";
}

TEST(AccessLog, ClientsThatGoAwayLeaveTheirLineToo) {
  TestServer server;
  server.gate().Close();
  {
    HttpClient client(server.port());
    client.SendRequest("POST", kCompletions, kBody);
    server.gate().AwaitArrived(1);
  }
  EXPECT_TRUE(Eventually([&] { return !server.log().empty(); }));
  EXPECT_NE(server.log()[0].find("/v1/completions 0 id=req-"), std::string::npos);
  EXPECT_NE(server.log()[0].find(" client-gone"), std::string::npos);
  server.gate().Open();
}

}  // namespace
}  // namespace kvrm
