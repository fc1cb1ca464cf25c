// One way to run one row of a comparison: a command and how its figure is read from its output.
// kvrm itself is a contender like the rest, run as a process of its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvrm::cli {

enum class OutputKind : uint8_t { kKvrm, kLlamaBench, kLlamaBatchedBench };

struct Contender {
  std::string name;  // "Q4_0, fa on, KV f16 (native)"
  std::vector<std::string> command;
  OutputKind kind;
  std::string model;     // the file it reads
  bool kv_q8_0 = false;  // its keys and values take 34 bytes for 32 values, not 64
};

// What is compared: decode of `num_seqs` distinct sequences at `depth`, or the prefill of one
// prompt.
struct ComparisonRow {
  std::string name;
  bool prefill = false;
  uint32_t num_seqs = 1;
  uint32_t depth = 0;   // decode: tokens before the timed steps
  uint32_t tokens = 0;  // timed: prompt tokens, or steps
  double goal = 1;      // at least so many times the best peer
};
// The rows of the project's first speed goals.
std::vector<ComparisonRow> ComparisonRows();

struct RivalPlaces {
  std::vector<std::string> programs;  // folders that hold llama-bench and llama-batched-bench
  std::vector<std::string> models;    // the model in the file types that were found
};
// Looks in `dir`, `dir`/bin and `dir`/*/bin for programs; beside `model` for its other file types
// (its name's last part but .gguf replaced by Q4_0, Q4_1, Q8_0, F16). Errors: no program there.
Result<RivalPlaces> FindRivals(const std::string& dir, const std::string& model);

// Every program folder x file type x {flash attention off, on, on with keys and values in q8_0}
// (llama.cpp quantises values only with flash attention).
std::vector<Contender> RivalContenders(const ComparisonRow& row, const RivalPlaces& places,
                                       uint32_t threads);
Contender OwnContender(const ComparisonRow& row, const std::string& program,
                       const std::string& model, uint32_t threads);

// Tokens per second (median of the samples, where there are several) from a contender's output.
// Errors: output of another form.
Result<double> ParseTokensPerSecond(OutputKind kind, std::string_view output);

}  // namespace kvrm::cli
