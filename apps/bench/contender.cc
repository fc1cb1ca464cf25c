#include "bench/contender.h"

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <stdexcept>

#include "base/check.h"
#include "bench/statistics.h"

namespace kvrm::cli {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr const char* kFileTypes[] = {"Q4_0", "Q4_1", "Q8_0", "F16"};
constexpr uint32_t kScreeningSteps = 24;
constexpr const char* kIkBuild = "ik";  // the folder that tools/rivals builds ik_llama.cpp in
constexpr uint64_t kLongPromptTokens = 32768;

using Words = std::vector<std::string>;
Words Joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Where distinct prompts would take minutes, the peer's sequences share one; ours never do.
bool SharesPrompt(const ComparisonRow& row) {
  return uint64_t{row.num_seqs} * row.depth > kLongPromptTokens;
}

bool HoldsPrograms(const fs::path& dir) {
  std::error_code error;
  return fs::exists(dir / "llama-bench", error) && fs::exists(dir / "llama-batched-bench", error);
}

// "cache/native/bin" -> "native"
std::string BuildName(const std::string& programs) {
  const fs::path path(programs);
  const fs::path named = path.filename() == "bin" ? path.parent_path() : path;
  return named.filename().string();
}

double Number(const json::object& object, const char* key) {
  return object.at(key).to_number<double>();
}

double ParseKvrm(std::string_view output) {
  return Number(json::parse(output).as_object().at("tokens_per_s").as_object(), "median");
}

// One test was asked for; its samples stand in samples_ts.
double ParseLlamaBench(std::string_view output) {
  const json::value parsed = json::parse(output);
  std::vector<double> samples;
  for (const json::value& sample :
       parsed.as_array().at(0).as_object().at("samples_ts").as_array()) {
    samples.push_back(sample.to_number<double>());
  }
  if (samples.empty()) throw std::invalid_argument("no samples");
  return Summarize(samples).median;
}

// The line that begins with '{'; others are notes.
double ParseBatchedBench(std::string_view output) {
  const size_t begin = output.find('{');
  if (begin == std::string_view::npos) throw std::invalid_argument("no JSON line");
  const std::string_view line = output.substr(begin, output.find('\n', begin) - begin);
  return Number(json::parse(line).as_object(), "speed_tg");
}

// The line behind "| PP |" and "|----|": PP, TG, B, N_KV, T_PP, S_PP, T_TG, S_TG and two more.
double ParseBatchedTable(std::string_view output) {
  constexpr size_t kSpeedColumn = 7;
  const size_t last_line = output.rfind("\n|");
  if (last_line == std::string_view::npos) throw std::invalid_argument("no table");
  std::string_view rest = output.substr(last_line + 2);
  for (size_t column = 0; column < kSpeedColumn; ++column) {
    const size_t bar = rest.find('|');
    if (bar == std::string_view::npos) throw std::invalid_argument("too few columns");
    rest.remove_prefix(bar + 1);
  }
  return std::stod(std::string(rest.substr(0, rest.find('|'))));
}

// How much of a row is run: all of it, or enough to tell which settings are the fastest.
struct Effort {
  uint32_t tokens;
  const char* repeats;
  bool shared_prompt;
};
Effort RoundEffort(const ComparisonRow& row) { return {row.tokens, "2", SharesPrompt(row)}; }
Effort ScreeningEffort(const ComparisonRow& row) {
  return {row.prefill ? row.tokens : std::min(row.tokens, kScreeningSteps), "1", true};
}

struct Flags {
  const char* name;
  bool flash;
  const char* kv;
};
constexpr Flags kFlags[] = {{"fa on, KV f16", true, "f16"},
                            {"fa on, KV q8_0", true, "q8_0"},
                            {"fa off, KV f16", false, "f16"}};

// One build of the family: its programs and what they are called with.
struct Build {
  std::string programs;
  std::string name;
  bool ik = false;  // ik_llama.cpp: other words for the same, and weights repacked as they load

  std::vector<std::string> LoneCommand(const ComparisonRow& row, const std::string& model,
                                       const Effort& effort) const {
    const std::string tokens = std::to_string(effort.tokens), depth = std::to_string(row.depth);
    std::vector<std::string> command = {
        programs + "/llama-bench", "-m", model, "-r", effort.repeats, "-o", "json"};
    if (ik && !row.prefill && row.depth > 0) {
      return Joined(command, {"-p", "0", "-n", "0", "-gp", depth + "," + tokens, "-rtr", "1"});
    }
    command = Joined(command, {"-p", row.prefill ? tokens : "0", "-n", row.prefill ? "0" : tokens});
    return Joined(command, ik ? Words{"-rtr", "1"} : Words{"-d", depth});
  }

  std::vector<std::string> BatchedCommand(const ComparisonRow& row, const std::string& model,
                                          const Effort& effort) const {
    std::vector<std::string> command = {programs + "/llama-batched-bench",
                                        "-m",
                                        model,
                                        "-c",
                                        std::to_string(row.num_seqs * (row.depth + effort.tokens)),
                                        "-npp",
                                        std::to_string(row.depth),
                                        "-ntg",
                                        std::to_string(effort.tokens),
                                        "-npl",
                                        std::to_string(row.num_seqs)};
    // Without -pps each sequence has a prompt of its own.
    if (effort.shared_prompt) command.emplace_back("-pps");
    return Joined(command, ik ? Words{"-rtr"} : Words{"--output-format", "jsonl"});
  }

  std::vector<std::string> Command(const ComparisonRow& row, const std::string& model,
                                   const Flags& flags, uint32_t threads,
                                   const Effort& effort) const {
    const bool batched = row.num_seqs > 1;
    std::vector<std::string> command =
        batched ? BatchedCommand(row, model, effort) : LoneCommand(row, model, effort);
    command = Joined(command, {"-t", std::to_string(threads)});
    if (!ik) {
      command = Joined(command, {"-fa", flags.flash ? "on" : "off"});
    } else if (!batched) {
      command = Joined(command, {"-fa", flags.flash ? "1" : "0"});
    } else if (!flags.flash) {
      command.emplace_back("-no-fa");
    }
    command = Joined(command, {"-ctk", flags.kv, "-ctv", flags.kv});
    // Its table goes to standard error.
    return ik && batched ? Joined({"/bin/sh", "-c", "exec \"$0\" \"$@\" 2>&1"}, command) : command;
  }

  OutputKind Kind(const ComparisonRow& row) const {
    if (row.num_seqs == 1) return OutputKind::kLlamaBench;
    return ik ? OutputKind::kBatchedTable : OutputKind::kLlamaBatchedBench;
  }
};

std::vector<std::string> OpenVinoCommand(const ComparisonRow& row, const std::string& program,
                                         const std::string& model, uint32_t threads,
                                         const Effort& effort) {
  const std::string tokens = std::to_string(effort.tokens);
  std::vector<std::string> command = {
      program, "-m", model, "-r", "1", "-t", std::to_string(threads)};
  if (row.prefill) return Joined(command, {"-p", tokens});
  return Joined(command, {"-np", std::to_string(row.num_seqs), "-d", std::to_string(row.depth),
                          "-n", tokens});
}

}  // namespace

const char* FamilyName(Family family) {
  return family == Family::kLlama ? "llama.cpp family" : "OpenVINO GenAI";
}

// Sources of the goals: the project's speed goals, docs/performance.md.
const std::vector<ComparisonRow>& ComparisonRows() {
  static const std::vector<ComparisonRow> kRows = {
      {"1x128", "decode, 1 stream x 128", false, 1, 128, 128, {1.3, 2.2}, {1.9, 3.2}, true, ""},
      {"1x512", "decode, 1 stream x 512", false, 1, 512, 128, {1.0, 0}, {}, true, ""},
      {"8x512", "decode, 8 streams x 512", false, 8, 512, 128, {2.5, 4}, {1.8, 2.8}, true, ""},
      {"32x512", "decode, 32 streams x 512", false, 32, 512, 128, {3, 4.8}, {1.5, 2.4}, true, ""},
      {"prefill512", "prefill 512", true, 1, 0, 512, {1.8, 3}, {1, 1.6}, true, ""},
      {"prefill2048", "prefill 2048", true, 1, 0, 2048, {2, 4}, {1.5, 2.5}, false, "prefill512"},
      {"1x7900",
       "decode, 1 stream x 7900",
       false,
       1,
       7900,
       128,
       {2.5, 4},
       {2, 3.5},
       false,
       "1x512"},
      {"32x2048",
       "decode, 32 streams x 2048",
       false,
       32,
       2048,
       128,
       {3.5, 6},
       {2.2, 3.6},
       false,
       "32x512"},
  };
  return kRows;
}

Result<RivalPlaces> FindRivals(const std::string& dir, const std::string& model) {
  RivalPlaces places;
  for (const fs::path& candidate : {fs::path(dir), fs::path(dir) / "bin"}) {
    if (HoldsPrograms(candidate)) places.programs.push_back(candidate.string());
  }
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    if (HoldsPrograms(it->path() / "bin")) places.programs.push_back((it->path() / "bin").string());
  }
  std::sort(places.programs.begin(), places.programs.end());
  const fs::path open_vino = fs::path(dir) / "openvino" / "bin" / "openvino-bench";
  if (fs::exists(open_vino, error)) places.open_vino = open_vino.string();
  if (places.programs.empty()) {
    return NotFound("no llama-bench and llama-batched-bench in " + dir +
                    "; `tools/rivals` builds them");
  }
  const fs::path path(model);
  for (const char* type : kFileTypes) {
    const fs::path file = path.parent_path() / (path.stem().stem().string() + "." + type + ".gguf");
    if (fs::exists(file, error)) places.models.push_back(file.string());
  }
  if (places.models.empty()) places.models.push_back(model);
  return places;
}

std::vector<Contender> RivalContenders(const ComparisonRow& row, const RivalPlaces& places,
                                       uint32_t threads) {
  std::vector<Contender> contenders;
  for (const std::string& programs : places.programs) {
    const std::string name = BuildName(programs);
    const Build build{programs, name, name == kIkBuild};
    for (const std::string& model : places.models) {
      for (const Flags& flags : kFlags) {
        Contender contender;
        contender.name = FileType(model) + ", " + flags.name + " (" + name + ")";
        contender.model = model;
        contender.kv_q8_0 = std::string_view(flags.kv) == "q8_0";
        contender.kind = build.Kind(row);
        contender.command = build.Command(row, model, flags, threads, RoundEffort(row));
        contender.screening = build.Command(row, model, flags, threads, ScreeningEffort(row));
        contenders.push_back(std::move(contender));
      }
    }
  }
  for (const std::string& model : places.models) {
    const std::string type = FileType(model);
    if (places.open_vino.empty() || type == "Q4_0" || type == "F16") continue;
    Contender contender;
    contender.name = type + ", its own KV format (OpenVINO)";
    contender.model = model;
    contender.kind = OutputKind::kOpenVinoBench;
    contender.family = Family::kOpenVino;
    contender.command = OpenVinoCommand(row, places.open_vino, model, threads, RoundEffort(row));
    contender.screening =
        OpenVinoCommand(row, places.open_vino, model, threads, ScreeningEffort(row));
    contenders.push_back(std::move(contender));
  }
  return contenders;
}

Contender WithThreads(Contender contender, uint32_t threads) {
  for (std::vector<std::string>* command : {&contender.command, &contender.screening}) {
    const auto flag = std::find(command->begin(), command->end(), "-t");
    KVRM_CHECK(flag != command->end(), "a contender names its threads");
    *(flag + 1) = std::to_string(threads);
  }
  contender.name += ", " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
  return contender;
}

std::string FileType(const std::string& model) {
  const std::string type = fs::path(model).stem().extension().string();
  return type.empty() ? "" : type.substr(1);
}

std::vector<Contender> OwnContenders(const ComparisonRow& row, const std::string& program,
                                     const std::string& model, uint32_t threads) {
  const std::string n = std::to_string(row.tokens);
  Words command = {program, "bench", row.prefill ? "prefill" : "decode", "-m", model};
  command = row.prefill ? Joined(command, {"-p", n})
                        : Joined(command, {"-np", std::to_string(row.num_seqs), "-d",
                                           std::to_string(row.depth), "-n", n});
  std::vector<Contender> contenders;
  for (const char* kv : {"f16", "int8"}) {
    Contender contender;
    contender.name = std::string("kvrm, KV ") + kv;
    contender.kind = OutputKind::kKvrm;
    contender.command = Joined(command, {"-r", RoundEffort(row).repeats, "-t",
                                         std::to_string(threads), "--kv", kv, "--json"});
    contenders.push_back(std::move(contender));
  }
  return contenders;
}

Result<double> ParseTokensPerSecond(OutputKind kind, std::string_view output) {
  try {
    switch (kind) {
      case OutputKind::kKvrm:
        return ParseKvrm(output);
      case OutputKind::kLlamaBench:
        return ParseLlamaBench(output);
      case OutputKind::kLlamaBatchedBench:
        return ParseBatchedBench(output);
      case OutputKind::kBatchedTable:
        return ParseBatchedTable(output);
      case OutputKind::kOpenVinoBench:
        return Number(json::parse(output).as_object(), "tokens_per_s");
    }
  } catch (const std::exception& error) {
    return InvalidInput(std::string("output of another form: ") + error.what());
  }
  return InvalidInput("output of another form");
}

}  // namespace kvrm::cli
