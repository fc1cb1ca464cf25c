// Scripts that are kept: some show how verbs go together, some once failed (their first line says
// how). Each runs as it stands, and once more with a failure after every edit.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "heart_machine.h"
#include "script_log.h"

namespace kvrm::heart {
namespace {

struct NamedScript {
  std::string name;
  Script script;
};

std::vector<NamedScript> KeptScripts() {
  std::vector<NamedScript> scripts;
  const std::string folder = std::string(KVRM_SOURCE_DIR) + "/tests/heart/scripts";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    std::string error;
    const auto script = ParseScript(text, &error);
    EXPECT_TRUE(script.has_value()) << entry.path() << ": " << error;
    if (script) scripts.push_back({entry.path().filename().string(), *script});
  }
  return scripts;
}

TEST(KeptScripts, Hold) {
  for (const auto& [name, script] : KeptScripts()) {
    for (const bool edits : {false, true}) {
      BeginScriptLog(script.setup);
      for (const Command& command : script.commands) LogCommand(command);
      const auto wrong =
          RunScript(script, {.fail_after_every_edit = edits, .validate_frame_every = 1});
      EXPECT_FALSE(wrong.has_value()) << name << ": " << *wrong;
    }
  }
}

TEST(KeptScripts, UseEveryVerb) {
  std::set<Verb> verbs;
  for (const auto& [name, script] : KeptScripts()) {
    for (const Command& command : script.commands) verbs.insert(command.verb);
  }
  EXPECT_EQ(verbs.size(), kVerbs);
}

}  // namespace
}  // namespace kvrm::heart
