// kvrm bench versus: the same rows here and with the rivals' own tools, interleaved in one sitting
// (versus_run.h), or, with --out, in several.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "bench/footprint.h"
#include "bench/load/load_command.h"
#include "bench/machine.h"
#include "bench/result.h"
#include "bench/subprocess.h"
#include "bench/versus_plot.h"
#include "bench/versus_report.h"
#include "bench/versus_run.h"
#include "engine/loader.h"
#include "kvrm/commands.h"
#include "session/model_path.h"

namespace kvrm::cli {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr const char* kQualityText = "/wikitext2/wiki.test.raw";
constexpr const char* kQualityWindows = "10";

std::string ReadWhole(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Absent or unreadable: empty.
json::object ReadObject(const fs::path& path) {
  boost::system::error_code error;
  json::value value = json::parse(ReadWhole(path), error);
  return !error && value.is_object() ? value.as_object() : json::object();
}

// Which perplexity each file type has over f32 of the default file, as a share. What a file loses
// is a fact about the file, so it is kept in the rivals' folder, under its size.
class Quality {
 public:
  Quality(std::string program, const std::string& rivals_dir, const std::string& data_dir)
      : program_(std::move(program)),
        kept_path_(fs::path(rivals_dir) / "perplexity.json"),
        text_(data_dir.empty() ? "" : data_dir + kQualityText) {}

  Result<std::map<std::string, double>> Loss(const std::string& base,
                                             const std::vector<std::string>& models) {
    std::map<std::string, double> loss;
    if (!fs::exists(text_)) return loss;
    kept_ = ReadObject(kept_path_);
    KVRM_ASSIGN_OR_RETURN(const double exact, Perplexity(base, "f32"));
    for (const std::string& model : models) {
      KVRM_ASSIGN_OR_RETURN(const double perplexity, Perplexity(model, "auto"));
      loss[FileType(model)] = perplexity / exact - 1;
    }
    std::ofstream(kept_path_) << json::serialize(kept_) << "\n";
    return loss;
  }

 private:
  Result<double> Perplexity(const std::string& model, const std::string& weights) {
    std::error_code error;
    const std::string key = fs::path(model).filename().string() + ", " +
                            std::to_string(fs::file_size(model, error)) + " bytes, " + weights;
    if (const auto* known = kept_.if_contains(key)) return known->to_number<double>();
    std::fprintf(stderr, "perplexity of %s (%s)\n", FileType(model).c_str(), weights.c_str());
    const std::vector<std::string> command = {program_,        "eval",      "ppl",   "-m",
                                              model,           "-f",        text_,   "--windows",
                                              kQualityWindows, "--weights", weights, "--json"};
    KVRM_ASSIGN_OR_RETURN(const std::string output, RunProgram(command));
    boost::system::error_code bad;
    const json::value value = json::parse(output, bad);
    if (bad || !value.is_object() || !value.as_object().contains("ppl")) {
      return InvalidInput("'" + CommandLine(command) + "': output of another form");
    }
    kept_[key] = value.at("ppl");
    return value.at("ppl").to_number<double>();
  }

  const std::string program_;
  const fs::path kept_path_;
  const std::string text_;  // no such file: nothing is measured
  json::object kept_;
};

struct ChosenRows {
  std::vector<ComparisonRow> speed;
  std::vector<FootprintRow> footprint;
};

// --rows: keys, `default` or `all`. Errors: an unknown key.
Result<ChosenRows> ChooseRows(const std::string& list) {
  std::vector<std::string> known = {"default", "all"};
  for (const ComparisonRow& row : ComparisonRows()) known.push_back(row.key);
  for (const FootprintRow& row : FootprintRows()) known.push_back(row.key);
  std::vector<std::string> keys;
  std::stringstream words(list);
  for (std::string key; std::getline(words, key, ',');) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return InvalidInput(fmt::format("--rows: '{}' is none of: {}", key, fmt::join(known, " ")));
    }
    keys.push_back(key);
  }
  const auto asks = [&](const std::string& word) {
    return std::find(keys.begin(), keys.end(), word) != keys.end();
  };
  ChosenRows chosen;
  for (const ComparisonRow& row : ComparisonRows()) {
    if (asks("all") || (row.in_default && asks("default")) || asks(row.key)) {
      chosen.speed.push_back(row);
    }
  }
  for (const FootprintRow& row : FootprintRows()) {
    if (asks("all") || asks(row.key)) chosen.footprint.push_back(row);
  }
  return chosen;
}

// The rows of a comparison, and where they are kept between runs.
class Sheet {
 public:
  explicit Sheet(std::string path) : path_(std::move(path)) {
    if (path_.empty()) return;
    const json::object kept = ReadObject(path_);
    if (const auto* rows = kept.if_contains("rows"); rows != nullptr && rows->is_array()) {
      rows_ = rows->as_array();
    }
  }

  bool Holds(const std::string& key) const {
    return std::any_of(rows_.begin(), rows_.end(),
                       [&](const json::value& row) { return row.at("key").as_string() == key; });
  }
  Status Add(json::object row, const json::object& loss) {
    rows_.push_back(std::move(row));
    if (path_.empty()) return Ok();
    std::ofstream file(path_);
    file << json::serialize(Json(loss)) << "\n";
    file.close();
    return file ? Ok() : Unavailable("--out " + path_ + ": cannot be written");
  }
  json::object Json(const json::object& loss) const {
    return {{"schema", kResultSchema},
            {"rows", rows_},
            {"perplexity_loss", loss},
            {"machine", ToJson(ThisMachine())},
            {"date", DateUtc()}};
  }
  const json::array& rows() const { return rows_; }

 private:
  std::string path_;
  json::array rows_;
};

Result<VersusSetting> MakeSetting(const OptionValues& values) {
  VersusSetting setting;
  KVRM_ASSIGN_OR_RETURN(setting.model, ModelPathOf(values));
  const std::string dir =
      values.Text("rivals").empty() ? CacheDir() + "/rivals" : values.Text("rivals");
  KVRM_ASSIGN_OR_RETURN(setting.places, FindRivals(dir, setting.model));
  std::error_code error;
  setting.program = fs::read_symlink("/proc/self/exe", error).string();
  if (error) return Unavailable("/proc/self/exe: " + error.message());
  const auto asked = static_cast<uint32_t>(values.Int("threads"));
  setting.threads = asked != 0 ? asked : AllowedCpus();
  setting.rounds = values.Int("repetitions");
  KVRM_ASSIGN_OR_RETURN(setting.loss, Quality(setting.program, dir, values.Text("data"))
                                          .Loss(setting.model, setting.places.models));
  return setting;
}

Status Run(const OptionValues& values) {
  KVRM_ASSIGN_OR_RETURN(const ChosenRows rows, ChooseRows(values.Text("rows")));
  KVRM_ASSIGN_OR_RETURN(const VersusSetting setting, MakeSetting(values));
  json::object loss;
  for (const auto& [type, share] : setting.loss) loss[type] = share;
  Sheet sheet(values.Text("out"));
  const std::string& plot = values.Text("plot");
  if (!plot.empty()) KVRM_RETURN_IF_ERROR(WriteFile("--plot", plot, ""));
  Finalists finalists;
  for (const ComparisonRow& row : rows.speed) {
    if (sheet.Holds(row.key)) continue;
    KVRM_ASSIGN_OR_RETURN(const RowResult result, RunRow(row, setting, finalists));
    KVRM_RETURN_IF_ERROR(sheet.Add(RowJson(result, values.Float("max-others")), loss));
  }
  for (const FootprintRow& row : rows.footprint) {
    if (sheet.Holds(row.key)) continue;
    KVRM_ASSIGN_OR_RETURN(json::object kept,
                          RunFootprint(row, setting, values.Float("max-others")));
    KVRM_RETURN_IF_ERROR(sheet.Add(std::move(kept), loss));
  }
  if (!plot.empty()) {
    KVRM_RETURN_IF_ERROR(WriteFile("--plot", plot, VersusPlot(sheet.rows())));
  }
  if (values.Flag("json")) {
    std::printf("%s\n", json::serialize(sheet.Json(loss)).c_str());
    return Ok();
  }
  const Machine machine = ThisMachine();
  std::printf("%s%s, %u CPUs, %s, %s\n", VersusText(sheet.rows(), loss).c_str(),
              machine.cpu.c_str(), machine.cpus, machine.compiler.c_str(), DateUtc().c_str());
  return Ok();
}

}  // namespace

int RunBenchVersus(const OptionValues& values) {
  const Status ran = Run(values);
  return ran.ok() ? kExitDone : Failed(values, ran.error());
}

}  // namespace kvrm::cli
