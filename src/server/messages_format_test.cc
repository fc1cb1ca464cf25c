// Anthropic's /v1/messages over HTTP: what it takes, how it words its answer.
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
using testing::Event;
using testing::EventsOf;
using testing::HttpAnswer;
using testing::Post;
using testing::TestServer;
using testing::Text;

TEST(MessagesApi, AWholeMessageHasItsFields) {
  TestServer server;
  const auto message = Post(server.port(), "/v1/messages",
                            R"({"model":"m","max_tokens":50,"temperature":0,
                                "messages":[{"role":"user","content":"hello"}]})")
                           .json();
  EXPECT_EQ(Text(message.at("type")), "message");
  EXPECT_EQ(Text(message.at("role")), "assistant");
  EXPECT_EQ(Text(message.at("content").as_array()[0].at("text")), "hello");
  EXPECT_EQ(Text(message.at("stop_reason")), "end_turn");
  EXPECT_TRUE(message.at("stop_sequence").is_null());
  EXPECT_EQ(message.at("usage").at("output_tokens").as_int64(), 6);
  EXPECT_GT(message.at("usage").at("input_tokens").as_int64(), 5);
}

TEST(MessagesApi, EachStopReasonIsNamed) {
  TestServer server;
  const auto ask = [&](const std::string& fields) {
    return Post(server.port(), "/v1/messages",
                R"({"temperature":0,"messages":[{"role":"user","content":"abcdef"}],)" + fields +
                    "}")
        .json();
  };
  EXPECT_EQ(Text(ask(R"("max_tokens":3)").at("stop_reason")), "max_tokens");
  const auto stopped = ask(R"("max_tokens":30,"stop_sequences":["de"])");
  EXPECT_EQ(Text(stopped.at("stop_reason")), "stop_sequence");
  EXPECT_EQ(Text(stopped.at("stop_sequence")), "de");
  EXPECT_EQ(Text(stopped.at("content").as_array()[0].at("text")), "abc");
}

TEST(MessagesApi, AStreamHasItsEventsInOrder) {
  TestServer server;
  const auto events = EventsOf(Post(server.port(), "/v1/messages",
                                    R"({"max_tokens":50,"temperature":0,"stream":true,
                                        "messages":[{"role":"user","content":"hi there"}]})"));
  std::vector<std::string> names;
  std::string joined;
  for (const Event& event : events) {
    EXPECT_EQ(Text(event.data.at("type")), event.name);
    if (event.name == "content_block_delta") joined += Text(event.data.at("delta").at("text"));
    if (event.name != "content_block_delta" || names.back() != event.name) {
      names.push_back(event.name);
    }
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"message_start", "content_block_start", "content_block_delta",
                                      "content_block_stop", "message_delta", "message_stop"}));
  EXPECT_EQ(joined, "hi there");
  EXPECT_GT(events[0].data.at("message").at("usage").at("input_tokens").as_int64(), 8);
  const json::value& delta = events[events.size() - 2].data;
  EXPECT_EQ(Text(delta.at("delta").at("stop_reason")), "end_turn");
  EXPECT_EQ(delta.at("usage").at("output_tokens").as_int64(), 9);
}

TEST(MessagesApi, ErrorsHaveTheirOwnShape) {
  TestServer server;
  for (const char* body :
       {"{", "{}", R"({"max_tokens":5,"messages":[{"role":"user","content":[{"type":"image"}]}]})",
        R"({"messages":[{"role":"user","content":"a"}],"tools":[{"name":"t"}]})",
        R"({"messages":[{"role":"user","content":"a"}],"thinking":{"type":"enabled"}})"}) {
    const HttpAnswer answer = Post(server.port(), "/v1/messages", body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_EQ(Text(answer.json().at("type")), "error");
    EXPECT_EQ(Text(answer.json().at("error").at("type")), "invalid_request_error");
  }
}

TEST(MessagesApi, TokensAreCountedAsTheMessageWouldCountThem) {
  TestServer server;
  const std::string body = R"({"system":"S","messages":[{"role":"user","content":"hello"}]})";
  const auto count = Post(server.port(), "/v1/messages/count_tokens", body).json();
  const auto message = Post(server.port(), "/v1/messages", body).json();
  EXPECT_EQ(count.at("input_tokens"), message.at("usage").at("input_tokens"));
}

}  // namespace
}  // namespace kvrm
