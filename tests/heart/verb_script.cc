#include "verb_script.h"

#include <algorithm>
#include <charconv>

#include "setups.h"

namespace kvrm::heart {
namespace {

struct Operand {
  std::string_view word;  // before the number; none before a register or the first number
  uint32_t Command::* field = nullptr;
  bool is_register = false;
};
struct Form {
  std::string_view verb;
  Operand operands[4];
};

constexpr Operand kSeq{"", &Command::seq, true}, kOther{"", &Command::other, true};
constexpr Operand kNumber{"", &Command::n}, kHint{"hint", &Command::m};
constexpr Operand kText{"text", &Command::n}, kSalt{"salt", &Command::other};
constexpr Operand kTokens{"tokens", &Command::m};

// In the order of Verb.
constexpr Form kForms[kVerbs] = {
    {"open", {kSeq, kText, kSalt}},
    {"close", {kSeq}},
    {"grow", {kSeq, kNumber, kHint}},
    {"reserve", {kSeq, kNumber, kHint}},
    {"alias", {kSeq, kOther, kNumber}},
    {"trim", {kSeq, kNumber}},
    {"cut", {kSeq, kNumber}},
    {"cold", {kSeq, {"group", &Command::other}, {"from", &Command::n}, {"for", &Command::m}}},
    {"text", {kSeq, kNumber}},
    {"mark", {kSeq}},
    {"back", {}},
    {"commit", {}},
    {"again", {}},
    {"rollback", {}},
    {"done", {kNumber}},
    {"index", {kSeq}},
    {"match", {kText, kSalt, kTokens}},
    {"adopt", {kSeq, kText, kSalt, kTokens}},
    {"clear", {}},
    {"busy", {}},
    {"idle", {}},
};

std::vector<std::string_view> WordsOf(std::string_view line) {
  line = line.substr(0, line.find('#'));
  std::vector<std::string_view> words;
  for (size_t at = 0; (at = line.find_first_not_of(" \t\r", at)) != line.npos;) {
    const size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

bool ReadNumber(std::string_view word, uint32_t most, uint32_t* number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), *number);
  return error == std::errc() && end == word.data() + word.size() && *number <= most;
}

// True when `words` are a command.
bool ReadCommand(std::span<const std::string_view> words, Command* command) {
  const auto form = std::find_if(std::begin(kForms), std::end(kForms),
                                 [&](const Form& each) { return each.verb == words[0]; });
  if (form == std::end(kForms)) return false;
  *command = {.verb = static_cast<Verb>(form - kForms)};
  size_t at = 1;
  for (const Operand& operand : form->operands) {
    if (operand.field == nullptr) break;
    if (!operand.word.empty() && (at >= words.size() || words[at++] != operand.word)) return false;
    if (at >= words.size()) return false;
    std::string_view word = words[at++];
    if (operand.is_register) {
      if (word[0] != 's') return false;
      word.remove_prefix(1);
    }
    const uint32_t most = operand.is_register ? kRegisters - 1 : kMostNumber;
    if (!ReadNumber(word, most, &(command->*operand.field))) return false;
  }
  return at == words.size();
}

}  // namespace

std::string ToText(const Command& command) {
  const Form& form = kForms[static_cast<size_t>(command.verb)];
  std::string text(form.verb);
  for (const Operand& operand : form.operands) {
    if (operand.field == nullptr) break;
    if (!operand.word.empty()) text.append(" ").append(operand.word);
    text += operand.is_register ? " s" : " ";
    text += std::to_string(command.*operand.field);
  }
  return text;
}

std::string ToText(const Script& script) {
  std::string text = "setup " + std::string(Setups()[script.setup].name) + "\n";
  for (const Command& command : script.commands) text += ToText(command) + "\n";
  return text;
}

std::optional<Script> ParseScript(std::string_view text, std::string* error) {
  Script script;
  uint32_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    const auto words = WordsOf(line);
    if (words.empty()) continue;
    if (words[0] == "setup" && words.size() == 2) {
      const auto setup = FindSetup(words[1]);
      if (setup) {
        script.setup = *setup;
        continue;
      }
    } else if (Command command; ReadCommand(words, &command)) {
      script.commands.push_back(command);
      continue;
    }
    *error = "line " + std::to_string(number) + " is no command: " + std::string(line);
    return std::nullopt;
  }
  return script;
}

Script ScriptOfBytes(std::span<const uint8_t> bytes) {
  Script script;
  if (bytes.empty()) return script;
  script.setup = bytes[0] % static_cast<uint32_t>(Setups().size());
  for (size_t at = 1; at + 6 <= bytes.size(); at += 6) {
    Command& command = script.commands.emplace_back();
    command.verb = static_cast<Verb>(bytes[at] % kVerbs);
    command.seq = (bytes[at + 1] & 15) % kRegisters;
    command.other = (bytes[at + 1] >> 4) % kRegisters;
    command.n = bytes[at + 2] | uint32_t{bytes[at + 3]} << 8;
    command.m = bytes[at + 4] | uint32_t{bytes[at + 5]} << 8;
  }
  return script;
}

std::vector<uint8_t> BytesOfScript(const Script& script) {
  std::vector<uint8_t> bytes = {static_cast<uint8_t>(script.setup)};
  for (const Command& command : script.commands) {
    bytes.push_back(static_cast<uint8_t>(command.verb));
    bytes.push_back(static_cast<uint8_t>(command.seq | command.other << 4));
    for (const uint32_t number : {command.n, command.m}) {
      bytes.push_back(static_cast<uint8_t>(number));
      bytes.push_back(static_cast<uint8_t>(number >> 8));
    }
  }
  return bytes;
}

}  // namespace kvrm::heart
