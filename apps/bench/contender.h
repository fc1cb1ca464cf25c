// One way to run one row of a comparison: a command and how its figure is read from its output.
// kvrm itself is a contender like the rest, run as a process of its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvrm::cli {

// A row has a ratio to each family of rivals.
enum class Family : uint8_t { kLlama, kOpenVino };
inline constexpr Family kFamilies[] = {Family::kLlama, Family::kOpenVino};
const char* FamilyName(Family family);

enum class OutputKind : uint8_t {
  kKvrm,
  kLlamaBench,
  kLlamaBatchedBench,
  kBatchedTable,  // ik_llama.cpp's batched bench: a table, no JSON
  kOpenVinoBench
};

struct Contender {
  std::string name;  // "Q4_0, fa on, KV f16 (native)"
  std::vector<std::string> command;
  std::vector<std::string> screening;  // the same in less time: fewer steps, a prompt for all
  OutputKind kind;
  Family family = Family::kLlama;
  std::string model;     // the file it reads
  bool kv_q8_0 = false;  // its keys and values take 34 bytes for 32 values, not 64
};

// What a row must reach against a family: at least, and what it is after. 0: no goal.
struct RowGoal {
  double at_least = 0, goal = 0;
};

// What is compared: decode of `num_seqs` distinct sequences at `depth`, or the prefill of one
// prompt.
struct ComparisonRow {
  std::string key;  // "8x512", "prefill512"
  std::string name;
  bool prefill = false;
  uint32_t num_seqs = 1;
  uint32_t depth = 0;   // decode: tokens before the timed steps
  uint32_t tokens = 0;  // timed: prompt tokens, or steps
  RowGoal llama, open_vino;
  bool in_default = false;  // of the run without --rows
  std::string screened_as;  // the row whose finalists it takes over, because it is long
  const RowGoal& GoalOf(Family family) const {
    return family == Family::kLlama ? llama : open_vino;
  }
};
// All rows, a row that others are screened as before them.
const std::vector<ComparisonRow>& ComparisonRows();

struct RivalPlaces {
  std::vector<std::string> programs;  // folders that hold llama-bench and llama-batched-bench
  std::vector<std::string> models;    // the model in the file types that were found
  std::string open_vino;              // the OpenVINO benchmark; empty: not installed
};
// Looks in `dir`, `dir`/bin and `dir`/*/bin for programs; beside `model` for its other file types
// (its name's last part but .gguf replaced by Q4_0, Q4_1, Q8_0, F16). Errors: no program there.
Result<RivalPlaces> FindRivals(const std::string& dir, const std::string& model);

// Of the llama.cpp family: every program folder x file type x {flash attention off, on, on with
// keys and values in q8_0} (values are quantised only with flash attention). Of OpenVINO: the
// file itself and Q8_0, its own cache format.
std::vector<Contender> RivalContenders(const ComparisonRow& row, const RivalPlaces& places,
                                       uint32_t threads);
// The contender with another number of threads.
Contender WithThreads(Contender contender, uint32_t threads);
// kvrm on the same row: keys and values in f16 and in int8, as the peers have f16 and q8_0.
std::vector<Contender> OwnContenders(const ComparisonRow& row, const std::string& program,
                                     const std::string& model, uint32_t threads);

// "X.Q4_1.gguf" -> "Q4_1"
std::string FileType(const std::string& model);

// Tokens per second (median of the samples, where there are several) from a contender's output.
// Errors: output of another form.
Result<double> ParseTokensPerSecond(OutputKind kind, std::string_view output);

}  // namespace kvrm::cli
