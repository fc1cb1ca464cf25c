#include "hub/url.h"

#include <gtest/gtest.h>

namespace kvrm {
namespace {

std::string Resolved(const std::string& base, const std::string& location) {
  const auto url = ResolveUrl(ParseUrl(base).value(), location);
  return url.ok() ? url->Text() : "error: " + url.error().message;
}

TEST(Url, PartsAreReadAndTheSchemesOwnPortIsLeftOut) {
  const Url url = ParseUrl("https://Hub.Example:8443/a/b?c=d#e").value();
  EXPECT_TRUE(url.tls);
  EXPECT_EQ(url.host, "hub.example");
  EXPECT_EQ(url.port, 8443);
  EXPECT_EQ(url.target, "/a/b?c=d");
  EXPECT_EQ(ParseUrl("https://h:443").value().Text(), "https://h/");
  EXPECT_EQ(ParseUrl("http://[::1]:80?x").value().Text(), "http://[::1]/?x");
  EXPECT_EQ(ParseUrl("http://[::1]:8080/").value().Authority(), "[::1]:8080");
}

TEST(Url, WhatIsNoAddressIsRefused) {
  for (const char* text : {"", "ftp://h", "http://", "http://:80/", "http://h:0/",
                           "http://h:65536/", "http://h:8x/", "http://user@h/", "http://h/a b",
                           "http://h/a\r\nX: y", "http://h/\xc3\xa9", "http://[]/"}) {
    EXPECT_FALSE(ParseUrl(text).ok()) << text;
  }
}

TEST(Url, LocationsAreResolvedAsBrowsersDo) {
  const std::string base = "https://h:1/a/b?q=/x";
  EXPECT_EQ(Resolved(base, "http://other/c"), "http://other/c");
  EXPECT_EQ(Resolved(base, "//other/c"), "https://other/c");
  EXPECT_EQ(Resolved(base, "/c?d"), "https://h:1/c?d");
  EXPECT_EQ(Resolved(base, "c"), "https://h:1/a/c");
  EXPECT_EQ(Resolved(base, "/c?d=e://f"), "https://h:1/c?d=e://f");
  EXPECT_NE(Resolved(base, "ftp://h/c").find("error"), std::string::npos);
}

TEST(Url, AnotherSchemeHostOrPortIsAnotherOrigin) {
  const Url url = ParseUrl("https://h/a").value();
  EXPECT_TRUE(url.SameOrigin(ParseUrl("https://H:443/b").value()));
  for (const char* other : {"http://h/a", "https://h:444/a", "https://h.example/a"}) {
    EXPECT_FALSE(url.SameOrigin(ParseUrl(other).value())) << other;
  }
}

TEST(Url, PathsKeepTheirSlashesAndNothingElseThatMeansSomething) {
  EXPECT_EQ(EncodePath("a-b_c.~/d e?#%\xc3\xa9"), "a-b_c.~/d%20e%3F%23%25%C3%A9");
  EXPECT_EQ(EncodeSegment("refs/pr/1"), "refs%2Fpr%2F1");
}

}  // namespace
}  // namespace kvrm
