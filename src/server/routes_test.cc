#include "server/routes.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace kvrm {
namespace {

TEST(Routes, QueriesAreIgnoredAndModelNamesDecoded) {
  EXPECT_EQ(MatchRoute("/v1/chat/completions").route, Route::kChat);
  EXPECT_EQ(MatchRoute("/v1/completions?x=1").route, Route::kCompletions);
  EXPECT_EQ(MatchRoute("/health").route, Route::kHealth);
  EXPECT_EQ(MatchRoute("/metrics").route, Route::kMetrics);
  EXPECT_EQ(MatchRoute("/v1/models").route, Route::kModels);
  EXPECT_EQ(MatchRoute("/").route, Route::kNone);
  EXPECT_EQ(MatchRoute("").route, Route::kNone);
  EXPECT_EQ(MatchRoute("/v1/models/org%2Fname").model, "org/name");
  EXPECT_EQ(MatchRoute("/v1/models/org/name").model, "org/name");
  EXPECT_EQ(MatchRoute("/v1/models/a%zz%4").model, "a%zz%4");
}

// Base URLs are written with and without a slash at their end, and clients join as they like.
TEST(Routes, ASlashAtTheEndAndEncodedLettersChangeNothing) {
  for (const RouteInfo& info : AllRoutes()) {
    if (info.route == Route::kModel) continue;
    EXPECT_EQ(MatchRoute(std::string(info.path) + "/").route, info.route) << info.path;
    EXPECT_EQ(MatchRoute(std::string(info.path) + "/?x=1").route, info.route) << info.path;
  }
  EXPECT_EQ(MatchRoute("/v1/completions//").route, Route::kNone);
  EXPECT_EQ(MatchRoute("/v1/%63hat%2fcompletions").route, Route::kChat);
  EXPECT_EQ(MatchRoute("/v1%2Fmodels/a%2520b").model, "a%20b") << "decoded once";
  EXPECT_EQ(MatchRoute("/v1/models/a/").model, "a/") << "a name may end so";
  EXPECT_EQ(MatchRoute("/health%3Fx").route, Route::kNone);
  EXPECT_EQ(MatchRoute("/health%").route, Route::kNone);
  EXPECT_EQ(MatchRoute("//").route, Route::kNone);
}

// OpenVINO Model Server has OpenAI's API below /v3.
TEST(Routes, TheSameIsServedBelowTheRootsOfOtherServers) {
  EXPECT_EQ(MatchRoute("/v3/chat/completions").route, Route::kChat);
  EXPECT_EQ(MatchRoute("/v3/completions").route, Route::kCompletions);
  EXPECT_EQ(MatchRoute("/v3/models/a").model, "a");
  EXPECT_EQ(MatchRoute("/v2/health/ready").route, Route::kReady);
  EXPECT_EQ(MatchRoute("/v2/health/live").route, Route::kLive);
  EXPECT_EQ(MatchRoute("/v3/embeddings").not_offered, "embeddings");
}

TEST(Routes, TargetsInAbsoluteFormAreRoutedByTheirPath) {
  EXPECT_EQ(MatchRoute("http://127.0.0.1:8080/health").route, Route::kHealth);
  EXPECT_EQ(MatchRoute("HTTP://localhost/v1/models/a?x=http://b/").model, "a");
  EXPECT_EQ(MatchRoute("http://localhost").route, Route::kNone);
  EXPECT_EQ(MatchRoute("http:///health").route, Route::kNone);
  EXPECT_EQ(MatchRoute("ftp://localhost/health").route, Route::kNone);
  EXPECT_EQ(TargetHost("http://a.b:1/c"), "a.b:1");
  EXPECT_EQ(TargetHost("http://a?c/d"), "a");
  EXPECT_EQ(TargetHost("/http://a/"), "");
}

TEST(Routes, PathsAreDistinctAndEachRouteHasANameAndASummary) {
  std::set<std::string_view> paths;
  for (const RouteInfo& info : AllRoutes()) {
    EXPECT_TRUE(paths.insert(info.path).second) << info.path;
    EXPECT_EQ(info.route == Route::kNotOffered, info.kind == RouteKind::kNone) << info.path;
    EXPECT_EQ(MatchRoute(info.path).route, info.route) << info.path;
    EXPECT_FALSE(InfoOf(info.route).summary.empty()) << info.path;
  }
  EXPECT_EQ(RouteName(Route::kNone), "other");
  EXPECT_EQ(RouteName(Route::kNotOffered), "other");
}

TEST(Routes, SlotsReadTheOneQueryThatChangesTheirAnswer) {
  EXPECT_FALSE(MatchRoute("/slots").fail_on_no_slot);
  EXPECT_TRUE(MatchRoute("/slots?fail_on_no_slot=1").fail_on_no_slot);
  EXPECT_TRUE(MatchRoute("/slots?a=b&fail_on_no_slot").fail_on_no_slot);
  EXPECT_FALSE(MatchRoute("/slots?fail_on_no_slot=0").fail_on_no_slot);
  EXPECT_FALSE(MatchRoute("/slots?fail_on_no_slots=1&").fail_on_no_slot);
}

}  // namespace
}  // namespace kvrm
