// The one option table: every flag of every command, with its environment name, type, range,
// default and help. Command line, environment, configuration file, `kvrm help`, the man page,
// shell completion and docs/cli.md are all made from it; nothing else knows an option's name but
// the command that reads it.
//
// Constant data; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvrm::cli {

// Bits of OptionSpec::commands, one a command.
enum CommandBit : uint32_t {
  kServe = 1u << 0,
  kChat = 1u << 1,
  kGenerate = 1u << 2,
  kTokenize = 1u << 3,
  kInspect = 1u << 4,
  kEvalPpl = 1u << 5,
  kBenchDecode = 1u << 6,
  kBenchPrefill = 1u << 7,
  kBenchVersus = 1u << 8,
  kHelp = 1u << 9,
  kBenchHeart = 1u << 10,
  kBenchServe = 1u << 11,
  kTemplate = 1u << 12,
  kBenchReplay = 1u << 13,
  kBenchTail = 1u << 14,
  kBenchOps = 1u << 20,
  kRecordShow = 1u << 22,
  kRecordReplay = 1u << 23,
  kBatch = 1u << 24,
  kModels = 1u << 25,
  kBenchGrowth = 1u << 26,
};
inline constexpr uint32_t kEngineCommands = kServe | kChat | kGenerate | kBatch;
inline constexpr uint32_t kStepCommands =
    kEvalPpl | kBenchDecode | kBenchPrefill | kBenchOps | kBenchGrowth;
inline constexpr uint32_t kModelCommands = kEngineCommands | kTokenize | kTemplate | kInspect |
                                           kStepCommands | kBenchVersus | kBenchReplay |
                                           kBenchTail | kRecordReplay;

struct CommandSpec {
  CommandBit bit;
  std::string_view name;        // "generate", "bench decode"
  std::string_view positional;  // "FILE", "" = none; optional when in brackets
  std::string_view summary;     // one line
  std::string_view details;     // a paragraph for `kvrm help NAME`
};
std::span<const CommandSpec> CommandTable();
const CommandSpec* FindCommand(std::string_view name);  // nullptr = none

enum class OptionType : uint8_t {
  kFlag,    // no value
  kInt,     // decimal, within [min, max]; or the one word of `choices`, if any: kAutoValue
  kFloat,   // finite, within [min, max]
  kBytes,   // a size: 123, 512MiB, 8GiB, 1.5G (all powers of 1024)
  kText,    // any text
  kChoice,  // one of `choices`
};

inline constexpr int64_t kAutoValue = -1;

// Where a value may come from besides the command line.
enum class OptionScope : uint8_t {
  kSetting,     // also KVRM_<NAME> and the configuration file
  kInvocation,  // the command line alone: what to do now, not how this machine is set up
};

struct OptionSpec {
  std::string_view name;     // "kv-bytes": --kv-bytes, KVRM_KV_BYTES, `kv-bytes = "8GiB"`
  char letter;               // 'c' for -c; '\0' = none
  std::string_view aliases;  // further spellings as typed, blank separated: "-np --parallel"
  OptionType type;
  OptionScope scope;
  bool repeated;             // may be given several times, in order
  double min, max;           // kInt, kFloat, kBytes, inclusive
  std::string_view choices;  // kChoice: "f32|f16"; kInt: "" or "auto"
  std::string_view default_text;
  std::string_view value_name;  // "N", "FILE"
  std::string_view help;        // one line
  uint32_t commands;            // CommandBits
};
// Names are unique within a command; one name may have several rows for different commands.
std::span<const OptionSpec> OptionTable();

// The option `name` (long name) of `command`; nullptr = none.
const OptionSpec* FindOption(std::string_view name, CommandBit command);
// True when some command has an option of this name that a configuration file may set.
bool IsSettingName(std::string_view name);
// "KVRM_KV_BYTES"; "" for kInvocation.
std::string EnvironmentName(const OptionSpec& option);
// "-c, --ctx, --ctx-size"
std::string Spellings(const OptionSpec& option);
// What a value must be: "0 to 65535", "f32 or f16", "a size such as 8GiB".
std::string ValueRule(const OptionSpec& option);
// Blank-separated words.
std::vector<std::string> Words(std::string_view text);

}  // namespace kvrm::cli
