// kvrm: finds the command, parses its options against the option table, runs it.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "kvrm/commands.h"
#include "options/help_text.h"
#include "options/option_values.h"

namespace kvrm::cli {
namespace {

using RunFunction = int (*)(const OptionValues&);

RunFunction FunctionOf(CommandBit command) {
  switch (command) {
    case kServe:
      return RunServe;
    case kChat:
      return RunChat;
    case kGenerate:
      return RunGenerate;
    case kBatch:
      return RunBatch;
    case kTokenize:
      return RunTokenize;
    case kTemplate:
      return RunTemplate;
    case kInspect:
      return RunInspect;
    case kModels:
      return RunModels;
    case kEvalPpl:
      return RunEvalPpl;
    case kBenchDecode:
      return RunBenchDecode;
    case kBenchPrefill:
      return RunBenchPrefill;
    case kBenchGrowth:
      return RunBenchGrowth;
    case kBenchOps:
      return RunBenchOps;
    case kBenchVersus:
      return RunBenchVersus;
    case kBenchHeart:
      return RunBenchHeart;
    case kBenchServe:
      return RunBenchServe;
    case kBenchReplay:
      return RunBenchReplay;
    case kBenchTail:
      return RunBenchTail;
    case kRecordShow:
      return RunRecordShow;
    case kRecordReplay:
      return RunRecordReplay;
    case kHelp:
      break;
  }
  return nullptr;
}

int Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return kExitDone;
}

int Usage(const std::string& message, const std::string& command = "") {
  std::fprintf(stderr, "kvrm%s: %s\n", command.c_str(), message.c_str());
  return kExitUsage;
}

// The command that `words` begin with; its name may be two words. nullptr = none.
const CommandSpec* TakeCommand(std::vector<std::string>& words) {
  for (size_t length = std::min<size_t>(2, words.size()); length > 0; --length) {
    const CommandSpec* command =
        FindCommand(length == 2 ? words[0] + " " + words[1] : std::string(words[0]));
    if (command != nullptr) {
      words.erase(words.begin(), words.begin() + static_cast<ptrdiff_t>(length));
      return command;
    }
  }
  return nullptr;
}

// "unknown command 'bench foo' (bench decode, bench prefill, ...)"
std::string UnknownCommand(const std::vector<std::string>& words) {
  std::string similar, all, named = words[0];
  for (const CommandSpec& command : CommandTable()) {
    const std::string name(command.name);
    all += (all.empty() ? "" : ", ") + name;
    if (name.compare(0, words[0].size() + 1, words[0] + " ") == 0) {
      similar += (similar.empty() ? "" : ", ") + name;
    }
  }
  if (!similar.empty() && words.size() > 1) named += " " + words[1];
  return "unknown command '" + named + "' (" + (similar.empty() ? all : similar) + ")";
}

int Help(const OptionValues& values) {
  if (values.Flag("markdown")) return Print(MarkdownText());
  if (values.Flag("man")) return Print(ManPageText(KVRM_VERSION));
  if (values.Flag("bash")) return Print(BashCompletionText());
  std::vector<std::string> words = values.positionals();
  if (words.empty()) return Print(OverviewText());
  const CommandSpec* command = TakeCommand(words);
  return command == nullptr ? Usage(UnknownCommand(words)) : Print(CommandText(*command));
}

bool TakesModel(CommandBit command) {
  const auto table = OptionTable();
  return std::any_of(table.begin(), table.end(), [command](const OptionSpec& option) {
    return option.name == "model" && (option.commands & command) != 0;
  });
}

int Run(std::vector<std::string> words) {
  if (words.empty()) {
    std::fputs(OverviewText().c_str(), stderr);
    return kExitUsage;
  }
  if (words[0] == "--version" || words[0] == "-V") return Print("kvrm " KVRM_VERSION "\n");
  if (words[0] == "--help" || words[0] == "-h") return Print(OverviewText());
  const CommandSpec* command = TakeCommand(words);
  if (command == nullptr) return Usage(UnknownCommand(words));
  const Result<OptionValues> values = ParseOptions(
      command->bit, words, [](const std::string& name) { return std::getenv(name.c_str()); });
  if (!values.ok()) {
    const std::string name(command->name);
    return Usage(values.error().message + " (see `kvrm help " + name + "`)", " " + name);
  }
  if (values->Flag("help")) return Print(CommandText(*command));
  if (command->bit == kHelp) return Help(*values);
  const size_t max_positionals = Words(command->positional).size();
  if (values->positionals().size() > max_positionals) {
    const bool model = max_positionals == 0 && TakesModel(command->bit);
    return UsageError(*values, "unexpected '" + values->positionals()[max_positionals] + "'" +
                                   (model ? "; a model is given with -m" : ""));
  }
  if (values->Flag("print-config")) return Print(values->PrintConfig());
  return FunctionOf(command->bit)(*values);
}

}  // namespace
}  // namespace kvrm::cli

int main(int argc, char** argv) {
  // A reader that went away (`kvrm generate | head`) shows as a failed write, not as a signal.
  std::signal(SIGPIPE, SIG_IGN);
  // So does a file that may not grow further (`ulimit -f`): as a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    const int code = kvrm::cli::Run(std::vector<std::string>(argv + 1, argv + argc));
    const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
    if (written || code != kvrm::cli::kExitDone) return code;
    std::fputs("kvrm: standard output cannot be written\n", stderr);
    return kvrm::cli::kExitFailed;
  } catch (const std::bad_alloc&) {
    std::fputs("kvrm: out of memory\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kvrm: %s\n", error.what());
  }
  return kvrm::cli::kExitFailed;
}
