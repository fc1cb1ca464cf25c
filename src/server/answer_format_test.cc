// The APIs beside OpenAI's completions, over HTTP: what each takes, how each words its answer, and
// what each says to what is not offered.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/testing/http_client.h"
#include "server/testing/test_server.h"

namespace kvrm {
namespace {

namespace json = boost::json;
using testing::HttpAnswer;
using testing::Post;
using testing::TestServer;

struct Event {
  std::string name;  // "" = none
  json::value data;
};

// Events with or without names; every byte must belong to one.
std::vector<Event> EventsOf(const HttpAnswer& answer) {
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_TRUE(answer.complete);
  std::vector<Event> events;
  std::string_view rest = answer.body;
  while (!rest.empty()) {
    const size_t end = rest.find("\n\n");
    if (end == std::string_view::npos) {
      ADD_FAILURE() << "no event: " << rest;
      break;
    }
    std::string_view text = rest.substr(0, end);
    rest.remove_prefix(end + 2);
    Event event;
    if (text.starts_with("event: ")) {
      event.name = text.substr(7, text.find('\n') - 7);
      text.remove_prefix(text.find('\n') + 1);
    }
    EXPECT_TRUE(text.starts_with("data: ")) << text;
    event.data = json::parse(text.substr(6));
    events.push_back(std::move(event));
  }
  return events;
}

std::string Text(const json::value& v) { return std::string(v.as_string()); }

// The field that an error names; "" = none.
std::string ParamOf(const HttpAnswer& answer) {
  const json::value body = answer.json();
  const auto& param = body.at("error").at("param");
  return param.is_string() ? Text(param) : "";
}

// ---- llama-server's /completion
TEST(NativeApi, AWholeAnswerHasItsFields) {
  TestServer server;
  const auto answer = Post(server.port(), "/completion",
                           R"({"prompt":"abc","n_predict":10,"temperature":0,"cache_prompt":true,
                               "id_slot":-1,"n_keep":0,"return_tokens":true})")
                          .json();
  EXPECT_EQ(Text(answer.at("content")), "abc");
  EXPECT_EQ(answer.at("tokens").as_array().size(), 4u) << "the end token was made, too";
  EXPECT_EQ(answer.at("stop").as_bool(), true);
  EXPECT_EQ(Text(answer.at("stop_type")), "eos");
  EXPECT_EQ(Text(answer.at("stopping_word")), "");
  EXPECT_EQ(answer.at("tokens_predicted").as_int64(), 4);
  EXPECT_EQ(answer.at("tokens_evaluated").as_int64(), 3);
  EXPECT_EQ(answer.at("tokens_cached").as_int64(), 7);
  EXPECT_EQ(answer.at("truncated").as_bool(), false);
  EXPECT_EQ(answer.at("generation_settings").at("n_predict").as_int64(), 10);
  EXPECT_EQ(answer.at("timings").at("predicted_n").as_int64(), 4);
}

TEST(NativeApi, EachEndIsNamed) {
  TestServer server;
  const auto end_of = [&](const std::string& fields) {
    return Post(server.port(), "/completion",
                R"({"prompt":"abcdef","temperature":0,)" + fields + "}")
        .json();
  };
  const auto limit = end_of(R"("n_predict":2)");
  EXPECT_EQ(Text(limit.at("stop_type")), "limit");
  EXPECT_EQ(Text(limit.at("content")), "ab");
  const auto word = end_of(R"("stop":["x","de"])");
  EXPECT_EQ(Text(word.at("stop_type")), "word");
  EXPECT_EQ(Text(word.at("stopping_word")), "de");
  EXPECT_EQ(Text(word.at("content")), "abc");
  const auto unlimited = end_of(R"("n_predict":-1)");
  EXPECT_EQ(Text(unlimited.at("content")), "abcdef") << "16 is the limit of /v1/completions only";
}

TEST(NativeApi, AStreamJoinsToTheWholeAndEndsWithStop) {
  TestServer server;
  const auto events =
      EventsOf(Post(server.port(), "/completion",
                    R"({"prompt":"ab\ncd","temperature":0,"stream":true,"n_probs":2})"));
  ASSERT_GE(events.size(), 2u);
  std::string joined;
  for (size_t i = 0; i < events.size(); ++i) {
    const bool last = i + 1 == events.size();
    EXPECT_EQ(events[i].data.at("stop").as_bool(), last);
    joined += Text(events[i].data.at("content"));
  }
  EXPECT_EQ(joined, "ab\ncd");
  const auto& probabilities = events[0].data.at("completion_probabilities").as_array();
  EXPECT_EQ(probabilities[0].at("id").as_int64(), testing::kFirstByte + 'a');
  EXPECT_EQ(probabilities[0].at("top_logprobs").as_array().size(), 2u);
  const json::value& last = events.back().data;
  EXPECT_EQ(Text(last.at("stop_type")), "eos");
  EXPECT_EQ(last.at("has_new_line").as_bool(), true);
  EXPECT_EQ(last.at("tokens_evaluated").as_int64(), 5);
}

// Numbers of a context shift are not offered, and never an index into anything (B080).
TEST(NativeApi, WhatIsNotOfferedIsRefusedByName) {
  TestServer server;
  for (const auto& [field, value] : std::vector<std::pair<std::string, std::string>>{
           {"n_keep", "-32"},
           {"n_keep", "2000000000"},
           {"n_discard", "-1"},
           {"image_data", "[{\"data\":\"x\",\"id\":1}]"},
           {"grammar", "\"root ::= x\""},
           {"json_schema", "{}"},
           {"samplers", "[\"top_k\"]"},
           {"lora", "[{\"id\":0,\"scale\":1}]"},
           {"n", "2"},
           {"mirostat", "2"}}) {
    const HttpAnswer answer =
        Post(server.port(), "/completion", R"({"prompt":"a",")" + field + "\":" + value + "}");
    EXPECT_EQ(answer.status, 400) << field;
    EXPECT_EQ(ParamOf(answer), field);
  }
  EXPECT_EQ(ParamOf(Post(server.port(), "/completion", R"({"prompt":["a","b"]})")), "prompt");
  EXPECT_EQ(ParamOf(Post(server.port(), "/completion", "{}")), "prompt");
}

// ---- /v1/responses
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

TEST(ResponsesApi, WhatIsNotOfferedIsRefusedByName) {
  TestServer server;
  for (const auto& [field, value] : std::vector<std::pair<std::string, std::string>>{
           {"previous_response_id", "\"resp_1\""},
           {"conversation", "\"conv_1\""},
           {"background", "true"},
           {"tools", "[{\"type\":\"web_search\"}]"},
           {"text", "{\"format\":{\"type\":\"json_schema\"}}"},
           {"reasoning", "{\"effort\":\"high\"}"},
           {"truncation", "\"auto\""},
           {"include", "[\"message.output_text.logprobs\"]"},
           {"prompt", "{\"id\":\"p\"}"},
           {"top_logprobs", "3"},
           {"input", "[{\"type\":\"function_call_output\",\"call_id\":\"1\",\"output\":\"x\"}]"},
           {"input", "[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}]"}}) {
    std::string body = R"({"input":"a",")" + field + "\":" + value + "}";
    if (field == "input") body = "{\"input\":" + value + "}";
    const HttpAnswer answer = Post(server.port(), "/v1/responses", body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_TRUE(ParamOf(answer).starts_with(field)) << answer.body;
  }
  EXPECT_EQ(Post(server.port(), "/v1/responses",
                 R"({"input":"a","truncation":"disabled","text":{"format":{"type":"text"}},
                     "reasoning":null,"tools":[],"store":true,"include":[]})")
                .status,
            200);
}

// ---- /v1/messages
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

// ---- timeouts and priorities, whichever API
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
TEST(Priority, TheLowerNumberIsServedFirst) {
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
  urgent.SendRequest("POST", "/v1/completions", R"({"prompt":"cccc","priority":-5})",
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
  EXPECT_EQ(ask("7").status, 200);
  const HttpAnswer refused = ask("-1");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(ParamOf(refused), "priority");
}

}  // namespace
}  // namespace kvrm
