// Reports that need pager, frame and executor together: what rows read and write through published
// frames. The pager's own part of each stands in src/pager, the engine's in src/engine.
#include <string>

#include "gtest/gtest.h"
#include "heart_machine.h"

namespace kvrm::heart {
namespace {

void ExpectHolds(const std::string& text) {
  std::string error;
  const auto script = ParseScript(text, &error);
  ASSERT_TRUE(script.has_value()) << error;
  for (const bool edits : {false, true}) {
    const auto wrong =
        RunScript(*script, {.fail_after_every_edit = edits, .validate_frame_every = 1});
    EXPECT_FALSE(wrong.has_value()) << *wrong << "\n" << text;
  }
}

std::string Line(const char* verb, uint32_t seq, const std::string& rest) {
  return std::string(verb) + " s" + std::to_string(seq) + rest + "\n";
}

// A pool of 47 pages, of which 38 are taken and 2 idle but cached: a hit on them and a newcomer
// that wants all there is come in one step, in both orders.
TEST(B001, RowsOfAHitAndOfANewcomerInOneStepKeepApart) {
  for (const char* setup : {"one", "delayed"}) {
    for (const uint32_t newcomer : {75u, 110u, 111u, 113u}) {
      const std::string hit = "adopt s1 text 3 salt 0 tokens 37\ngrow s1 5 hint 0\n";
      const std::string other = "grow s2 " + std::to_string(newcomer) + " hint 0\n";
      const std::string before = "setup " + std::string(setup) +
                                 "\nopen s0 text 3 salt 0\ngrow s0 32 hint 0\ncommit\ndone 0\n"
                                 "index s0\nclose s0\nopen s3 text 1 salt 0\n"
                                 "grow s3 400 hint 0\nopen s4 text 2 salt 0\ngrow s4 208 hint 0\n"
                                 "commit\ndone 0\nopen s1 text 3 salt 0\nopen s2 text 9 salt 1\n";
      const std::string after = "commit\ngrow s1 1 hint 0\ngrow s2 1 hint 0\ncommit\ndone 0\n";
      ExpectHolds(before + hit + other + after);
      ExpectHolds(before + other + hit + after);
    }
  }
}

// Cancelled between scheduling and the forward pass, and once more after the commit.
TEST(B003, APromptAfterACancelledOneReadsNoPageThatWasNotWritten) {
  for (const char* setup : {"one", "delayed"}) {
    for (const char* cancel : {"rollback\n", "commit\nclose s0\ncommit\n", "close s0\ncommit\n"}) {
      ExpectHolds("setup " + std::string(setup) + "\nopen s0 text 3 salt 0\ngrow s0 48 hint 0\n" +
                  cancel +
                  "index s0\nopen s1 text 3 salt 0\nadopt s1 text 3 salt 0 tokens 48\n"
                  "grow s1 48 hint 0\ncommit\nindex s1\nmatch text 3 salt 0 tokens 48\ndone 0\n"
                  "index s1\nmatch text 3 salt 0 tokens 48\n");
    }
  }
}

TEST(B008, StreamsOfOnePromptWriteRowsOfTheirOwn) {
  for (const char* setup : {"one", "delayed", "full-sliding", "full-sliding-delayed"}) {
    std::string script = "setup " + std::string(setup) +
                         "\nopen s0 text 1 salt 0\ngrow s0 20 hint 0\ncommit\ndone 0\n";
    for (uint32_t seq = 1; seq < 4; ++seq) {
      script += Line("open", seq, " text " + std::to_string(seq * 5) + " salt 0");
      script += Line("alias", seq, " s0 20");
    }
    for (uint32_t step = 0; step < 50; ++step) {
      for (uint32_t seq = 0; seq < 4; ++seq) {
        if (step == 5 * (seq + 1)) script += Line("close", seq, "");
        script += Line("grow", seq, " 1 hint 0");
      }
      script += "commit\n";
      if (step % 3 == 0) script += "done 1\n";
    }
    ExpectHolds(script);
  }
}

TEST(B010, WarmPromptsAroundAWholePageReadAllTheirPlaces) {
  for (const char* setup : {"one", "delayed", "full-sliding-delayed"}) {
    std::string script = "setup " + std::string(setup) + "\n";
    for (const uint32_t length : {15u, 16u, 17u, 31u, 32u, 33u}) {
      const std::string tokens = std::to_string(length);
      for (uint32_t again = 0; again < 3; ++again) {
        // Adopted whole or in part, the rest is computed; the last row of a whole one, not written.
        script += "open s0 text 7 salt 0\nadopt s0 text 7 salt 0 tokens " + tokens +
                  "\nreserve s0 " + tokens + " hint 0\ncommit\ngrow s0 20 hint 0\ncommit\n" +
                  "done 0\nindex s0\nclose s0\ncommit\ndone 0\n";
      }
    }
    ExpectHolds(script);
  }
}

TEST(B013, ARetryRightAfterACancelReadsNothingOfTheStepThatStillRuns) {
  std::string script = "setup delayed\n";
  const auto all = [&](const char* verb, const char* rest) {
    for (uint32_t seq = 0; seq < 5; ++seq) script += Line(verb, seq, rest);
  };
  for (uint32_t round = 0; round < 4; ++round) {
    all("open", " text 11 salt 0");
    all("grow", " 60 hint 90");
    script += "commit\n";
    all("grow", " 1 hint 0");
    script += "commit\n";  // still runs when the retry is scheduled
    all("close", "");
    script += "commit\n";
  }
  ExpectHolds(script);
}

}  // namespace
}  // namespace kvrm::heart
