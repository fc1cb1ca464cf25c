// What `bench decode` and `bench prefill` share: the opened model and the finished result.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/quiet_gate.h"
#include "bench/result.h"
#include "options/option_values.h"
#include "steps/step_driver.h"

namespace kvrm::cli {

struct StepBench {
  std::string model_path;
  std::unique_ptr<StepDriver> driver;
  // Fills in what the model, the machine and the gate say.
  BenchResult NewResult(const OptionValues& values, const QuietGate& gate) const;
};

struct StepBenchExtras {
  OpTimes* op_times = nullptr;  // see CpuExecutorConfig
  bool beyond_context = false;  // sequences may be longer than the model's context: times only
};
// Errors: those of loading; more tokens than the model's context.
Result<StepBench> OpenStepBench(const OptionValues& values, uint32_t max_slots,
                                uint32_t max_seq_tokens, const StepBenchExtras& extras = {});

// Prints as --json says.
void PrintResult(const OptionValues& values, const BenchResult& result);

// `count` token ids of the vocabulary from a fixed generator; `stream` tells sequences apart.
std::vector<TokenId> RandomTokens(uint32_t vocab, size_t count, uint64_t stream);

}  // namespace kvrm::cli
