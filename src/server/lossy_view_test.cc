// An engine whose view shows less than the model asks for: every answer and every metric says so,
// in places that clients read over. One whose view is exact says nothing.
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "server/testing/http_client.h"
#include "server/testing/test_server.h"

namespace kvrm {
namespace {

using testing::Get;
using testing::HttpAnswer;
using testing::Post;
using testing::TestServer;

constexpr const char* kView = "sliding:64";

struct Route {
  const char* path;
  const char* body;
};
constexpr Route kRoutes[] = {
    {"/v1/completions", R"({"prompt":"ab","max_tokens":2})"},
    {"/v1/chat/completions", R"({"messages":[{"role":"user","content":"ab"}],"max_tokens":2})"},
    {"/completion", R"({"prompt":"ab","n_predict":2})"},
    {"/v1/responses", R"({"input":"ab","max_output_tokens":2})"},
    {"/v1/messages", R"({"messages":[{"role":"user","content":"ab"}],"max_tokens":2})"}};

TEST(LossyView, IsSaidByEveryAnswerWholeAndStreamed) {
  TestServer server({}, {.lossy_view = kView});
  for (const Route& route : kRoutes) {
    const HttpAnswer whole = Post(server.port(), route.path, route.body);
    ASSERT_EQ(whole.status, 200) << route.path << whole.body;
    EXPECT_EQ(whole.headers.at("x-lossy-view"), kView) << route.path;
    const boost::json::value body = whole.json();
    const auto* fingerprint = body.as_object().if_contains("system_fingerprint");
    if (fingerprint != nullptr) {
      EXPECT_EQ(fingerprint->as_string(), "kvrm-sliding:64") << route.path;
    } else {
      EXPECT_EQ(body.at("view").as_string(), kView) << route.path;
    }
    std::string streamed = route.body;
    streamed.insert(1, R"("stream":true,)");
    const HttpAnswer stream = Post(server.port(), route.path, streamed);
    ASSERT_EQ(stream.status, 200) << route.path << stream.body;
    EXPECT_EQ(stream.headers.at("x-lossy-view"), kView) << route.path;
    EXPECT_NE(stream.body.find(kView), std::string::npos) << route.path << stream.body;
  }
}

TEST(LossyView, IsSaidByEveryMetric) {
  TestServer server({}, {.lossy_view = kView});
  Post(server.port(), "/v1/completions", kRoutes[0].body);
  std::istringstream lines(Get(server.port(), "/metrics").body);
  uint32_t samples = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    EXPECT_NE(line.find("view=\"sliding:64\""), std::string::npos) << line;
    ++samples;
  }
  EXPECT_GT(samples, 100u);
}

TEST(LossyView, AnExactOneIsNotSpokenOf) {
  TestServer server;
  for (const Route& route : kRoutes) {
    const HttpAnswer whole = Post(server.port(), route.path, route.body);
    ASSERT_EQ(whole.status, 200) << route.path << whole.body;
    EXPECT_FALSE(whole.headers.contains("x-lossy-view")) << route.path;
    EXPECT_EQ(whole.body.find("view"), std::string::npos) << route.path << whole.body;
  }
  const std::string metrics = Get(server.port(), "/metrics").body;
  EXPECT_EQ(metrics.find("view="), std::string::npos);
  EXPECT_NE(metrics.find("\nkvrm_view_lossy 0\n"), std::string::npos);
}

}  // namespace
}  // namespace kvrm
