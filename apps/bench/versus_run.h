// Runs one row of a comparison: screens every setting of every rival, then rounds of (kvrm, the
// fastest settings) in turn, so that whatever slows the machine slows all of them. A row's figures
// are the medians over the rounds.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/contender.h"

namespace kvrm::cli {

struct Measured {
  Contender contender;
  std::vector<double> samples;  // tokens/s; in rows of footprint.h seconds or bytes
  std::string last_output;
  double median() const;
};

enum class Best : uint8_t { kMost, kLeast };
void SortByMedian(Best best, std::vector<Measured>& measured);

// Runs each setting's `screening` by `run`, which adds a sample. One that fails (a file type that a
// build cannot run) is left out with a note.
using RunSetting = std::function<Status(Measured&, const std::vector<std::string>& command)>;
std::vector<Measured> Screen(const std::vector<Contender>& contenders, const RunSetting& run);
// The best of what was screened go on, best first.
void KeepFinalists(Best best, std::vector<Measured>& screened);

// The least milliseconds of the contender's unit of work (a step, a prompt), and the share reached.
struct FloorShare {
  double ms = 0;
  double share = 0;
};

// One family's place in a row.
struct FamilyResult {
  Family family;
  std::vector<Measured> finalists;  // fastest first after the rounds
  std::vector<Measured> reserves;   // take the place of finalists that fail, fastest first
  std::optional<FloorShare> floor;  // of the fastest
  // The fastest of those whose file loses too much: shown, not counted.
  std::string uncounted;
  double uncounted_tokens_per_s = 0;
};

struct RowResult {
  ComparisonRow row;
  std::vector<Measured> own;                             // fastest first after the rounds
  std::vector<FamilyResult> families;                    // those with a setting that ran
  std::vector<std::pair<std::string, double>> screened;  // name, tokens/s of each setting
  std::optional<double> others_percent;
};

// A setting's figures as a sheet keeps them. Requires: a sample.
boost::json::object SettingJson(const Contender& contender, const std::vector<double>& samples);

inline constexpr size_t kFinalists = 2;  // of a family: its best settings go on after the screening

struct VersusSetting {
  RivalPlaces places;
  std::string program;  // kvrm itself
  std::string model;
  uint32_t threads = 1;
  int64_t rounds = 3;
  // Loss of perplexity of each file type, as a share; a type above kMostLoss does not count.
  std::map<std::string, double> loss;
};
inline constexpr double kMostLoss = 0.01;

// Finalists by row key and family, for rows that are too long to be screened themselves.
using Finalists = std::map<std::pair<std::string, Family>, std::vector<std::string>>;

// Errors: kvrm or a finalist fails; no setting of the llama.cpp family runs at all.
Result<RowResult> RunRow(const ComparisonRow& row, const VersusSetting& setting,
                         Finalists& finalists);

// With `schema`, the machine and the date as every result has them.
boost::json::object RowJson(const RowResult& result, double max_others_percent);

}  // namespace kvrm::cli
