// What GET answers, over HTTP; and which routes answer in which phase.
#include <gtest/gtest.h>

#include <string>

#include "server/routes.h"
#include "server/testing/http_client.h"
#include "server/testing/test_server.h"

namespace kvrm {
namespace {

using testing::Eventually;
using testing::Get;
using testing::HttpAnswer;
using testing::HttpClient;
using testing::Post;
using testing::TestServer;

// A body that a route of kind kConvert or kGenerate answers with 200.
std::string BodyOf(Route route) {
  switch (route) {
    case Route::kDetokenize:
      return R"({"tokens":[70]})";
    case Route::kResponses:
      return R"({"input":"ab"})";
    case Route::kChat:
    case Route::kApplyTemplate:
    case Route::kMessages:
    case Route::kCountTokens:
      return R"({"messages":[{"role":"user","content":"ab"}]})";
    default:
      return R"({"prompt":"ab"})";
  }
}

std::string Target(const RouteInfo& info) {
  return info.route == Route::kModel ? "/v1/models/copy-model" : std::string(info.path);
}

HttpAnswer Ask(uint16_t port, const RouteInfo& info) {
  return IsPost(info.route) ? Post(port, Target(info), BodyOf(info.route))
                            : Get(port, Target(info));
}

TEST(ReadRoutes, EveryRouteOfTheTableAnswers) {
  TestServer server;
  for (const RouteInfo& info : AllRoutes()) {
    const HttpAnswer answer = Ask(server.port(), info);
    EXPECT_EQ(answer.status, info.kind == RouteKind::kNone ? 400 : 200) << info.path;
    EXPECT_TRUE(answer.complete) << info.path;
    if (info.route != Route::kMetrics && info.route != Route::kIcon) answer.json();
  }
  const std::string metrics = Get(server.port(), "/metrics").body;
  EXPECT_NE(metrics.find("kvrm_http_responses_total{route=\"/tokenize\",status=\"200\"} 1\n"),
            std::string::npos);
  EXPECT_NE(
      metrics.find("kvrm_http_responses_total{route=\"/v1/chat/completions\",status=\"200\"} 3\n"),
      std::string::npos)
      << "aliases count under the route's name";
}

TEST(ReadRoutes, WhileLoadingOnlyTheServersOwnStateAnswers) {
  TestServer server({}, {.attach = false});
  for (const RouteInfo& info : AllRoutes()) {
    const HttpAnswer answer = Ask(server.port(), info);
    const bool probe = info.route == Route::kHealth || info.route == Route::kReady;
    const int wanted = info.kind == RouteKind::kNone              ? 400
                       : info.kind == RouteKind::kState && !probe ? 200
                                                                  : 503;
    EXPECT_EQ(answer.status, wanted) << info.path;
  }
}

// A process that must not be killed for draining, and must get no new work while it does.
TEST(ReadRoutes, DrainingIsLiveAndNotReady) {
  TestServer server({}, {.slots = 1});
  server.gate().Close();
  HttpClient open(server.port());
  open.SendRequest("POST", "/v1/completions", R"({"prompt":"ab"})");
  server.gate().AwaitArrived(1);
  server.server().Drain([] {});
  EXPECT_TRUE(Eventually([&] { return Get(server.port(), "/ready").status == 503; }));
  EXPECT_EQ(Get(server.port(), "/health").status, 503);
  EXPECT_EQ(Get(server.port(), "/live").status, 200);
  server.gate().Open();
  EXPECT_EQ(open.Receive().status, 200);
}

TEST(ReadRoutes, SlotsShowHowManyAreBusy) {
  TestServer server({}, {.slots = 2, .run_engine = false});
  const auto busy = [&] {
    int count = 0;
    const auto slots = Get(server.port(), "/slots").json();
    for (const auto& slot : slots.as_array()) {
      count += slot.at("is_processing").as_bool() ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(busy(), 0);
  HttpClient first(server.port()), second(server.port());
  for (HttpClient* client : {&first, &second}) {
    EXPECT_EQ(Get(server.port(), "/slots?fail_on_no_slot=1").status, 200);
    client->SendRequest("POST", "/v1/completions", R"({"prompt":"abcdef"})");
    const std::string open = client == &first ? "1" : "2";
    EXPECT_TRUE(Eventually([&] {
      return Get(server.port(), "/metrics").body.find("\nkvrm_requests_open " + open + "\n") !=
             std::string::npos;
    }));
    server.engine().Step();
    EXPECT_EQ(busy(), client == &first ? 1 : 2);
  }
  const HttpAnswer full = Get(server.port(), "/slots?fail_on_no_slot=1");
  EXPECT_EQ(full.status, 503);
  EXPECT_EQ(full.json().at("error").at("code").as_string(), "no_slot");
}

TEST(ReadRoutes, PropsTellDefaultsThatARequestWouldGet) {
  ServerConfig config;
  config.defaults.sampling.temperature = 0.25f;
  config.alias = "nick";
  TestServer server(config);
  const auto props = Get(server.port(), "/props").json();
  const auto& settings = props.at("default_generation_settings");
  EXPECT_EQ(settings.at("params").at("temperature").as_double(), 0.25);
  EXPECT_EQ(settings.at("n_ctx").as_int64(), 512);
  EXPECT_EQ(props.at("total_slots").as_int64(), 8);
  EXPECT_EQ(props.at("model_alias").as_string(), "nick");
  EXPECT_EQ(props.at("eos_token").as_string(), "<|im_end|>");
}

TEST(ReadRoutes, WhatIsNotOfferedIsNamed) {
  TestServer server;
  const HttpAnswer answer = Post(server.port(), "/v1/embeddings", R"({"input":"a"})");
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json().at("error").at("code").as_string(), "unsupported_route");
  EXPECT_NE(answer.body.find("embeddings: not offered"), std::string::npos) << answer.body;
}

}  // namespace
}  // namespace kvrm
