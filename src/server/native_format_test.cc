// llama-server's /completion over HTTP: what it takes, how it words its answer.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>
#include <utility>
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
  const auto& likely = probabilities[0].at("top_logprobs").as_array();
  ASSERT_EQ(likely.size(), 2u);
  EXPECT_EQ(likely[0].at("id"), probabilities[0].at("id"));
  EXPECT_EQ(likely[0].at("token").as_string(), "a");
  const json::value& last = events.back().data;
  EXPECT_EQ(Text(last.at("stop_type")), "eos");
  EXPECT_EQ(last.at("has_new_line").as_bool(), true);
  EXPECT_EQ(last.at("tokens_evaluated").as_int64(), 5);
}

// Numbers of a context shift are not offered, and never an index into anything.
TEST(B080, NumbersOfAContextShiftAreRefusedByName) {
  TestServer server;
  for (const char* field : {"n_keep", "n_discard"}) {
    for (const char* value : {"-32", "-1", "1", "255", "256", "2000000000"}) {
      const HttpAnswer answer =
          Post(server.port(), "/completion",
               R"({"prompt":"a",")" + std::string(field) + "\":" + value + "}");
      EXPECT_EQ(answer.status, 400) << field << " " << value;
      EXPECT_EQ(ParamOf(answer), field);
    }
  }
}

TEST(NativeApi, WhatIsNotOfferedIsRefusedByName) {
  TestServer server;
  for (const auto& [field, value] : std::vector<std::pair<std::string, std::string>>{
           {"grammar", "\"root ::= x\""}, {"n", "2"}}) {
    const HttpAnswer answer =
        Post(server.port(), "/completion", R"({"prompt":"a",")" + field + "\":" + value + "}");
    EXPECT_EQ(answer.status, 400) << field;
    EXPECT_EQ(ParamOf(answer), field);
  }
  EXPECT_EQ(ParamOf(Post(server.port(), "/completion", "{}")), "prompt");
}

// One prompt is answered by an object, also from a list; several by an array in their order.
TEST(NativeApi, SeveralPromptsAreAnsweredByAnArray) {
  TestServer server;
  const auto ask = [&](const std::string& prompt) {
    return Post(server.port(), "/completion",
                R"({"temperature":0,"n_predict":4,"prompt":)" + prompt + "}")
        .json();
  };
  EXPECT_EQ(Text(ask(R"(["ab"])").at("content")), "ab");
  const auto answers = ask(R"(["ab","x\ncdef",[70,71]])");
  ASSERT_EQ(answers.as_array().size(), 3u);
  const char* const contents[] = {"ab", "x\ncd", "CD"};
  const int64_t evaluated[] = {2, 6, 2};
  const int64_t predicted[] = {3, 4, 3};
  for (size_t i = 0; i < 3; ++i) {
    const json::value& one = answers.as_array()[i];
    EXPECT_EQ(one.at("index").as_int64(), static_cast<int64_t>(i));
    EXPECT_EQ(Text(one.at("content")), contents[i]);
    EXPECT_EQ(one.at("tokens_evaluated").as_int64(), evaluated[i]);
    EXPECT_EQ(one.at("tokens_predicted").as_int64(), predicted[i]);
    EXPECT_EQ(one.at("timings").at("predicted_n").as_int64(), predicted[i]);
    EXPECT_EQ(one.at("has_new_line").as_bool(), i == 1);
    EXPECT_EQ(Text(one.at("stop_type")), i == 1 ? "limit" : "eos");
  }
}

TEST(NativeApi, StreamsOfSeveralPromptsEndEachForItself) {
  TestServer server;
  const auto events = EventsOf(Post(server.port(), "/completion",
                                    R"({"prompt":["ab","cdef"],"temperature":0,"stream":true})"));
  std::string texts[2];
  int64_t predicted[2] = {};
  for (const Event& event : events) {
    const auto index = static_cast<size_t>(event.data.at("index").as_int64());
    ASSERT_LT(index, 2u);
    EXPECT_EQ(predicted[index], 0) << "an event after the one that has stop";
    texts[index] += Text(event.data.at("content"));
    if (event.data.at("stop").as_bool()) {
      predicted[index] = event.data.at("tokens_predicted").as_int64();
    }
  }
  EXPECT_EQ(texts[0], "ab");
  EXPECT_EQ(texts[1], "cdef");
  EXPECT_EQ(predicted[0], 3);
  EXPECT_EQ(predicted[1], 5);
}

}  // namespace
}  // namespace kvrm
