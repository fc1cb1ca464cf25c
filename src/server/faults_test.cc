// What systems and peers do wrong: writes that take a part, descriptors that run out, old peers,
// clocks. (Memory that is refused: memory_fault_test.cc; signals: lifecycle_test.cc.)
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "server/testing/http_client.h"
#include "server/testing/test_server.h"

namespace kvrm {
namespace {

using testing::HttpAnswer;
using testing::HttpClient;
using testing::TestServer;

using testing::kCompletions;

// The choices of an answer or of its events, without ids and times.
std::vector<std::string> ChoicesOf(const HttpAnswer& answer) {
  std::vector<std::string> choices;
  if (answer.headers.count("content-length") > 0) {
    choices.push_back(boost::json::serialize(answer.json().at("choices")));
    return choices;
  }
  for (const auto& chunk : testing::ParseStream(answer).chunks) {
    choices.push_back(boost::json::serialize(chunk.at("choices")));
  }
  return choices;
}

// Buffers of a few KiB at both ends: each of these answers needs many writes that take a part.
TEST(Faults, ShortWritesLoseNothing) {
  ServerConfig narrow;
  narrow.send_buffer_bytes = 4096;
  TestServer wide_server({}, {.max_seq_tokens = 1024});
  TestServer narrow_server(narrow, {.max_seq_tokens = 1024});
  for (const char* stream : {"false", "true"}) {
    const std::string body =
        R"({"max_tokens":300,"ignore_eos":true,"temperature":0,"logprobs":20,"stream":)" +
        std::string(stream) + R"(,"prompt":")" + std::string(300, 'x') + "\"}";
    HttpClient wide(wide_server.port()), slow(narrow_server.port(), /*receive_buffer_bytes=*/4096);
    wide.SendRequest("POST", kCompletions, body);
    slow.SendRequest("POST", kCompletions, body);
    const HttpAnswer expected = wide.Receive(), answer = slow.Receive();
    EXPECT_GT(expected.body.size(), 50'000u);
    EXPECT_TRUE(answer.complete);
    EXPECT_EQ(ChoicesOf(answer), ChoicesOf(expected));
  }
}

// The soft limit of open files of this process while it lives.
class FileLimit {
 public:
  explicit FileLimit(rlim_t files) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit limit{std::min(files, before_.rlim_max), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~FileLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_{};
};

TEST(Faults, ALowLimitOfOpenFilesIsToldAndKept) {
  const FileLimit limit(200);
  ServerConfig config;
  config.max_connections = 4096;
  TestServer server(config);
  const std::vector<std::string> log = server.log();
  ASSERT_EQ(log.size(), 1u);
  EXPECT_NE(log[0].find("at most 104 connections are served, not 4096"), std::string::npos)
      << log[0];
  EXPECT_NE(log[0].find("ulimit -n"), std::string::npos);
  config.max_connections = 100;
  TestServer enough(config);
  EXPECT_TRUE(enough.log().empty());
}

// A connection for which there is no descriptor waits; it is served once there is one.
TEST(Faults, DescriptorsThatRunOutDelayConnectionsOnly) {
  TestServer server;
  HttpClient before(server.port());
  before.SendRequest("GET", "/health");
  EXPECT_EQ(before.Receive().status, 200);
  std::unique_ptr<HttpClient> late;
  {
    const FileLimit limit(256);
    std::vector<int> fillers;
    for (int fd = 0; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) fillers.push_back(fd);
    ASSERT_FALSE(fillers.empty());
    close(fillers.back());
    fillers.pop_back();
    late = std::make_unique<HttpClient>(server.port());  // the last descriptor: none to accept it
    ASSERT_TRUE(late->connected());
    late->SendRequest("GET", "/health");
    before.SendRequest("POST", kCompletions, R"({"prompt":"ab"})");
    EXPECT_EQ(before.Receive().status, 200) << "connections that are there are served";
    for (const int fd : fillers) close(fd);
  }
  EXPECT_EQ(late->Receive().status, 200);
}

// RFC 9110, 10.1.1: an interim answer is no answer that HTTP/1.0 knows.
TEST(Faults, OldPeersThatExpectAreAnsweredOnce) {
  TestServer server;
  const std::string body = R"({"prompt":"ab","temperature":0})";
  HttpClient client(server.port());
  client.Send(
      "POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nExpect: "
      "100-continue\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n");
  client.Send(body);
  EXPECT_EQ(client.Receive().status, 200);
}

// A key is at most 256 bytes long: what is longer is none, whatever it begins with.
TEST(Faults, LongKeysAreNoKeys) {
  ServerConfig config;
  config.api_keys = {"secret"};
  TestServer server(config);
  HttpClient client(server.port());
  std::string repeated;
  while (repeated.size() < 24'000) repeated += "secret";
  client.SendRequest("GET", "/v1/models", {}, "Authorization: Bearer " + repeated + "\r\n");
  EXPECT_EQ(client.Receive().status, 401);
  client.SendRequest("GET", "/v1/models", {}, "Authorization: Bearer secret\r\n");
  EXPECT_EQ(client.Receive().status, 200);
}

// An answer in one piece is held until it ends, and with it the log-probabilities of each token.
TEST(Faults, LogProbabilitiesHeldForOneAnswerAreBounded) {
  TestServer server({}, {.max_seq_tokens = 2048});
  std::string prompts = "\"a\"";
  for (int i = 1; i < 128; ++i) prompts += ",\"a\"";
  const auto body = [&](const std::string& fields) {
    return "{\"prompt\":[" + prompts + "],\"logprobs\":20," + fields + "}";
  };
  const HttpAnswer refused =
      testing::Post(server.port(), kCompletions, body("\"max_tokens\":2000"));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json().at("error").at("param").as_string(), "logprobs");
  EXPECT_NE(refused.body.find("1048576"), std::string::npos) << refused.body;
  EXPECT_EQ(testing::Post(server.port(), kCompletions, body("\"max_tokens\":2")).status, 200);
  EXPECT_EQ(testing::Post(server.port(), kCompletions, body("\"max_tokens\":2000,\"stream\":true"))
                .status,
            200)
      << "a stream sends them away";
}

}  // namespace
}  // namespace kvrm
