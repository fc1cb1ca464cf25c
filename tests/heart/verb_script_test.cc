// The verb language itself: what it prints it reads, and it says what it cannot read.
#include "verb_script.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "random_scripts.h"
#include "setups.h"

namespace kvrm::heart {
namespace {

Script AnyScript(uint64_t seed) {
  Script script;
  script.setup = static_cast<uint32_t>(seed % Setups().size());
  ScriptModel model;
  for (uint64_t i = 0; i < 200; ++i) {
    script.commands.push_back(RandomCommand(model, seed * 1000 + i));
    model.Apply(script.commands.back());
  }
  return script;
}

TEST(VerbScript, WhatItPrintsItReads) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::string error;
    const Script script = AnyScript(seed);
    const auto read = ParseScript(ToText(script), &error);
    ASSERT_TRUE(read.has_value()) << error;
    EXPECT_EQ(ToText(*read), ToText(script));
    EXPECT_EQ(*read, script);
  }
}

TEST(VerbScript, BytesHoldTheWholeScript) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Script script = AnyScript(seed);
    EXPECT_EQ(ScriptOfBytes(BytesOfScript(script)), script);
  }
}

TEST(VerbScript, CommentsAndSpacesAreSkipped) {
  std::string error;
  const auto script = ParseScript("\n  # nothing\nsetup two-full\n\tcut  s3   7 # more\n", &error);
  ASSERT_TRUE(script.has_value()) << error;
  EXPECT_EQ(ToText(*script), "setup two-full\ncut s3 7\n");
}

TEST(VerbScript, AnErrorNamesTheLine) {
  for (const char* line :
       {"grow s1", "grow s1 7 hint", "grow s1 7 hint 1 2", "grow 1 7 hint 0", "grow s10 7 hint 0",
        "cut s1 65536", "cut s1 -1", "fly s1", "setup unknown", "close s"}) {
    std::string error;
    EXPECT_FALSE(ParseScript("commit\n" + std::string(line) + "\n", &error).has_value()) << line;
    EXPECT_EQ(error, "line 2 is no command: " + std::string(line));
  }
}

}  // namespace
}  // namespace kvrm::heart
