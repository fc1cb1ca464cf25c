#include "base/check.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace kvrm {
namespace {

void Fail() {
  const std::string law = "LAW-1: of a text that dies with this frame";
  KVRM_CHECK(law.empty(), law.c_str());
}

TEST(Check, StopsTheProcessNamingTheLaw) { EXPECT_DEATH(Fail(), "CHECK failed: LAW-1"); }

TEST(Check, ThrowsItsLawUnderATrap) {
  CheckTrap trap;
  try {
    Fail();
    FAIL() << "the check passed";
  } catch (const CheckFailure& failure) {
    EXPECT_NE(std::string(failure.text).find("LAW-1: of a text"), std::string::npos);
    EXPECT_NE(std::string(failure.text).find("law.empty()"), std::string::npos);
  }
}

TEST(Check, TrapHoldsForItsThreadAndItsLifeOnly) {
  {
    CheckTrap outer;
    {
      CheckTrap inner;
    }
    EXPECT_THROW(Fail(), CheckFailure);
    EXPECT_DEATH(std::thread(Fail).join(), "LAW-1");
  }
  EXPECT_DEATH(Fail(), "LAW-1");
}

}  // namespace
}  // namespace kvrm
