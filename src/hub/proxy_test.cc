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
    if (!*proxy) return "none";
    const std::string& login = (*proxy)->authorization;
    return (*proxy)->url.Authority() + (login.empty() ? "" : " " + login);
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
}

TEST_F(Proxy, AUserNameAndAPasswordAreSaidAsHttpsBasicSchemeDoes) {
  const std::pair<const char*, const char*> cases[] = {
      {"http://user:secret@p:1", "p:1 Basic dXNlcjpzZWNyZXQ="},
      {"user@p", "p Basic dXNlcjo="},
      {"http://a%40b:c%3Ad%2f@p/", "p Basic YUBiOmM6ZC8="},
      {"http://u:p@q@p:1", "p:1 Basic dTpwQHE="},
      {"http://:@[::1]:1", "[::1]:1 Basic Og=="},
      {"http://p/a@b", "p"},
  };
  for (const auto& [value, wanted] : cases) {
    setenv("https_proxy", value, 1);
    EXPECT_EQ(Of("https://h/"), wanted) << value;
  }
}

TEST_F(Proxy, NoMessageShowsAPassword) {
  for (const char* value : {"http://user:secret%@p", "http://user:secret%4@p", "https://u:secret@p",
                            "http://u:secret%zz@p", "ftp://u:secret@p", "http://u:secret@p:0"}) {
    setenv("https_proxy", value, 1);
    const std::string said = Of("https://h/");
    EXPECT_EQ(said.find("error: https_proxy: "), 0u) << said;
    EXPECT_EQ(said.find("secret"), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace kvrm
