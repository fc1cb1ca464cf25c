#include "options/help_text.h"

#include <algorithm>
#include <set>
#include <vector>

namespace kvrm::cli {
namespace {

constexpr std::string_view kExitCodes[][2] = {
    {"0", "done"},
    {"1", "failed: a file, the model, memory, the network; one line on standard error says what"},
    {"2", "usage: an unknown command or option, a value out of range; one line says which"},
};

std::vector<const OptionSpec*> OptionsOf(CommandBit command) {
  std::vector<const OptionSpec*> options;
  for (const OptionSpec& option : OptionTable()) {
    if ((option.commands & command) != 0) options.push_back(&option);
  }
  return options;
}

std::string Usage(const CommandSpec& command) {
  std::string text = "kvrm " + std::string(command.name);
  if (!command.positional.empty()) text += " " + std::string(command.positional);
  return text + " [options]";
}

std::string SpellingsWithValue(const OptionSpec& option) {
  std::string text = Spellings(option);
  if (!option.value_name.empty()) text += " " + std::string(option.value_name);
  return text;
}

// The help line with what the table adds to it: choices, default, environment name.
std::string HelpLine(const OptionSpec& option, bool with_environment) {
  std::string text(option.help);
  if (option.type == OptionType::kChoice) text += " (" + std::string(option.choices) + ")";
  if (!option.default_text.empty()) text += " [" + std::string(option.default_text) + "]";
  const std::string variable = EnvironmentName(option);
  if (with_environment && !variable.empty()) text += " (" + variable + ")";
  return text;
}

std::string Pad(const std::string& text, size_t width) {
  return text.size() >= width ? text + "\n" + std::string(width, ' ')
                              : text + std::string(width - text.size(), ' ');
}

// `|` would end a table cell.
std::string Cell(std::string_view text) {
  std::string cell;
  for (char c : text) {
    if (c == '|') cell += '\\';
    cell += c;
  }
  return cell;
}

std::string Roff(std::string_view text) {
  std::string escaped;
  for (char c : text) {
    if (c == '-' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace

std::string OverviewText() {
  std::string text = "usage: kvrm COMMAND [options]\n\n";
  for (const CommandSpec& command : CommandTable()) {
    text += "  " + Pad(std::string(command.name), 16) + std::string(command.summary) + "\n";
  }
  text += "\n`kvrm help COMMAND` lists its options. `kvrm --version` prints the version.\n";
  text += "Exit codes: 0 done, 1 failed, 2 usage.\n";
  return text;
}

std::string CommandText(const CommandSpec& command) {
  std::string text = "usage: " + Usage(command) + "\n\n" + std::string(command.summary) + "\n" +
                     std::string(command.details) + "\n\n";
  for (const OptionSpec* option : OptionsOf(command.bit)) {
    text += "  " + Pad(SpellingsWithValue(*option), 34) +
            HelpLine(*option, /*with_environment=*/true) + "\n";
  }
  return text;
}

std::string MarkdownText() {
  std::string text =
      "# Commands\n\nMade from the option table (`apps/options/option_table.cc`) by `kvrm help "
      "--markdown`; change it there.\n\nA value comes from the command line, else from the "
      "environment (`KVRM_` and the option's name in capitals), else from the file that `--config` "
      "names (TOML, `name = value`; unknown names are errors), else from the default. "
      "`--print-config` shows which.\n\n| exit code | meaning |\n|---|---|\n";
  for (const auto& row : kExitCodes) {
    text += "| " + std::string(row[0]) + " | " + std::string(row[1]) + " |\n";
  }
  for (const CommandSpec& command : CommandTable()) {
    text += "\n## `" + Usage(command) + "`\n\n" + std::string(command.summary) + " " +
            std::string(command.details) + "\n\n| option | meaning | value | default |" +
            " environment |\n|---|---|---|---|---|\n";
    for (const OptionSpec* option : OptionsOf(command.bit)) {
      const std::string variable = EnvironmentName(*option);
      const std::string value =
          option->type == OptionType::kFlag ? std::string() : ValueRule(*option);
      text += "| `" + Cell(SpellingsWithValue(*option)) + "` | " + Cell(option->help) + " | " +
              Cell(value) + " | " + Cell(option->default_text) + " | " +
              (variable.empty() ? "" : "`" + variable + "`") + " |\n";
    }
  }
  return text;
}

std::string ManPageText(const std::string& version) {
  std::string text = ".TH KVRM 1 \"\" \"kvrm " + version +
                     "\"\n.SH NAME\nkvrm \\- serve large language models over a fixed\\-shape "
                     "decoder\n.SH SYNOPSIS\n.B kvrm\nCOMMAND [options]\n";
  for (const CommandSpec& command : CommandTable()) {
    text += ".SH \"" + Roff(Usage(command)) + "\"\n" + Roff(command.summary) + "\n" +
            Roff(command.details) + "\n";
    for (const OptionSpec* option : OptionsOf(command.bit)) {
      text += ".TP\n.B " + Roff(SpellingsWithValue(*option)) + "\n" +
              Roff(HelpLine(*option, /*with_environment=*/true)) + "\n";
    }
  }
  text += ".SH \"EXIT STATUS\"\n";
  for (const auto& row : kExitCodes) {
    text += ".TP\n.B " + std::string(row[0]) + "\n" + Roff(row[1]) + "\n";
  }
  return text;
}

std::string BashCompletionText() {
  std::set<std::string> first_words;
  std::string cases;
  for (const CommandSpec& command : CommandTable()) {
    const std::vector<std::string> words = Words(command.name);
    first_words.insert(words[0]);
    std::string names;
    for (const OptionSpec* option : OptionsOf(command.bit)) {
      names += " --" + std::string(option->name);
    }
    const std::string second = words.size() > 1 ? words[1] : "*";
    cases += "    " + words[0] + "/" + second + ") words=\"" + names.substr(1) + "\" ;;\n";
  }
  std::string firsts, groups;
  for (const std::string& word : first_words) {
    firsts += (firsts.empty() ? "" : " ") + word;
    std::string seconds;
    for (const CommandSpec& command : CommandTable()) {
      const std::vector<std::string> words = Words(command.name);
      if (words.size() > 1 && words[0] == word) seconds += (seconds.empty() ? "" : " ") + words[1];
    }
    if (!seconds.empty()) groups += "    " + word + ") words=\"" + seconds + "\" ;;\n";
  }
  return "_kvrm() {\n  local current=\"${COMP_WORDS[COMP_CWORD]}\" words=\"\"\n"
         "  case \"${COMP_WORDS[1]}/${COMP_WORDS[2]}\" in\n" +
         cases + "  esac\n  if [ \"$COMP_CWORD\" -eq 1 ]; then words=\"" + firsts +
         "\"; fi\n  if [ \"$COMP_CWORD\" -eq 2 ]; then case \"${COMP_WORDS[1]}\" in\n" + groups +
         "  esac; fi\n  if [ -n \"$words\" ] && { [ \"$COMP_CWORD\" -le 2 ] || [ \"${current#-}\" "
         "!= \"$current\" ]; }; then\n    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "  else\n    COMPREPLY=($(compgen -f -- \"$current\"))\n  fi\n}\ncomplete -F _kvrm kvrm\n";
}

}  // namespace kvrm::cli
