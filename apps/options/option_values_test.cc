#include "options/option_values.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "options/help_text.h"

namespace kvrm::cli {
namespace {

using Args = std::vector<std::string>;

Result<OptionValues> Parse(CommandBit command, const Args& args,
                           const std::map<std::string, std::string>& environment = {}) {
  return ParseOptions(command, args, [environment](const std::string& name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

std::string ErrorOf(CommandBit command, const Args& args,
                    const std::map<std::string, std::string>& environment = {}) {
  const auto values = Parse(command, args, environment);
  return values.ok() ? "" : values.error().message;
}

// A file that lives as long as the object.
class TempFile {
 public:
  explicit TempFile(const std::string& text)
      : path_(::testing::TempDir() + "kvrm_options_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".toml") {
    std::ofstream(path_) << text;
  }
  ~TempFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(OptionTable, NamesLettersAndAliasesAreUniqueWithinACommand) {
  for (const CommandSpec& command : CommandTable()) {
    std::set<std::string> seen;
    for (const OptionSpec& option : OptionTable()) {
      if ((option.commands & command.bit) == 0) continue;
      for (std::string spelling : Words(Spellings(option))) {
        if (spelling.back() == ',') spelling.pop_back();
        EXPECT_TRUE(seen.insert(spelling).second) << command.name << " " << spelling;
      }
    }
  }
}

TEST(OptionTable, EachDefaultKeepsItsOwnRule) {
  for (const CommandSpec& command : CommandTable()) {
    EXPECT_EQ(ErrorOf(command.bit, {}), "") << command.name;
  }
}

TEST(OptionTable, EachOptionHasHelpAndAValueName) {
  for (const OptionSpec& option : OptionTable()) {
    EXPECT_FALSE(option.help.empty()) << option.name;
    EXPECT_EQ(option.value_name.empty(), option.type == OptionType::kFlag) << option.name;
    EXPECT_NE(option.commands, 0u) << option.name;
  }
}

TEST(OptionValues, CommandLineOverEnvironmentOverFileOverDefault) {
  const TempFile file("top-k = 3\ntemp = 0.5\nport = 1234\n");
  const Args config = {"--config", file.path()};
  const std::map<std::string, std::string> environment = {{"KVRM_TOP_K", "5"}};

  EXPECT_EQ(Parse(kGenerate, {})->Int("top-k"), 40);
  EXPECT_EQ(Parse(kGenerate, config)->Int("top-k"), 3);
  EXPECT_EQ(Parse(kGenerate, config, environment)->Int("top-k"), 5);
  Args all = config;
  all.insert(all.end(), {"--top-k", "7"});
  const auto values = Parse(kGenerate, all, environment);
  EXPECT_EQ(values->Int("top-k"), 7);
  EXPECT_EQ(values->Source("top-k"), ValueSource::kCommandLine);
  EXPECT_EQ(values->Float("temp"), 0.5);
  EXPECT_EQ(values->Source("temp"), ValueSource::kConfigFile);
}

TEST(OptionValues, OneConfigFileServesAllCommandsButUnknownNamesAreErrors) {
  const TempFile other("port = 9000\n");
  EXPECT_TRUE(Parse(kGenerate, {"--config", other.path()}).ok());
  EXPECT_EQ(Parse(kServe, {"--config", other.path()})->Int("port"), 9000);
  const TempFile unknown("prot = 9000\n");
  EXPECT_NE(ErrorOf(kServe, {"--config", unknown.path()}).find("'prot' is no setting"),
            std::string::npos);
  EXPECT_NE(ErrorOf(kServe, {"--config", "/nonexistent.toml"}).find("/nonexistent.toml"),
            std::string::npos);
}

TEST(OptionValues, WhatIsWrongInAConfigIsNamedWithItsLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"port = 9000\n\n# prot = 1\nprot = 9000\n", ", line 4: 'prot' is no setting"},
      {"port-x = 1", ", line 1: 'port-x' is no setting"},
      {"\"port y\" = 1\nport = 2\n", ", line 1: 'port y' is no setting"},
      {"temp = 0.5\r\n\r\n  ctx-sizes = 5\r\n", ", line 3: 'ctx-sizes' is no setting"},
      {"port = 1\n\n[serve]\nhost = \"a\"\n", ", line 3: section 'serve' is not known"},
      {"port = 1\nserve.host = \"a\"\n", ", line 2: section 'serve' is not known"},
      {"host = \"a\"\nport = 70000\n", "--port '70000' (from the configuration file, line 2)"},
      {"portal = 1\nport = 1\n", ", line 1: 'portal' is no setting"},
  };
  for (const auto& [text, expected] : cases) {
    const TempFile wrong(text);
    EXPECT_NE(ErrorOf(kServe, {"--config", wrong.path()}).find(expected), std::string::npos)
        << text << ErrorOf(kServe, {"--config", wrong.path()});
  }
}

// A batch has no streams that could wait.
TEST(OptionValues, OnlyABatchHasNoGapBudgetUnlessItIsAskedForOne) {
  EXPECT_EQ(Parse(kBatch, {})->Int("max-itl-ms"), 0);
  EXPECT_EQ(Parse(kBatch, {"--max-itl-ms", "40"})->Int("max-itl-ms"), 40);
  for (const CommandBit command : {kServe, kChat, kGenerate}) {
    EXPECT_EQ(Parse(command, {})->Int("max-itl-ms"), kAutoValue);
  }
}

TEST(OptionValues, AConfigThatIsNoFileIsAnErrorThatSaysWhy) {
  EXPECT_EQ(ErrorOf(kServe, {"--config", "/"}), "--config '/': Is a directory");
  EXPECT_EQ(ErrorOf(kServe, {"--config", "/nonexistent.toml"}),
            "--config '/nonexistent.toml': No such file or directory");
}

TEST(OptionValues, AFlagThatIsASettingComesFromEverySource) {
  const TempFile file("strict-model = true\n");
  const Args config = {"--config", file.path()};
  EXPECT_FALSE(Parse(kServe, {})->Flag("strict-model"));
  EXPECT_TRUE(Parse(kServe, {"--strict-model"})->Flag("strict-model"));
  EXPECT_TRUE(Parse(kServe, config)->Flag("strict-model"));
  EXPECT_FALSE(Parse(kServe, config, {{"KVRM_STRICT_MODEL", "0"}})->Flag("strict-model"));
  const TempFile printed(Parse(kServe, {})->PrintConfig());
  EXPECT_FALSE(Parse(kServe, {"--config", printed.path()})->Flag("strict-model"));
}

TEST(OptionValues, AnInvocationOptionIsNotTakenFromTheEnvironment) {
  EXPECT_TRUE(Parse(kGenerate, {}, {{"KVRM_PROMPT", "x"}})->Texts("prompt").empty());
}

TEST(OptionValues, ErrorsNameFlagValueLimitAndSource) {
  const std::string text = ErrorOf(kServe, {"--port", "70000"});
  EXPECT_NE(text.find("--port '70000'"), std::string::npos) << text;
  EXPECT_NE(text.find("0 to 65535"), std::string::npos) << text;
  EXPECT_NE(ErrorOf(kServe, {}, {{"KVRM_PORT", "x"}}).find("from KVRM_PORT"), std::string::npos);
  EXPECT_NE(ErrorOf(kGenerate, {"--kv", "f64"}).find("one of f16, int8, f32"), std::string::npos);
  EXPECT_NE(ErrorOf(kGenerate, {"--bogus"}).find("'--bogus'"), std::string::npos);
  EXPECT_EQ(ErrorOf(kGenerate, {"--temp"}), "--temp needs a value");
  EXPECT_EQ(ErrorOf(kGenerate, {"-p"}), "--prompt needs a value");
  EXPECT_EQ(ErrorOf(kServe, {}, {{"KVRM_STRICT_MODEL", "maybe"}}),
            "--strict-model 'maybe' (from KVRM_STRICT_MODEL): takes true or false");
}

// Flags of other servers whose first letter is a flag here: not a value of that one.
TEST(OptionValues, AnUnknownShortOptionIsNamedWhole) {
  for (const char* flag : {"-ngl", "-cb", "-ctk", "-tb", "-sm", "-np4x"}) {
    const std::string error = ErrorOf(kServe, {flag, "99"});
    EXPECT_NE(error.find("unknown option '" + std::string(flag) + "'"), std::string::npos) << error;
  }
  EXPECT_NE(ErrorOf(kServe, {"-n", "gl"}).find("--max-tokens 'gl'"), std::string::npos);
  EXPECT_EQ(ErrorOf(kServe, {"-n64", "-c1024"}), "");
}

TEST(OptionValues, ValuesOutOfRangeOrOfTheWrongFormAreRefused) {
  for (const Args& args : std::vector<Args>{{"--temp", "nan"},
                                            {"--temp", "inf"},
                                            {"--temp", "-0.1"},
                                            {"--temp", "1x"},
                                            {"--temp", ""},
                                            {"--top-p", "0"},
                                            {"-t", "257"},
                                            {"-t", "1.5"},
                                            {"-t", "99999999999999999999"},
                                            {"--kv-bytes", "8XB"},
                                            {"--kv-bytes", "-1"},
                                            {"--kv-bytes", "nan"},
                                            {"--kv-bytes", "2PiB"},
                                            {"--weights", "f32|q4"},
                                            {"--weights", ""}}) {
    EXPECT_NE(ErrorOf(kGenerate, args), "") << args[0] << " " << args[1];
  }
}

TEST(OptionValues, PromptsAreTakenByteForByteAndInOrder) {
  const auto values = Parse(kGenerate, {"-p", "[a,b]", "-p", "{}", "--prompt", "-n", "-p", "", "-p",
                                        "x\ny", "--prompt=k=v"});
  ASSERT_TRUE(values.ok()) << values.error().message;
  EXPECT_EQ(values->Texts("prompt"), (Args{"[a,b]", "{}", "-n", "", "x\ny", "k=v"}));
}

TEST(OptionValues, OnePromptFlagTakesOneValue) {
  const auto values = Parse(kGenerate, {"-p", "a", "b"});
  ASSERT_TRUE(values.ok());
  EXPECT_EQ(values->Texts("prompt"), Args{"a"});
  EXPECT_EQ(values->positionals(), Args{"b"});
}

TEST(OptionValues, LongShortAliasAndEqualsSpellingsMeanTheSame) {
  for (const Args& args :
       std::vector<Args>{{"-np", "4"}, {"-np=4"}, {"--parallel", "4"}, {"--slots=4"}}) {
    const auto values = Parse(kServe, args);
    ASSERT_TRUE(values.ok()) << args[0] << ": " << values.error().message;
    EXPECT_EQ(values->Int("slots"), 4) << args[0];
  }
  EXPECT_EQ(Parse(kServe, {"-c", "100", "--ctx-size", "200"})->Int("ctx"), 200);
}

TEST(OptionValues, OneNameMayHaveOtherLimitsForAnotherCommand) {
  EXPECT_EQ(Parse(kServe, {})->Int("ctx"), 0);
  EXPECT_EQ(Parse(kEvalPpl, {})->Int("ctx"), 512);
  EXPECT_NE(ErrorOf(kEvalPpl, {"-c", "1"}), "");
}

TEST(OptionValues, SizesAreReadInPowersOf1024) {
  EXPECT_EQ(*ParseBytes("123"), 123u);
  EXPECT_EQ(*ParseBytes("2k"), 2048u);
  EXPECT_EQ(*ParseBytes("1.5MiB"), 1572864u);
  EXPECT_EQ(*ParseBytes("8GiB"), uint64_t{8} << 30);
  EXPECT_EQ(*ParseBytes("8gb"), uint64_t{8} << 30);
  for (const char* text : {"", "GiB", "1 GiB", "1GiBs", "0x10", "1e99", "inf", "5ib"}) {
    EXPECT_FALSE(ParseBytes(text).ok()) << text;
  }
}

TEST(OptionValues, PrintedConfigReadBackGivesTheSameValues) {
  const auto values =
      Parse(kGenerate, {"--temp", "0.25", "--kv-bytes", "3GiB", "--system", "say \"hi\\\""});
  ASSERT_TRUE(values.ok());
  const TempFile file(values->PrintConfig());
  const auto again = Parse(kGenerate, {"--config", file.path()});
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->Float("temp"), 0.25);
  EXPECT_EQ(again->Bytes("kv-bytes"), uint64_t{3} << 30);
  EXPECT_EQ(again->Text("system"), "say \"hi\\\"");
  EXPECT_EQ(again->Int("max-tokens"), 128);
}

TEST(HelpText, EachFormNamesEveryOptionOfEveryCommand) {
  const std::string markdown = MarkdownText(), man = ManPageText("1"), bash = BashCompletionText();
  for (const OptionSpec& option : OptionTable()) {
    const std::string flag = "--" + std::string(option.name);
    EXPECT_NE(markdown.find(flag), std::string::npos) << flag;
    EXPECT_NE(bash.find(flag), std::string::npos) << flag;
    std::string escaped;
    for (char c : flag) escaped += c == '-' ? std::string("\\-") : std::string(1, c);
    EXPECT_NE(man.find(escaped), std::string::npos) << flag;
  }
}

}  // namespace
}  // namespace kvrm::cli
