#include "server/service_rate.h"

#include <gtest/gtest.h>

namespace kvrm {
namespace {

constexpr int64_t kSecond = 1'000'000;

TEST(ServiceRate, RetryAfterIsTheTimeInWhichHalfTheQueueIsServed) {
  ServiceRate rate;
  EXPECT_EQ(rate.RetryAfterSeconds(100), 1u) << "nothing is known";
  for (int64_t t = 0; t <= 60; ++t) rate.Observe(t * kSecond, static_cast<uint64_t>(t) * 4);
  EXPECT_NEAR(rate.per_second(), 4, 1e-9);
  EXPECT_EQ(rate.RetryAfterSeconds(0), 1u);
  EXPECT_EQ(rate.RetryAfterSeconds(8), 1u);
  EXPECT_EQ(rate.RetryAfterSeconds(80), 10u);
  EXPECT_EQ(rate.RetryAfterSeconds(81), 11u);
  EXPECT_EQ(rate.RetryAfterSeconds(1'000'000), ServiceRate::kMaxRetrySeconds);
}

TEST(ServiceRate, ARateThatChangesIsFollowed) {
  ServiceRate rate;
  uint64_t ended = 0;
  for (int64_t t = 0; t < 60; ++t) rate.Observe(t * kSecond, ended += 10);
  for (int64_t t = 60; t < 120; ++t) rate.Observe(t * kSecond, ended += 1);
  EXPECT_NEAR(rate.per_second(), 1, 0.1);
  for (int64_t t = 120; t < 240; ++t) rate.Observe(t * kSecond, ended);
  EXPECT_EQ(rate.RetryAfterSeconds(10), ServiceRate::kMaxRetrySeconds) << "nothing is served";
}

TEST(ServiceRate, AskingOftenChangesNothing) {
  ServiceRate often, seldom;
  for (int64_t us = 0; us <= 10 * kSecond; us += 1000) {
    often.Observe(us, static_cast<uint64_t>(us / kSecond) * 2);
    if (us % kSecond == 0) seldom.Observe(us, static_cast<uint64_t>(us / kSecond) * 2);
  }
  EXPECT_NEAR(often.per_second(), seldom.per_second(), 0.5);
}

}  // namespace
}  // namespace kvrm
