// What a server must stand for long: memory that does not grow, clients that drip, write in pieces,
// go away in every state; allocations that fail.
#include <dirent.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
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

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

// Anonymous and swapped memory of this process, in KiB.
int64_t MemoryKib() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  int64_t sum = 0;
  for (std::string line; std::getline(rollup, line);) {
    for (const char* name : {"Anonymous:", "Swap:"}) {
      if (line.starts_with(name))
        sum += std::strtoll(line.c_str() + line.find(':') + 1, nullptr, 10);
    }
  }
  return sum;
}

size_t CountEntries(const char* folder) {
  size_t count = 0;
  DIR* const dir = opendir(folder);
  while (dir != nullptr && readdir(dir) != nullptr) ++count;
  if (dir != nullptr) closedir(dir);
  return count;
}

// What `work` adds to memory each time that it is done `times` times, once it has been warmed up:
// the least of three measurements, since a heap also grows by chance.
int64_t SlopeKib(const std::function<void()>& work, int times) {
  for (int i = 0; i < times; ++i) work();
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int round = 0; round < 3; ++round) {
    const int64_t before = MemoryKib();
    for (int i = 0; i < times; ++i) work();
    least = std::min(least, MemoryKib() - before);
  }
  return least;
}

TEST(B069, MemoryHandlesAndThreadsDoNotGrowWithRequests) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer keeps freed memory";
  TestServer server({}, {.slots = 8, .max_seq_tokens = 512, .keep_log = false, .validate = false});
  const uint16_t port = server.port();
  const std::string long_request =
      R"({"ignore_eos":true,"max_tokens":200,"temperature":0,"logprobs":2,"prompt":")" +
      std::string(60, 'x') + "\"}";
  const auto whole = [&] { EXPECT_EQ(Post(port, "/v1/completions", long_request).status, 200); };
  const auto short_one = [&] {
    EXPECT_EQ(Post(port, "/v1/completions", R"({"prompt":"a","max_tokens":1,"frob":1})").status,
              200);
  };
  const auto cancelled = [&] {
    HttpClient client(port);
    client.SendRequest("POST", "/v1/completions",
                       R"({"ignore_eos":true,"max_tokens":400,"stream":true,"prompt":"ab"})");
    EXPECT_TRUE(client.ReceiveUntil("data: "));
  };
  const auto refused = [&] {
    EXPECT_EQ(Post(port, "/v1/completions", R"({"prompt":"a","n":99})").status, 400);
  };
  // 2 bytes kept for each token of the long ones would be 40 KB, 1 KB for each of the others 60 KB.
  constexpr int64_t kMostKib = 32;
  EXPECT_LT(SlopeKib(whole, 100), kMostKib) << "100 answers of 200 tokens";
  EXPECT_LT(SlopeKib(short_one, 200), kMostKib) << "200 answers of one token";
  EXPECT_LT(SlopeKib(cancelled, 60), kMostKib) << "60 that went away";
  EXPECT_LT(SlopeKib(refused, 200), kMostKib) << "200 refused";
  EXPECT_TRUE(Eventually([&] { return server.pages_in_use() == 0; }));
  const size_t threads = CountEntries("/proc/self/task");
  const size_t files = CountEntries("/proc/self/fd");
  for (int i = 0; i < 50; ++i) cancelled();
  EXPECT_EQ(CountEntries("/proc/self/task"), threads);
  EXPECT_TRUE(Eventually([&] { return CountEntries("/proc/self/fd") <= files; }));
}

// A request may come byte by byte; it is the same request.
TEST(Endurance, RequestsThatComeInPiecesAreWholeRequests) {
  TestServer server;
  const std::string body = R"({"prompt":"ab","temperature":0})";
  const std::string request =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body;
  HttpClient client(server.port());
  for (const char c : request) ASSERT_TRUE(client.Send({&c, 1}));
  EXPECT_EQ(client.Receive().json().at("choices").as_array()[0].at("text").as_string(), "ab");
}

// Writes to a client that reset its connection fail (EPIPE, ECONNRESET); only its answer ends.
TEST(Endurance, AResetWhileItsAnswerIsWrittenCostsNobodyElse) {
  TestServer server({}, {.slots = 4, .max_seq_tokens = 2048, .validate = false});
  for (int i = 0; i < 20; ++i) {
    HttpClient gone(server.port(), /*receive_buffer_bytes=*/4096);
    gone.SendRequest("POST", "/v1/completions",
                     R"({"ignore_eos":true,"max_tokens":1500,"logprobs":5,"stream":true,)"
                     R"("prompt":"ab"})");
    EXPECT_TRUE(gone.ReceiveUntil("data: "));
    gone.Reset();
  }
  const auto answer = testing::PostStream(
      server.port(), "/v1/completions", R"({"prompt":"still here","temperature":0,"stream":true})");
  EXPECT_EQ(answer.text(), "still here");
  EXPECT_TRUE(Eventually([&] { return server.pages_in_use() == 0; }));
  EXPECT_TRUE(Eventually([&] {
    return Get(server.port(), "/metrics").body.find("\nkvrm_requests_open 0\n") !=
           std::string::npos;
  }));
}

// Clients that drip their heads hold connections until the deadline, and nobody else up.
TEST(Endurance, SlowHeadsHoldNobodyUpAndAreClosed) {
  ServerConfig config;
  config.header_timeout = std::chrono::milliseconds(200);
  TestServer server(config);
  std::vector<std::unique_ptr<HttpClient>> slow;
  for (int i = 0; i < 100; ++i) {
    slow.push_back(std::make_unique<HttpClient>(server.port()));
    slow.back()->Send("POST /v1/completions HTTP/1.1\r\nHost: local");
  }
  EXPECT_EQ(Post(server.port(), "/v1/completions", R"({"prompt":"ab"})").status, 200);
  for (auto& client : slow) {
    client->Send("x");
    EXPECT_TRUE(client->AwaitClose());
  }
}

// Sends a byte now and then; how many until the server closed.
size_t Drip(HttpClient& client, size_t most) {
  size_t sent = 0;
  for (; sent < most && client.Send("x"); ++sent) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return sent;
}

// There is one deadline for a head and one for a body: no byte puts it off.
TEST(Endurance, DripsPutNoDeadlineOff) {
  ServerConfig config;
  config.header_timeout = config.body_timeout = std::chrono::milliseconds(200);
  TestServer server(config);
  const std::string head = "POST /v1/completions HTTP/1.1\r\nHost: localhost";
  for (const std::string& begun :
       {head, head + "\r\nContent-Type: application/json\r\nContent-Length: 3000\r\n\r\n",
        head + "\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nBB8\r\n"}) {
    HttpClient client(server.port());
    client.Send(begun);
    EXPECT_LT(Drip(client, 2500), 2500u) << begun;
  }
  EXPECT_EQ(Post(server.port(), "/v1/completions", R"({"prompt":"ab"})").status, 200);
}

}  // namespace
}  // namespace kvrm
