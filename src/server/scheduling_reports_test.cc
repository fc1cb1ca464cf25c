// Field reports about scheduling, by number, as far as a client sees them over a socket.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/testing/named_events.h"
#include "server/testing/names.h"

namespace kvrm {
namespace {

namespace json = boost::json;
using testing::Text;

// Nothing runs and several wait: health must not say that all is well.
TEST(B021, HealthTurnsBadWhileRequestsWaitAndNothingRunsAndGoodAgain) {
  ServerConfig config;
  config.stall_timeout = std::chrono::milliseconds(50);
  config.keep_alive_interval = std::chrono::milliseconds(20);  // ticks often
  TestServer server(config, {.slots = 2, .run_engine = false});
  EXPECT_EQ(Get(server.port(), "/health").status, 200);
  std::vector<std::unique_ptr<HttpClient>> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.push_back(std::make_unique<HttpClient>(server.port()));
    waiting.back()->SendRequest("POST", kCompletions, R"({"prompt":"ab","temperature":0})");
  }
  HttpAnswer health;
  EXPECT_TRUE(Eventually([&] {
    health = Get(server.port(), "/health");
    return health.status == 503;
  }));
  EXPECT_EQ(Text(health.json().at("error").at("code")), "stalled");
  std::thread runner([&] { server.engine().Run(); });
  for (auto& client : waiting) EXPECT_EQ(client->Receive().status, 200);
  EXPECT_TRUE(Eventually([&] { return Get(server.port(), "/health").status == 200; }));
  server.engine().Stop();
  runner.join();
}

constexpr uint32_t kShortContext = 64;

// A route, a body without its end, and the route's own name of the bound.
struct UnboundedRoute {
  const char* path;
  const char* body;
  const char* bound;
};
const UnboundedRoute kUnboundedRoutes[] = {
    {"/v1/chat/completions", R"({"messages":[{"role":"user","content":"ab"}])", "max_tokens"},
    {"/v1/completions", R"({"prompt":"ab")", "max_tokens"},
    {"/completion", R"({"prompt":"ab")", "n_predict"},
    {"/v1/responses", R"({"input":"ab")", "max_output_tokens"},
    {"/v1/messages", R"({"messages":[{"role":"user","content":"ab"}])", "max_tokens"}};

// Whether an answer ended at its bound, and the tokens of its prompt and output, by its route.
struct BoundedEnd {
  bool at_bound = false;
  int64_t prompt_tokens = 0, output_tokens = 0;
};

BoundedEnd EndOf(const std::string& path, const json::value& body) {
  if (path == "/completion") {
    return {Text(body.at("stop_type")) == "limit", body.at("tokens_evaluated").as_int64(),
            body.at("tokens_predicted").as_int64()};
  }
  const json::value& usage = body.at("usage");
  if (path == "/v1/messages") {
    return {Text(body.at("stop_reason")) == "max_tokens",
            usage.at("input_tokens").as_int64() + usage.at("cache_read_input_tokens").as_int64(),
            usage.at("output_tokens").as_int64()};
  }
  if (path == "/v1/responses") {
    return {Text(body.at("status")) == "incomplete", usage.at("input_tokens").as_int64(),
            usage.at("output_tokens").as_int64()};
  }
  return {Text(body.at("choices").at(0).at("finish_reason")) == "length",
          usage.at("prompt_tokens").as_int64(), usage.at("completion_tokens").as_int64()};
}

// A model that never ends, asked in every way that names no bound.
TEST(B023, WithoutABoundAnAnswerEndsWhereTheContextEndsOnEveryRoute) {
  TestServer server({}, {.slots = 2, .max_seq_tokens = kShortContext});
  for (const UnboundedRoute& route : kUnboundedRoutes) {
    const std::string bound = route.bound;
    for (const std::string& field :
         {std::string(), ",\"" + bound + "\":null", ",\"" + bound + "\":-1"}) {
      const HttpAnswer answer =
          Post(server.port(), route.path,
               route.body + std::string(R"(,"temperature":0,"ignore_eos":true)") + field + "}");
      ASSERT_EQ(answer.status, 200) << route.path << field << answer.body;
      const BoundedEnd end = EndOf(route.path, answer.json());
      EXPECT_TRUE(end.at_bound) << route.path << field << answer.body;
      const bool sixteen = std::string(route.path) == "/v1/completions" &&
                           field.find("-1") == std::string::npos;  // the documented default
      EXPECT_EQ(end.output_tokens, sixteen ? 16 : kShortContext - end.prompt_tokens)
          << route.path << field;
    }
  }
  EXPECT_TRUE(Eventually([&] { return server.pages_in_use() == 0; }));
}

TEST(B023, ZeroIsThePromptAloneOrRefused) {
  TestServer server({}, {.slots = 2, .max_seq_tokens = kShortContext});
  for (const UnboundedRoute& route : kUnboundedRoutes) {
    const HttpAnswer answer =
        Post(server.port(), route.path,
             route.body + std::string(R"(,"ignore_eos":true,")") + route.bound + "\":0}");
    if (std::string(route.body).find("\"prompt\"") == std::string::npos) {
      EXPECT_EQ(answer.status, 400) << route.path << answer.body;
      EXPECT_NE(answer.body.find("0 is not at least 1"), std::string::npos) << answer.body;
      continue;
    }
    ASSERT_EQ(answer.status, 200) << route.path << answer.body;
    const BoundedEnd end = EndOf(route.path, answer.json());
    EXPECT_TRUE(end.at_bound) << route.path;
    EXPECT_EQ(end.output_tokens, 0) << route.path;
  }
}

// Its neighbour gets its own answer meanwhile, and the stream says why it ended.
TEST(B023, AStreamWithoutABoundEndsWithLengthBesideAnother) {
  TestServer server({}, {.slots = 2, .max_seq_tokens = kShortContext});
  HttpClient other(server.port());
  other.SendRequest("POST", kCompletions, R"({"prompt":"xyz","temperature":0})");
  const StreamAnswer stream =
      PostStream(server.port(), kChat,
                 R"({"messages":[{"role":"user","content":"ab"}],"temperature":0,"ignore_eos":true,
          "stream":true})");
  EXPECT_TRUE(stream.done);
  EXPECT_EQ(stream.finish_reasons(), std::vector<std::string>{"length"});
  EXPECT_EQ(Text(other.Receive().json().at("choices").at(0).at("text")), "xyz");
}

}  // namespace
}  // namespace kvrm
