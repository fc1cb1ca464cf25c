// Timeouts and priorities of requests, whichever API.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "server/testing/http_client.h"
#include "server/testing/named_events.h"
#include "server/testing/test_server.h"

namespace kvrm {
namespace {

namespace json = boost::json;
using testing::HttpAnswer;
using testing::ParamOf;
using testing::Post;
using testing::TestServer;
using testing::Text;

TEST(Timeout, BeforeTheFirstTokenIsAnErrorAndAfterItAnEnd) {
  TestServer server({}, {.slots = 1, .max_seq_tokens = 4096});
  server.gate().Close();
  const HttpAnswer queued =
      Post(server.port(), "/v1/completions", R"({"prompt":"ab","timeout":0.02})");
  EXPECT_EQ(queued.status, 408);
  EXPECT_EQ(queued.json().at("error").at("code").as_string(), "timeout");
  server.gate().Open();
  EXPECT_TRUE(testing::Eventually([&] { return server.pages_in_use() == 0; }));
  // The replay after the tenth waits until the time is up.
  testing::HttpClient client(server.port());
  server.gate().CloseAfter(10);
  client.SendRequest("POST", "/v1/completions",
                     R"({"prompt":"abcdefghijklmnopqrstuvwxyz","temperature":0,"max_tokens":26,
                         "timeout":1.5})");
  EXPECT_TRUE(testing::Eventually([&] {
    return testing::Get(server.port(), "/metrics").body.find("kvrm_requests_timed_out_total 2\n") !=
           std::string::npos;
  }));
  server.gate().Open();
  const HttpAnswer cut = client.Receive();
  EXPECT_EQ(cut.status, 200) << cut.body;
  const auto choice = cut.json().at("choices").as_array()[0];
  EXPECT_EQ(Text(choice.at("finish_reason")), "length");
  EXPECT_EQ(Text(choice.at("text")).substr(0, 5), "abcde");
  EXPECT_LT(Text(choice.at("text")).size(), 26u);
  EXPECT_TRUE(testing::Eventually([&] { return server.pages_in_use() == 0; }));
}

TEST(Timeout, ALongOneChangesNothing) {
  TestServer server;
  const auto answer =
      Post(server.port(), "/v1/completions", R"({"prompt":"ab","temperature":0,"timeout":3600})");
  EXPECT_EQ(answer.status, 200);
  for (const char* bad : {"0", "-1", "\"1\"", "86401", "1e999"}) {
    const HttpAnswer refused = Post(server.port(), "/v1/completions",
                                    R"({"prompt":"ab","timeout":)" + std::string(bad) + "}");
    EXPECT_EQ(refused.status, 400) << bad;
  }
}

// With one slot, of two that wait the more urgent is served first, whenever it came.
TEST(Priority, TheHigherNumberIsServedFirst) {
  TestServer server({}, {.slots = 1});
  server.gate().Close();
  testing::HttpClient first(server.port()), later(server.port()), urgent(server.port());
  const auto open = [&](int count) {
    return testing::Eventually([&] {
      return testing::Get(server.port(), "/metrics")
                 .body.find("\nkvrm_requests_open " + std::to_string(count) + "\n") !=
             std::string::npos;
    });
  };
  first.SendRequest("POST", "/v1/completions", R"({"prompt":"a","max_tokens":1})");
  server.gate().AwaitArrived(1);
  later.SendRequest("POST", "/v1/completions", R"({"prompt":"bbbb"})", "X-Request-ID: later\r\n");
  EXPECT_TRUE(open(2));
  urgent.SendRequest("POST", "/v1/completions", R"({"prompt":"cccc","priority":5})",
                     "X-Request-ID: urgent\r\n");
  EXPECT_TRUE(open(3));
  server.gate().Open();
  for (auto* client : {&first, &later, &urgent}) EXPECT_EQ(client->Receive().status, 200);
  EXPECT_TRUE(testing::Eventually([&] { return server.log().size() == 3; }));
  const auto log = server.log();
  EXPECT_NE(log[1].find(" id=urgent "), std::string::npos) << log[1];
  EXPECT_NE(log[2].find(" id=later "), std::string::npos) << log[2];
}

TEST(Priority, AKeyBoundsWhatItsRequestsMayAskFor) {
  ServerConfig config;
  config.api_keys = {"sk-plain"};
  TestServer server(config);
  const auto ask = [&](const std::string& priority) {
    testing::HttpClient client(server.port());
    client.SendRequest("POST", "/v1/completions", R"({"prompt":"a","priority":)" + priority + "}",
                       "x-api-key: sk-plain\r\n");
    return client.Receive();
  };
  EXPECT_EQ(ask("0").status, 200);
  EXPECT_EQ(ask("-7").status, 200);
  const HttpAnswer refused = ask("1");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(ParamOf(refused), "priority");
}

}  // namespace
}  // namespace kvrm
