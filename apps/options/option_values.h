// The values of one command's options: command line over environment over configuration file over
// default, each converted and checked against the option table.
//
// Errors are usage errors (exit code 2): one line that names flag, value and limit, and the source
// when it is not the command line. Plain data after parsing; thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "options/option_table.h"

namespace kvrm::cli {

enum class ValueSource : uint8_t { kDefault, kConfigFile, kEnvironment, kCommandLine };

class OptionValues {
 public:
  CommandBit command() const { return command_; }
  const std::vector<std::string>& positionals() const { return positionals_; }

  // Requires of all: `name` is an option of this command, of that type.
  bool Flag(std::string_view name) const;
  int64_t Int(std::string_view name) const;
  double Float(std::string_view name) const;
  uint64_t Bytes(std::string_view name) const;
  const std::string& Text(std::string_view name) const;                // kText, kChoice
  const std::vector<std::string>& Texts(std::string_view name) const;  // repeated kText
  ValueSource Source(std::string_view name) const;

  // Every setting of the command as TOML, its source behind it.
  std::string PrintConfig() const;

 private:
  friend class OptionParser;
  struct Entry {
    const OptionSpec* spec = nullptr;
    std::vector<std::string> texts;
    int64_t integer = 0;  // kInt; also 0 or 1 of kFlag
    double number = 0;    // kFloat
    uint64_t bytes = 0;   // kBytes
    ValueSource source = ValueSource::kDefault;
  };
  const Entry& Get(std::string_view name, OptionType type) const;

  CommandBit command_ = kHelp;
  std::map<std::string, Entry, std::less<>> entries_;  // by long name
  std::vector<std::string> positionals_;
};

// Looks up an environment variable; nullptr when it is not set.
using Environment = std::function<const char*(const std::string& name)>;

// `args`: what follows the command's name.
Result<OptionValues> ParseOptions(CommandBit command, const std::vector<std::string>& args,
                                  const Environment& environment);

// "1.5GiB" -> bytes. Errors name the text.
Result<uint64_t> ParseBytes(const std::string& text);

}  // namespace kvrm::cli
