#include "hub/proxy.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace kvrm {
namespace {

class Proxy : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY",
                             "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}) {
      unsetenv(name);
    }
  }
  std::string Of(const std::string& url) {
    const auto proxy = ProxyFor(ParseUrl(url).value());
    if (!proxy.ok()) return "error: " + proxy.error().message;
    return *proxy ? (*proxy)->Authority() : "none";
  }
};

TEST_F(Proxy, EachSchemeHasItsOwnAndAllStandsForBoth) {
  EXPECT_EQ(Of("https://h/"), "none");
  setenv("HTTPS_PROXY", "http://p:1", 1);
  EXPECT_EQ(Of("https://h/"), "p:1");
  EXPECT_EQ(Of("http://h/"), "none");
  setenv("all_proxy", "q:2", 1);
  EXPECT_EQ(Of("http://h/"), "q:2");
  EXPECT_EQ(Of("https://h/"), "p:1");
}

TEST_F(Proxy, HostsOfTheListAndTheirDomainsAreAskedDirectly) {
  setenv("https_proxy", "p:1", 1);
  setenv("no_proxy", "localhost, .example.org,b.com", 1);
  for (const char* url : {"https://localhost/", "https://example.org/", "https://a.example.org/",
                          "https://a.b.com/"}) {
    EXPECT_EQ(Of(url), "none") << url;
  }
  for (const char* url : {"https://ab.com/", "https://b.com.evil/", "https://h/"}) {
    EXPECT_EQ(Of(url), "p:1") << url;
  }
  setenv("no_proxy", "*", 1);
  EXPECT_EQ(Of("https://h/"), "none");
}

TEST_F(Proxy, WhatIsNoProxyIsRefusedByItsVariable) {
  setenv("https_proxy", "https://p", 1);
  EXPECT_NE(Of("https://h/").find("https_proxy"), std::string::npos);
  setenv("https_proxy", "http://user:secret@p", 1);
  EXPECT_NE(Of("https://h/").find("error: https_proxy"), std::string::npos);
}

}  // namespace
}  // namespace kvrm
