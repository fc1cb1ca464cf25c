// HTTP itself: framing, keep-alive, refusals, bounds.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/testing/http_client.h"
#include "server/testing/test_server.h"

namespace kvrm {
namespace {

using testing::HttpAnswer;
using testing::HttpClient;
using testing::TestServer;

constexpr const char* kBody = R"({"prompt":"ab","temperature":0})";

HttpAnswer Raw(uint16_t port, const std::string& bytes) {
  HttpClient client(port);
  client.Send(bytes);
  return client.Receive();
}

TEST(Wire, ConnectionsServeOneRequestAfterTheOther) {
  TestServer server;
  HttpClient client(server.port());
  for (int i = 0; i < 3; ++i) {
    client.SendRequest("POST", "/v1/completions", kBody);
    EXPECT_EQ(client.Receive().status, 200);
    client.SendRequest("POST", "/v1/completions", R"({"prompt":"ab","stream":true})");
    EXPECT_TRUE(client.Receive().complete);
    client.SendRequest("GET", "/nowhere");
    EXPECT_EQ(client.Receive().status, 404);
    client.SendRequest("POST", "/v1/completions", "{");
    EXPECT_EQ(client.Receive().status, 400);
    client.SendRequest("HEAD", "/metrics");
    const HttpAnswer head = client.Receive(/*head=*/true);
    EXPECT_EQ(head.status, 200);
    EXPECT_GT(std::stoul(head.headers.at("content-length")), 100u);
  }
}

TEST(Wire, PipelinedRequestsAreAnsweredInOrder) {
  TestServer server;
  HttpClient client(server.port());
  const auto request = [](const std::string& prompt) {
    const std::string body = R"({"temperature":0,"prompt":")" + prompt + "\"}";
    return "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
           "application/json\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body;
  };
  server.gate().Close();
  client.Send(request("first"));
  server.gate().AwaitArrived(1);
  // While the first is under way: the bytes are kept, the answer is not given up.
  client.Send(request("second") + "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  server.gate().Open();
  EXPECT_NE(client.Receive().body.find("first"), std::string::npos);
  EXPECT_NE(client.Receive().body.find("second"), std::string::npos);
  EXPECT_EQ(client.Receive().body, R"({"status":"ok"})");
}

TEST(Wire, HeadAnswersWhatGetAnswersWithoutTheBody) {
  TestServer server;
  for (const char* path : {"/health", "/v1/models", "/v1/models/copy-model", "/metrics"}) {
    HttpClient client(server.port());
    client.SendRequest("HEAD", path);
    client.SendRequest("GET", "/health");
    EXPECT_EQ(client.Receive(/*head=*/true).status, 200) << path;
    EXPECT_EQ(client.Receive().body, R"({"status":"ok"})") << "no body bytes before it";
  }
}

TEST(Wire, WrongMethodsAndPathsAreShapedErrors) {
  TestServer server;
  const HttpAnswer missing = testing::Get(server.port(), "/v1/nowhere");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(missing.json().at("error").at("code").as_string(), "not_found");
  HttpAnswer wrong = testing::Get(server.port(), "/v1/chat/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST");
  wrong = testing::Post(server.port(), "/health", "{}");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "GET, HEAD");
  EXPECT_EQ(wrong.json().at("error").at("type").as_string(), "invalid_request_error");
}

TEST(Wire, ChunkedBodiesAndContinueWork) {
  TestServer server;
  const std::string body = kBody;
  EXPECT_EQ(Raw(server.port(),
                "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                "application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n" +
                    body.substr(0, 5) + "\r\n1a\r\n" + body.substr(5, 26) + "\r\n0\r\n\r\n")
                .status,
            200);
  HttpClient client(server.port());
  client.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
      "application/json\r\nExpect: 100-continue\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n");
  EXPECT_EQ(client.Receive().status, 100);
  client.Send(body);
  EXPECT_EQ(client.Receive().status, 200);
}

TEST(Wire, OldClientsGetAnswersThatEndWithTheConnection) {
  TestServer server;
  const std::string body = R"({"prompt":"ab","temperature":0,"stream":true})";
  const HttpAnswer answer =
      Raw(server.port(),
          "POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.count("transfer-encoding"), 0u);
  EXPECT_EQ(answer.headers.at("connection"), "close");
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n")) << answer.body;
}

// What lets two readers of one byte stream see different requests, or a browser page post unasked.
TEST(Wire, AmbiguousRequestsAreRefused) {
  TestServer server;
  const std::string post = "POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\n";
  const std::string sized = "Content-Length: " + std::to_string(std::string(kBody).size()) + "\r\n";
  const std::string refused[] = {
      post + sized + "\r\n" + kBody,                             // no Host
      post + "Host: a\r\nHost: b\r\n" + sized + "\r\n" + kBody,  // two
      post + "Host: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
      post + "Host: localhost\r\nTransfer-Encoding: identity\r\n" + sized + "\r\n" + kBody,
      post + "Host: localhost\r\nTransfer-Encoding: chunked\r\n" + sized + "\r\n0\r\n\r\n",
      post +
          "Host: localhost\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
          "chunked\r\n\r\n0\r\n\r\n",
      post + "Host: localhost\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabcde",
      post + "Host: localhost\r\nContent-Length: -1\r\n\r\n",
      post + "Host: localhost\r\nContent-Length: 99999999999999999999999\r\n\r\n",
      post + "Host: localhost\r\nContent-Encoding: gzip\r\n" + sized + "\r\n" + kBody,
      post + "Host : x\r\n" + sized + "\r\n" + kBody,
      "GET /health HTTP/1.1\nHost: localhost\n\n",
      "nonsense\r\n\r\n",
      std::string("GET /health") + '\0' + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
  };
  for (const auto& bytes : refused) {
    const HttpAnswer answer = Raw(server.port(), bytes);
    EXPECT_EQ(answer.status, 400) << bytes;
    EXPECT_TRUE(answer.json().as_object().contains("error"));
  }
  EXPECT_EQ(Raw(server.port(), "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 200);
}

// Of a request whose end readers may see in different places, what follows is answered by nobody.
TEST(Wire, NothingIsAnsweredBehindARequestOfDoubtfulLength) {
  TestServer server;
  const std::string get = "GET /health HTTP/1.1\r\nHost: localhost\r\n";
  for (const std::string fields : {
           "Transfer-Encoding: gzip\r\n",
           "Transfer-Encoding: chunked, identity\r\n",
           "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
           "Content-Length: 3, 3\r\n",
           "Content-Length: 3\r\nContent-Length: 3\r\n",
           "Content-Length: 0\r\nContent-Length: 0\r\n",
           "Content-Length: +3\r\n",
           "Content-Length:\r\n",
           "Host: localhost\r\n",
       }) {
    HttpClient client(server.port());
    client.Send(get + fields + "\r\n" + get + "X-Request-ID: smuggled\r\n\r\n");
    HttpAnswer answer = client.Receive();
    EXPECT_EQ(answer.status, 400) << fields;
    EXPECT_EQ(answer.headers["connection"], "close") << fields;
    EXPECT_EQ(client.Receive().status, 0) << fields;
  }
}

// Chunks end where their sizes say, written in one way only.
TEST(Wire, ChunksOfDoubtfulSizeAreRefused) {
  TestServer server;
  const std::string head =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n";
  for (const std::string body :
       {"0x1f\r\n", "-1\r\n", "\r\n", " 5\r\n", "5\n{\"a\"\n0\n\n", "5 \r\n{\"a\":\r\n0\r\n\r\n",
        "FFFFFFFFFFFFFFFFF\r\n", "5\r\n{\"a\":1}\r\n0\r\n\r\n",
        "2\r\n{}\r\n0\r\nContent-Length: 5\r\n\r\n",
        "2\r\n{}\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n"}) {
    HttpClient client(server.port());
    client.Send(head + body + "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    HttpAnswer answer = client.Receive();
    EXPECT_GE(answer.status, 400) << body;
    EXPECT_EQ(answer.headers["connection"], "close") << body;
    EXPECT_EQ(client.Receive().status, 0) << body;
  }
}

// A form or a Blob of another origin's page comes without the server being asked first.
TEST(Wire, OnlyDeclaredJsonIsTaken) {
  TestServer server;
  const auto post = [&](const std::string& type) {
    return Raw(server.port(), "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + type +
                                  "Content-Length: " + std::to_string(std::string(kBody).size()) +
                                  "\r\n\r\n" + kBody);
  };
  const std::string json = "Content-Type: application/json\r\n";
  EXPECT_EQ(post(json).status, 200);
  EXPECT_EQ(post("Content-Type: Application/JSON; charset=utf-8\r\n").status, 200);
  for (const auto& [type, named] :
       {std::pair<std::string, std::string>{"", "absent"},
        {"Content-Type: \r\n", "absent"},
        {"Content-Type: text/plain\r\n", "'text/plain'"},
        {"Content-Type: application/jsonx\r\n", "'application/jsonx'"},
        {json + "Content-Type: text/plain\r\n", "'application/json'"}}) {
    const HttpAnswer answer = post(type);
    EXPECT_EQ(answer.status, 415) << type;
    EXPECT_NE(answer.body.find("Content-Type: " + named), std::string::npos) << answer.body;
  }
}

// DNS rebinding: a page reaches 127.0.0.1 under a name of its own.
TEST(Wire, LoopbackServersAnswerOnlyUnderNamesOfThisMachine) {
  TestServer server;
  const auto get = [&](const std::string& target, const std::string& host) {
    return Raw(server.port(), "GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  };
  for (const char* host : {"localhost", "127.0.0.1:8080", "[::1]:1"}) {
    EXPECT_EQ(get("/v1/models", host).status, 200) << host;
    EXPECT_EQ(get("http://" + std::string(host) + "/health", host).status, 200) << host;
  }
  for (const char* target : {"/v1/models", "/health", "/metrics", "/nowhere"}) {
    const HttpAnswer answer = get(target, "evil.example:80");
    EXPECT_EQ(answer.status, 403) << target;
    EXPECT_NE(answer.body.find("Host: 'evil.example:80'"), std::string::npos) << answer.body;
  }
  EXPECT_EQ(get("http://evil.example/health", "localhost").status, 403);
  ServerConfig open;
  open.host = "0.0.0.0";
  TestServer everywhere(open);
  EXPECT_EQ(Raw(everywhere.port(), "GET /health HTTP/1.1\r\nHost: box.lan\r\n\r\n").status, 200);
}

TEST(Wire, BodiesTakeRoomOnlyForTheBytesTheyHave) {
  ServerConfig config;
  config.max_pending_body_bytes = 100'000;
  TestServer server(config, {.max_seq_tokens = 256});
  const std::string head =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  EXPECT_EQ(Raw(server.port(), head + "\r\n").status, 400) << "no body at all";
  const auto chunked = [&](size_t chunks) {
    std::string bytes = head + "Transfer-Encoding: chunked\r\n\r\n";
    for (size_t i = 0; i < chunks; ++i) bytes += "2710\r\n" + std::string(10'000, ' ') + "\r\n";
    return Raw(server.port(), bytes + "0\r\n\r\n");
  };
  // Blanks alone are no JSON, which shows that they were read to the end.
  EXPECT_EQ(chunked(1).status, 400);
  EXPECT_EQ(chunked(9).status, 400);
  EXPECT_EQ(chunked(20).status, 503);
  EXPECT_EQ(chunked(9).status, 400) << "what a refused body held was given back";
  EXPECT_EQ(Raw(server.port(), head + "Content-Length: 200000\r\n\r\n").status, 503);
}

TEST(Wire, HeadersAreBounded) {
  TestServer server;
  std::string request = "GET /health HTTP/1.1\r\nHost: localhost\r\n";
  EXPECT_EQ(Raw(server.port(), request + "X: " + std::string(20'000, 'x') + "\r\n\r\n").status,
            200);
  const HttpAnswer answer =
      Raw(server.port(), request + "X: " + std::string(100'000, 'x') + "\r\n\r\n");
  EXPECT_EQ(answer.status, 431);
}

TEST(Wire, RequestIdsAreRepeatedWhenPlain) {
  TestServer server;
  HttpClient client(server.port());
  client.SendRequest("POST", "/v1/completions", kBody, "X-Request-ID: req-7\r\n");
  EXPECT_EQ(client.Receive().headers.at("x-request-id"), "req-7");
  client.SendRequest("POST", "/v1/completions", kBody, "X-Request-ID: a b\r\n");
  EXPECT_TRUE(client.Receive().headers.at("x-request-id").starts_with("req-"));
}

// A reader that stalls costs its own answer, nobody else's.
TEST(Wire, StalledReadersAreCutWhenTheirOutboxIsFull) {
  ServerConfig config;
  config.send_buffer_bytes = 4096;
  config.max_outbox_bytes = 16'384;
  TestServer server(config, {.max_seq_tokens = 8192});
  HttpClient stalled(server.port(), /*receive_buffer_bytes=*/4096);
  stalled.SendRequest(
      "POST", "/v1/completions",
      R"({"max_tokens":4000,"logprobs":20,"stream":true,"temperature":0,"prompt":")" +
          std::string(4000, 'x') + "\"}");
  EXPECT_TRUE(testing::Eventually([&] {
    return testing::Get(server.port(), "/metrics")
               .body.find("kvrm_outbox_overflow_total{bound=\"bytes\"} 1\n") != std::string::npos;
  }));
  EXPECT_TRUE(testing::Eventually([&] { return server.pages_in_use() == 0; }));
  EXPECT_LT(server.engine().Metrics().output_tokens, 4000u);
  EXPECT_EQ(testing::Post(server.port(), "/v1/completions", kBody).status, 200);
}

TEST(Wire, SilentAndSlowConnectionsMissTheirDeadlines) {
  ServerConfig config;
  config.idle_timeout = std::chrono::milliseconds(50);
  config.header_timeout = std::chrono::milliseconds(50);
  config.body_timeout = std::chrono::milliseconds(50);
  TestServer server(config);
  HttpClient silent(server.port()), slow_head(server.port()), slow_body(server.port());
  slow_head.Send("GET /hea");
  slow_body.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
      "application/json\r\nContent-Length: 50\r\n\r\n{");
  EXPECT_TRUE(silent.AwaitClose());
  EXPECT_TRUE(slow_head.AwaitClose());
  EXPECT_TRUE(slow_body.AwaitClose());
}

}  // namespace
}  // namespace kvrm
