#include "server/request_log.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace kvrm {
namespace {

constexpr int64_t kSomeDay = 1'700'000'000'123'456;  // 2023-11-14T22:13:20.123Z

RequestRecord Record() {
  RequestRecord record;
  record.id = "req-1";
  record.route = "/v1/completions";
  record.status = 200;
  record.total_us = 12'340;
  record.first_output_us = 1'500;
  AnswerRecord answer;
  answer.totals.usage = {.prompt_tokens = 7, .completion_tokens = 3, .cached_tokens = 2};
  answer.finish_reason = "stop";
  answer.choices = 1;
  answer.queued_us = 250;
  answer.longest_gap_us = 900;
  record.answer = answer;
  return record;
}

TEST(RequestLog, JsonLinesHoldTheFiguresOfTheRequest) {
  RequestRecord record = Record();
  record.trace = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01";
  record.key = "alice";
  const std::string line = LogLine(LogFormat::kJson, record, kSomeDay);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto json = boost::json::parse(line);
  EXPECT_EQ(json.at("time").as_string(), "2023-11-14T22:13:20.123Z");
  EXPECT_EQ(json.at("event").as_string(), "request");
  EXPECT_EQ(json.at("request_id").as_string(), "req-1");
  EXPECT_EQ(json.at("traceparent").as_string(), record.trace);
  EXPECT_EQ(json.at("key").as_string(), "alice");
  EXPECT_EQ(json.at("status").as_int64(), 200);
  EXPECT_EQ(json.at("prompt_tokens").as_int64(), 7);
  EXPECT_EQ(json.at("cached_tokens").as_int64(), 2);
  EXPECT_EQ(json.at("output_tokens").as_int64(), 3);
  EXPECT_EQ(json.at("total_ms").to_number<double>(), 12.34);
  EXPECT_EQ(json.at("first_output_ms").to_number<double>(), 1.5);
}

TEST(RequestLog, TextLinesLeaveOutWhatIsNotKnown) {
  RequestRecord record = Record();
  EXPECT_EQ(LogLine(LogFormat::kText, record, kSomeDay),
            "/v1/completions 200 id=req-1 prompt=7 cached=2 output=3 finish=stop queued=0.2ms "
            "gap=0.9ms first=1.5ms total=12.3ms");
  record.answer.reset();
  record.first_output_us.reset();
  record.status = 0;
  record.client_gone = true;
  EXPECT_EQ(LogLine(LogFormat::kText, record, kSomeDay),
            "/v1/completions 0 id=req-1 client-gone total=12.3ms");
}

// A log line that a client's bytes could end, or break as JSON, would forge the next one.
TEST(RequestLog, MessagesAreOneLineOfValidJson) {
  const auto json = boost::json::parse(LogLine(LogFormat::kJson, "a \"b\"\n\xFF", kSomeDay));
  EXPECT_EQ(json.at("message").as_string(), "a \"b\"\n\xEF\xBF\xBD");
  EXPECT_EQ(LogLine(LogFormat::kText, "plain", kSomeDay), "plain");
}

}  // namespace
}  // namespace kvrm
