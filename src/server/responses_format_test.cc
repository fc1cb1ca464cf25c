// OpenAI's /v1/responses over HTTP: what it takes, how it words its answer.
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
using testing::ParamOf;
using testing::Post;
using testing::TestServer;
using testing::Text;

TEST(ResponsesApi, AWholeResponseHasItsFields) {
  TestServer server;
  const auto response =
      Post(server.port(), "/v1/responses",
           R"({"model":"m","input":"hello","instructions":"Be kind.","temperature":0})")
          .json();
  EXPECT_EQ(Text(response.at("object")), "response");
  EXPECT_EQ(Text(response.at("status")), "completed");
  EXPECT_TRUE(response.at("error").is_null());
  EXPECT_TRUE(response.at("incomplete_details").is_null());
  const auto& item = response.at("output").as_array()[0];
  EXPECT_EQ(Text(item.at("type")), "message");
  EXPECT_EQ(Text(item.at("role")), "assistant");
  EXPECT_EQ(Text(item.at("content").as_array()[0].at("type")), "output_text");
  EXPECT_EQ(Text(item.at("content").as_array()[0].at("text")), "hello");
  const auto& usage = response.at("usage");
  EXPECT_EQ(usage.at("output_tokens").as_int64(), 6);
  EXPECT_EQ(usage.at("total_tokens").as_int64(),
            usage.at("input_tokens").as_int64() + usage.at("output_tokens").as_int64());
}

// The same conversation gives the same prompt, whichever API it comes by.
TEST(ResponsesApi, ConversationsAreReadAsChatReadsThem) {
  TestServer server;
  const auto tokens = [&](const char* route, const char* body, const char* field) {
    return Post(server.port(), route, body).json().at("usage").at(field).as_int64();
  };
  const int64_t chat = tokens("/v1/chat/completions",
                              R"({"messages":[{"role":"system","content":"S"},
                                  {"role":"user","content":"one"},
                                  {"role":"assistant","content":"two"},
                                  {"role":"user","content":"three"}]})",
                              "prompt_tokens");
  EXPECT_EQ(tokens("/v1/responses",
                   R"({"instructions":"S","input":[
                       {"type":"message","role":"user",
                        "content":[{"type":"input_text","text":"one"}]},
                       {"type":"message","id":"msg_1","status":"completed","role":"assistant",
                        "content":[{"type":"output_text","text":"two","annotations":[]}]},
                       {"role":"user","content":"three"}]})",
                   "input_tokens"),
            chat);
  EXPECT_EQ(tokens("/v1/messages",
                   R"({"max_tokens":64,"system":[{"type":"text","text":"S"}],"messages":[
                       {"role":"user","content":"one"},
                       {"role":"assistant","content":[{"type":"text","text":"two"}]},
                       {"role":"user","content":"three"}]})",
                   "input_tokens"),
            chat);
}

TEST(ResponsesApi, AStreamIsNumberedEventsOfWhichTheLastIsTheResponse) {
  TestServer server;
  const auto events = EventsOf(Post(server.port(), "/v1/responses",
                                    R"({"input":"hi there","temperature":0,"stream":true})"));
  std::vector<std::string> names;
  std::string joined;
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(Text(events[i].data.at("type")), events[i].name);
    EXPECT_EQ(events[i].data.at("sequence_number").as_int64(), static_cast<int64_t>(i));
    if (events[i].name == "response.output_text.delta") {
      joined += Text(events[i].data.at("delta"));
      if (!names.empty() && names.back() == events[i].name) continue;
    }
    names.push_back(events[i].name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{
                       "response.created", "response.in_progress", "response.output_item.added",
                       "response.content_part.added", "response.output_text.delta",
                       "response.output_text.done", "response.content_part.done",
                       "response.output_item.done", "response.completed"}));
  EXPECT_EQ(joined, "hi there");
  const auto& response = events.back().data.at("response");
  EXPECT_EQ(Text(response.at("output").as_array()[0].at("content").as_array()[0].at("text")),
            "hi there");
  EXPECT_EQ(response.at("usage").at("output_tokens").as_int64(), 9);
  EXPECT_EQ(response.at("id"), events[0].data.at("response").at("id"));
}

TEST(ResponsesApi, AnAnswerThatIsCutIsIncomplete) {
  TestServer server;
  const auto response = Post(server.port(), "/v1/responses",
                             R"({"input":"hello","max_output_tokens":2,"temperature":0})")
                            .json();
  EXPECT_EQ(Text(response.at("status")), "incomplete");
  EXPECT_EQ(Text(response.at("incomplete_details").at("reason")), "max_output_tokens");
  const auto events =
      EventsOf(Post(server.port(), "/v1/responses",
                    R"({"input":"hello","max_output_tokens":2,"temperature":0,"stream":true})"));
  EXPECT_EQ(events.back().name, "response.incomplete");
}

// What was asked for comes back, so that a client can tell its answers apart.
TEST(ResponsesApi, TheRequestIsRepeatedInTheResponse) {
  TestServer server;
  const std::string body =
      R"({"input":"hi","instructions":"Be kind.","metadata":{"run":"7"},"top_p":0.5,
          "max_output_tokens":9,"temperature":0)";
  const auto whole = Post(server.port(), "/v1/responses", body + "}").json();
  const auto events = EventsOf(Post(server.port(), "/v1/responses", body + R"(,"stream":true})"));
  for (const json::value* response :
       {&whole, &events[0].data.at("response"), &events.back().data.at("response")}) {
    EXPECT_EQ(Text(response->at("instructions")), "Be kind.");
    EXPECT_EQ(Text(response->at("metadata").at("run")), "7");
    EXPECT_EQ(response->at("top_p").as_double(), 0.5);
    EXPECT_EQ(response->at("max_output_tokens").as_int64(), 9);
    EXPECT_FALSE(response->at("store").as_bool()) << "nothing is stored";
  }
}

// The same numbers as a chat's, in the whole response and in its stream.
TEST(ResponsesApi, LogProbabilitiesAreThoseOfTheChat) {
  TestServer server;
  const auto chat = Post(server.port(), "/v1/chat/completions",
                         R"({"messages":[{"role":"user","content":"abc"}],"temperature":0,
                             "logprobs":true,"top_logprobs":2})")
                        .json();
  const json::value& wanted = chat.at("choices").as_array()[0].at("logprobs").at("content");
  ASSERT_EQ(wanted.as_array().size(), 4u) << "the end token is listed";
  const std::string body = R"({"input":"abc","temperature":0,"top_logprobs":2,
                               "include":["message.output_text.logprobs"])";
  const auto whole = Post(server.port(), "/v1/responses", body + "}").json();
  const auto part = [](const json::value& response) {
    return response.at("output").as_array()[0].at("content").as_array()[0];
  };
  EXPECT_EQ(part(whole).at("logprobs"), wanted);
  const auto events = EventsOf(Post(server.port(), "/v1/responses", body + R"(,"stream":true})"));
  json::array deltas;
  for (const Event& event : events) {
    if (event.name == "response.output_text.delta") {
      for (const auto& token : event.data.at("logprobs").as_array()) deltas.push_back(token);
    }
    if (event.name == "response.output_text.done") {
      EXPECT_EQ(event.data.at("logprobs"), wanted);
    }
  }
  ASSERT_EQ(deltas.size(), 3u);
  for (size_t i = 0; i < deltas.size(); ++i) EXPECT_EQ(deltas[i], wanted.as_array()[i]);
  EXPECT_EQ(part(events.back().data.at("response")).at("logprobs"), wanted);
  const HttpAnswer refused =
      Post(server.port(), "/v1/responses", R"({"input":"abc","top_logprobs":2})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(ParamOf(refused), "top_logprobs");
}

TEST(ResponsesApi, WhatIsNotOfferedIsRefusedByName) {
  TestServer server;
  const HttpAnswer answer =
      Post(server.port(), "/v1/responses",
           R"({"input":[{"role":"user","content":[{"type":"input_image"}]}]})");
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(ParamOf(answer), "input[0].content[0]");
}

}  // namespace
}  // namespace kvrm
