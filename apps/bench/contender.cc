#include "bench/contender.h"

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>

#include "bench/statistics.h"

namespace kvrm::cli {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr const char* kFileTypes[] = {"Q4_0", "Q4_1", "Q8_0", "F16"};
constexpr const char* kRepeats = "3";

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

// "X.Q4_1.gguf" -> "Q4_1"
std::string FileType(const std::string& model) {
  const std::string type = fs::path(model).stem().extension().string();
  return type.empty() ? "" : type.substr(1);
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

struct Flags {
  const char* name;
  const char* flash;
  const char* kv;
};
constexpr Flags kFlags[] = {{"fa on, KV f16", "on", "f16"},
                            {"fa on, KV q8_0", "on", "q8_0"},
                            {"fa off, KV f16", "off", "f16"}};

std::vector<std::string> LlamaBenchCommand(const ComparisonRow& row, const std::string& programs,
                                           const std::string& model) {
  const std::string tokens = std::to_string(row.tokens);
  return {programs + "/llama-bench",
          "-m",
          model,
          "-p",
          row.prefill ? tokens : "0",
          "-n",
          row.prefill ? "0" : tokens,
          "-d",
          std::to_string(row.depth),
          "-r",
          kRepeats,
          "-o",
          "json"};
}

// Without -pps each sequence has a prompt of its own.
std::vector<std::string> BatchedBenchCommand(const ComparisonRow& row, const std::string& programs,
                                             const std::string& model) {
  return {programs + "/llama-batched-bench",
          "-m",
          model,
          "-c",
          std::to_string(row.num_seqs * (row.depth + row.tokens)),
          "-npp",
          std::to_string(row.depth),
          "-ntg",
          std::to_string(row.tokens),
          "-npl",
          std::to_string(row.num_seqs),
          "--output-format",
          "jsonl"};
}

}  // namespace

std::vector<ComparisonRow> ComparisonRows() {
  return {{"decode, 1 stream", false, 1, 0, 128, 1.0},
          {"decode, 8 distinct streams x 512", false, 8, 512, 128, 1.5},
          {"prefill 512", true, 1, 0, 512, 1.0},
          {"decode, 1 stream x 512", false, 1, 512, 128, 1.0}};
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
    for (const std::string& model : places.models) {
      for (const Flags& flags : kFlags) {
        Contender contender;
        contender.name = FileType(model) + ", " + flags.name + " (" + BuildName(programs) + ")";
        contender.model = model;
        contender.kv_q8_0 = std::string_view(flags.kv) == "q8_0";
        contender.kind =
            row.num_seqs > 1 ? OutputKind::kLlamaBatchedBench : OutputKind::kLlamaBench;
        contender.command = row.num_seqs > 1 ? BatchedBenchCommand(row, programs, model)
                                             : LlamaBenchCommand(row, programs, model);
        for (const std::string& word :
             {std::string("-t"), std::to_string(threads), std::string("-fa"),
              std::string(flags.flash), std::string("-ctk"), std::string(flags.kv),
              std::string("-ctv"), std::string(flags.kv)}) {
          contender.command.push_back(word);
        }
        contenders.push_back(std::move(contender));
      }
    }
  }
  return contenders;
}

Contender OwnContender(const ComparisonRow& row, const std::string& program,
                       const std::string& model, uint32_t threads) {
  Contender contender;
  contender.name = "kvrm";
  contender.kind = OutputKind::kKvrm;
  const std::string t = std::to_string(threads), n = std::to_string(row.tokens);
  if (row.prefill) {
    contender.command = {program, "bench", "prefill", "-m", model, "-p", n};
  } else {
    contender.command = {program,
                         "bench",
                         "decode",
                         "-m",
                         model,
                         "-np",
                         std::to_string(row.num_seqs),
                         "-d",
                         std::to_string(row.depth),
                         "-n",
                         n};
  }
  for (const char* word : {"-r", kRepeats, "-t", t.c_str(), "--json"}) {
    contender.command.emplace_back(word);
  }
  return contender;
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
    }
  } catch (const std::exception& error) {
    return InvalidInput(std::string("output of another form: ") + error.what());
  }
  return InvalidInput("output of another form");
}

}  // namespace kvrm::cli
