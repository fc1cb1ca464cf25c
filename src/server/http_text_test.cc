#include "server/http_text.h"

#include <gtest/gtest.h>

#include <string>

namespace kvrm {
namespace {

TEST(HttpText, OnlyNamesOfThisMachineAreLocal) {
  for (const char* host : {"localhost", "LocalHost:8080", "127.0.0.1", "127.255.3.4:1", "[::1]",
                           "[::1]:8080", "box.lan", "BOX.lan:80"}) {
    EXPECT_TRUE(IsLocalHost(host, "box.lan")) << host;
  }
  for (const char* host :
       {"", ":80", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0",
        "127.0.0.256", "127.0.0.1.", "127.0.0.1.1", "128.0.0.1", "127.0.0.-1", "::1", "[::2]",
        "[::1", "localhost:80x", "localhost:80@evil.example", "[::1]x", "user@localhost"}) {
    EXPECT_FALSE(IsLocalHost(host, "box.lan")) << host;
  }
  EXPECT_TRUE(IsLocalHost("[fe80::1]:80", "fe80::1"));
}

TEST(HttpText, HeadSaysHowTheBodyIsFramed) {
  HeadFields fields;
  fields.content_type = "application/json";
  fields.content_length = 12;
  std::string head = HeadText(fields);
  EXPECT_TRUE(head.starts_with("HTTP/1.1 200 OK\r\n")) << head;
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
  EXPECT_NE(head.find("Content-Length: 12\r\n"), std::string::npos);
  EXPECT_EQ(head.find("Transfer-Encoding"), std::string::npos);
  fields.framing = HeadFields::Framing::kChunked;
  fields.status = 429;
  fields.retry_after_s = 3;
  fields.keep_alive = false;
  head = HeadText(fields);
  EXPECT_TRUE(head.starts_with("HTTP/1.1 429 Too Many Requests\r\n")) << head;
  EXPECT_EQ(head.find("Content-Length"), std::string::npos);
  EXPECT_NE(head.find("Transfer-Encoding: chunked\r\n"), std::string::npos);
  EXPECT_NE(head.find("Retry-After: 3\r\n"), std::string::npos);
  EXPECT_NE(head.find("Connection: close\r\n"), std::string::npos);
}

TEST(HttpText, ChunksCarryTheirSizeInHex) {
  std::string out;
  AppendChunk(out, std::string(26, 'x'));
  EXPECT_EQ(out, "1a\r\n" + std::string(26, 'x') + "\r\n");
}

// What a client sends is repeated in a header only when it cannot end the line.
TEST(HttpText, OnlyPlainValuesAreRepeatedInHeaders) {
  EXPECT_TRUE(IsPlainHeaderValue("req-1_2.3"));
  EXPECT_FALSE(IsPlainHeaderValue(""));
  EXPECT_FALSE(IsPlainHeaderValue("a b"));
  EXPECT_FALSE(IsPlainHeaderValue("a\r\nX: 1"));
  EXPECT_FALSE(IsPlainHeaderValue(std::string(129, 'x')));
  EXPECT_FALSE(IsPlainHeaderValue("\xC3\xA9"));
}

TEST(HttpText, OnlyWellFormedTraceParentsAreTaken) {
  const std::string good = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01";
  EXPECT_TRUE(IsTraceParent(good));
  EXPECT_FALSE(IsTraceParent(""));
  EXPECT_FALSE(IsTraceParent(good + "x"));
  EXPECT_FALSE(IsTraceParent("01" + good.substr(2)));
  EXPECT_FALSE(IsTraceParent("00-" + std::string(32, '0') + good.substr(35)));
  EXPECT_FALSE(IsTraceParent(good.substr(0, 36) + std::string(16, '0') + "-01"));
  std::string upper = good;
  upper[20] = 'A';
  EXPECT_FALSE(IsTraceParent(upper));
}

}  // namespace
}  // namespace kvrm
