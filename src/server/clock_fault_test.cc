// The wall clock jumps by days, both ways, while requests are under way: nothing waits by it. In a
// program of its own, for it replaces the clock.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "server/testing/http_client.h"
#include "server/testing/test_server.h"

namespace {

std::atomic<int64_t> wall_offset_s{0};

}  // namespace

// What system_clock and steady_clock read; only the first has a day.
extern "C" int clock_gettime(clockid_t id, timespec* time) noexcept {
  const auto code = static_cast<int>(syscall(SYS_clock_gettime, id, time));
  if (code == 0 && id == CLOCK_REALTIME) time->tv_sec += wall_offset_s;
  return code;
}

namespace kvrm {
namespace {

using testing::HttpClient;
using testing::TestServer;

constexpr int64_t kTwoDays = 2 * 86'400;

int64_t CreatedNow(TestServer& server) {
  return testing::Post(server.port(), "/v1/completions", R"({"prompt":"a"})")
      .json()
      .at("created")
      .as_int64();
}

TEST(ClockFault, AWallClockThatJumpsMovesStampsAndNothingElse) {
  ServerConfig config;
  config.keep_alive_interval = std::chrono::milliseconds(20);
  TestServer server(config);
  const int64_t created = CreatedNow(server);
  server.gate().Close();
  HttpClient stream(server.port()), slow(server.port());
  stream.SendRequest("POST", "/v1/completions",
                     R"({"prompt":"abc","temperature":0,"stream":true,"timeout":3600})");
  slow.Send("GET /health HTTP/1.1\r\nHo");
  EXPECT_TRUE(stream.ReceiveUntil(": keep-alive\n\n"));
  for (const int64_t offset : {kTwoDays, -kTwoDays}) {
    wall_offset_s = offset;
    const size_t received = stream.received().size();
    while (stream.received().size() == received) {
      ASSERT_TRUE(stream.ReceiveMore()) << "it still waits, and is told so";
    }
    EXPECT_EQ(testing::Get(server.port(), "/health").status, 200) << "nothing has stalled";
  }
  slow.Send("st: localhost\r\n\r\n");
  EXPECT_EQ(slow.Receive().status, 200) << "two days are no deadline";
  server.gate().Open();
  const std::string body = stream.Receive().body;
  EXPECT_NE(body.find(R"("finish_reason":"stop")"), std::string::npos) << body;
  EXPECT_TRUE(body.ends_with("data: [DONE]\n\n"));
  EXPECT_NEAR(static_cast<double>(CreatedNow(server)), static_cast<double>(created - kTwoDays), 60);
  wall_offset_s = 0;
}

}  // namespace
}  // namespace kvrm
