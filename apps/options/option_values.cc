#include "options/option_values.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "options/read_all.h"

namespace kvrm::cli {
namespace {

const char* SourceName(ValueSource source) {
  switch (source) {
    case ValueSource::kDefault:
      return "default";
    case ValueSource::kConfigFile:
      return "configuration file";
    case ValueSource::kEnvironment:
      return "environment";
    case ValueSource::kCommandLine:
      return "command line";
  }
  return "";
}

// CLI11 takes one-letter short names only; `-np 4` and `-np=4` are turned into their long form.
std::string LongForm(const std::string& arg, CommandBit command) {
  const size_t name_end = std::min(arg.find('='), arg.size());
  const std::string name = arg.substr(0, name_end);
  for (const OptionSpec& option : OptionTable()) {
    if ((option.commands & command) == 0) continue;
    for (const std::string& alias : Words(option.aliases)) {
      if (alias == name && alias.size() > 2 && alias[1] != '-') {
        return "--" + std::string(option.name) + arg.substr(name_end);
      }
    }
  }
  return arg;
}

// The names under which CLI11 knows an option: "-c,--ctx,--ctx-size".
std::string Cli11Names(const OptionSpec& option) {
  std::string names = "--" + std::string(option.name);
  if (option.letter != '\0') names = std::string("-") + option.letter + "," + names;
  for (const std::string& alias : Words(option.aliases)) {
    if (alias.size() == 2 || alias[1] == '-') names += "," + alias;
  }
  return names;
}

// The first line, from 1, of a configuration's text that sets `name` or opens a section of that
// name; CLI11's reader does not tell. 0 where none does.
size_t LineOf(std::string_view text, std::string_view name) {
  for (size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(" \t\r[\"'")));
    if (!line.starts_with(name)) continue;
    const std::string_view rest = line.substr(name.size());
    if (!rest.empty() && std::string_view(" \t=\"'.]").find(rest[0]) != std::string_view::npos) {
      return number;
    }
  }
  return 0;
}

template <class T>
bool ParseWhole(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

}  // namespace

Result<uint64_t> ParseBytes(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  std::string unit(stop, end);
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  static constexpr std::string_view kUnits[] = {"", "k", "m", "g", "t"};
  for (size_t power = 0; power < std::size(kUnits); ++power) {
    const std::string letter(kUnits[power]);
    if (unit != letter && unit != letter + "b" && unit != letter + "ib") continue;
    if (unit == "ib") break;
    const double bytes = value * std::pow(1024.0, static_cast<double>(power));
    if (error != std::errc() || !(bytes >= 0) || bytes > std::pow(2.0, 62)) break;
    return static_cast<uint64_t>(bytes);
  }
  return InvalidInput("'" + text + "' is no size");
}

// Fills an OptionValues from its four sources, in rising rank.
class OptionParser {
 public:
  OptionParser(CommandBit command, const Environment& environment) : environment_(environment) {
    values_.command_ = command;
  }

  Result<OptionValues> Parse(const std::vector<std::string>& args) {
    args_ = args;
    KVRM_RETURN_IF_ERROR(ReadCommandLine(args));
    for (const OptionSpec& option : OptionTable()) {
      if ((option.commands & values_.command_) != 0) {
        values_.entries_[std::string(option.name)].spec = &option;
      }
    }
    KVRM_RETURN_IF_ERROR(ReadConfigFile());
    for (auto& [name, entry] : values_.entries_) KVRM_RETURN_IF_ERROR(Fill(name, entry));
    return std::move(values_);
  }

 private:
  Status ReadCommandLine(const std::vector<std::string>& args) {
    CLI::App app;
    app.set_help_flag();  // --help is an option of the table
    app.allow_extras();
    for (const OptionSpec& option : OptionTable()) {
      if ((option.commands & values_.command_) == 0) continue;
      CLI::Option* added = option.type == OptionType::kFlag ? app.add_flag(Cli11Names(option))
                                                            : app.add_option(Cli11Names(option));
      // Values are read raw: CLI11 would take "[a,b]" apart and follow one -p with all that comes.
      added->allow_extra_args(false)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    }
    std::vector<std::string> reversed;
    for (const std::string& arg : args) {
      reversed.insert(reversed.begin(), LongForm(arg, values_.command_));
    }
    try {
      app.parse(std::move(reversed));
    } catch (const CLI::ArgumentMismatch& error) {
      // "--prompt: 1 required  missing": each option takes one value, so that one is what lacks.
      const std::string message = error.what();
      return InvalidInput(message.substr(0, message.find(':')) + " needs a value");
    } catch (const CLI::ParseError& error) {
      std::string message = error.what();
      std::replace(message.begin(), message.end(), '\n', ' ');
      return InvalidInput(message);
    }
    for (const std::string& extra : app.remaining()) {
      if (extra.size() > 1 && extra[0] == '-' && extra != "--") {
        return InvalidInput("unknown option '" + extra + "'");
      }
      if (extra != "--") values_.positionals_.push_back(extra);
    }
    for (const OptionSpec& option : OptionTable()) {
      if ((option.commands & values_.command_) == 0) continue;
      const CLI::Option* parsed = app.get_option("--" + std::string(option.name));
      if (parsed->count() > 0) given_[std::string(option.name)] = parsed->results();
    }
    return Ok();
  }

  // Keys of other commands' settings are accepted, so that one file serves all; names that no
  // command knows are errors.
  Status ReadConfigFile() {
    const auto path = given_.find("config");
    if (path == given_.end()) return Ok();
    const std::string& file = path->second.back();
    KVRM_ASSIGN_OR_RETURN(config_text_, ReadAll("--config", file));
    std::istringstream stream(config_text_);
    std::vector<CLI::ConfigItem> items;
    try {
      items = CLI::ConfigTOML().from_config(stream);
    } catch (const CLI::Error& error) {
      return InvalidInput("--config '" + file + "': " + error.what());
    }
    for (const CLI::ConfigItem& item : items) {
      if (item.name == "++" || item.name == "--") continue;  // CLI11's marks of a section's ends
      if (!item.parents.empty()) {
        return InvalidInput(Place(file, item.parents[0]) + ": section '" + item.parents[0] +
                            "' is not known; settings stand at the top");
      }
      if (!IsSettingName(item.name)) {
        return InvalidInput(Place(file, item.name) + ": '" + item.name + "' is no setting");
      }
      configured_[item.name] = item.inputs;
    }
    return Ok();
  }

  std::string Place(const std::string& file, const std::string& name) const {
    return "--config '" + file + "', line " + std::to_string(LineOf(config_text_, name));
  }

  Status Fill(const std::string& name, OptionValues::Entry& entry) {
    const OptionSpec& spec = *entry.spec;
    const std::string variable = EnvironmentName(spec);
    const char* from_environment = variable.empty() ? nullptr : environment_(variable);
    if (const auto given = given_.find(name); given != given_.end()) {
      entry.source = ValueSource::kCommandLine;
      entry.texts = given->second;
    } else if (from_environment != nullptr && *from_environment != '\0') {
      entry.source = ValueSource::kEnvironment;
      entry.texts = {from_environment};
    } else if (const auto set = configured_.find(name); set != configured_.end()) {
      entry.source = ValueSource::kConfigFile;
      entry.texts = set->second;
    } else if (!spec.default_text.empty()) {
      entry.texts = {std::string(spec.default_text)};
    }
    if (spec.type == OptionType::kFlag) {
      return entry.texts.empty() ? Ok() : ConvertFlag(entry, variable);
    }
    if (!spec.repeated && entry.texts.size() > 1) entry.texts = {entry.texts.back()};
    if (spec.type == OptionType::kText || entry.texts.empty()) return Ok();
    return Convert(entry, variable);
  }

  Status ConvertFlag(OptionValues::Entry& entry, const std::string& variable) {
    const std::string& text = entry.texts.back();
    entry.integer = text == "true" || text == "1";
    if (entry.integer || text == "false" || text == "0") return Ok();
    return Refused(entry, variable, "true or false");
  }

  Status Convert(OptionValues::Entry& entry, const std::string& variable) {
    const OptionSpec& spec = *entry.spec;
    const std::string& text = entry.texts.back();
    bool ok = false;
    if (spec.type == OptionType::kInt && !text.empty() && text == spec.choices) {
      entry.integer = kAutoValue;
      ok = true;
    } else if (spec.type == OptionType::kInt) {
      ok = ParseWhole(text, entry.integer) && static_cast<double>(entry.integer) >= spec.min &&
           static_cast<double>(entry.integer) <= spec.max;
    } else if (spec.type == OptionType::kFloat) {
      ok = ParseWhole(text, entry.number) && entry.number >= spec.min && entry.number <= spec.max;
    } else if (spec.type == OptionType::kBytes) {
      const Result<uint64_t> bytes = ParseBytes(text);
      ok = bytes.ok() && static_cast<double>(*bytes) <= spec.max;
      if (ok) entry.bytes = *bytes;
    } else {
      const std::string choices = "|" + std::string(spec.choices) + "|";
      ok = text.find('|') == std::string::npos &&
           choices.find("|" + text + "|") != std::string::npos;
    }
    return ok ? Ok() : Refused(entry, variable, ValueRule(spec));
  }

  Error Refused(const OptionValues::Entry& entry, const std::string& variable,
                const std::string& rule) const {
    const std::string name(entry.spec->name);
    // `-ngl 99` is read as `-n gl`; whoever wrote it meant an option that is not known here.
    const std::string glued = std::string("-") + entry.spec->letter + entry.texts.back();
    if (entry.source == ValueSource::kCommandLine && IsLetter(glued.size() > 2 ? glued[2] : ' ') &&
        std::find(args_.begin(), args_.end(), glued) != args_.end()) {
      return InvalidInput("unknown option '" + glued + "'");
    }
    std::string message = "--" + name + " '" + entry.texts.back() + "'";
    if (entry.source == ValueSource::kEnvironment) message += " (from " + variable + ")";
    if (entry.source == ValueSource::kConfigFile) {
      message +=
          " (from the configuration file, line " + std::to_string(LineOf(config_text_, name)) + ")";
    }
    return InvalidInput(message + ": takes " + rule);
  }

  static bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

  const Environment& environment_;
  std::vector<std::string> args_;
  OptionValues values_;
  std::map<std::string, std::vector<std::string>> given_, configured_;
  std::string config_text_;
};

Result<OptionValues> ParseOptions(CommandBit command, const std::vector<std::string>& args,
                                  const Environment& environment) {
  return OptionParser(command, environment).Parse(args);
}

const OptionValues::Entry& OptionValues::Get(std::string_view name, OptionType type) const {
  const auto found = entries_.find(name);
  KVRM_CHECK(found != entries_.end(), "a command reads only options that the table gives it");
  const OptionType actual = found->second.spec->type;
  KVRM_CHECK(actual == type || (actual == OptionType::kChoice && type == OptionType::kText),
             "an option is read as the type that the table gives it");
  return found->second;
}

bool OptionValues::Flag(std::string_view name) const {
  return Get(name, OptionType::kFlag).integer != 0;
}
int64_t OptionValues::Int(std::string_view name) const {
  return Get(name, OptionType::kInt).integer;
}
double OptionValues::Float(std::string_view name) const {
  return Get(name, OptionType::kFloat).number;
}
uint64_t OptionValues::Bytes(std::string_view name) const {
  return Get(name, OptionType::kBytes).bytes;
}
const std::string& OptionValues::Text(std::string_view name) const {
  static const std::string kEmpty;
  const Entry& entry = Get(name, OptionType::kText);
  return entry.texts.empty() ? kEmpty : entry.texts.back();
}
const std::vector<std::string>& OptionValues::Texts(std::string_view name) const {
  return Get(name, OptionType::kText).texts;
}
ValueSource OptionValues::Source(std::string_view name) const {
  const auto found = entries_.find(name);
  KVRM_CHECK(found != entries_.end(), "a command reads only options that the table gives it");
  return found->second.source;
}

std::string OptionValues::PrintConfig() const {
  std::string text;
  for (const OptionSpec& spec : OptionTable()) {
    if ((spec.commands & command_) == 0 || spec.scope != OptionScope::kSetting) continue;
    const Entry& entry = entries_.find(spec.name)->second;
    const bool quoted = spec.type != OptionType::kInt && spec.type != OptionType::kFloat;
    std::string value = entry.texts.empty() ? "" : entry.texts.back();
    if (quoted) {
      // A literal string where it can be one: CLI11 does not undo TOML's escapes.
      const char quote = value.find_first_of("\"\\") == std::string::npos ? '"' : '\'';
      value = quote + value + quote;
    }
    text += std::string(spec.name) + " = " + value + "  # " + SourceName(entry.source) + "\n";
  }
  return text;
}

}  // namespace kvrm::cli
