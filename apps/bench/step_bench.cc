#include "bench/step_bench.h"

#include <cstdio>
#include <filesystem>
#include <random>

#include "base/resident_memory.h"
#include "model/gguf.h"
#include "session/model_path.h"
#include "session/progress_bar.h"
#include "session/session.h"

namespace kvrm::cli {

Result<StepBench> OpenStepBench(const OptionValues& values, uint32_t max_slots,
                                uint32_t max_seq_tokens, const StepBenchExtras& extras) {
  StepBench bench;
  KVRM_ASSIGN_OR_RETURN(bench.model_path, ModelPathOf(values));
  KVRM_ASSIGN_OR_RETURN(const auto file, GgufFile::Open(bench.model_path));
  StepOptions options;
  options.weights = WeightsOf(values);
  options.kv_format = KvFormatOf(values);
  options.simd = SimdOf(values);
  options.num_threads = static_cast<uint32_t>(values.Int("threads"));
  options.max_slots = max_slots;
  options.max_seq_tokens = max_seq_tokens;
  options.op_times = extras.op_times;
  options.progress = ProgressBar("loading");
  KVRM_ASSIGN_OR_RETURN(bench.driver, StepDriver::Open(*file, options));
  const uint32_t max_context = bench.driver->model().config().max_context;
  if (max_seq_tokens > max_context && !extras.beyond_context) {
    return InvalidInput(std::to_string(max_seq_tokens) +
                        " tokens of a sequence; the model's context is " +
                        std::to_string(max_context));
  }
  return bench;
}

BenchResult StepBench::NewResult(const OptionValues& values, const QuietGate& gate) const {
  BenchResult result;
  result.model = std::filesystem::path(model_path).filename().string();
  result.encoding = driver->model().encoding_summary() + ", KV " + values.Text("kv");
  result.executor = driver->executor().info().name;
  result.threads = driver->num_threads();
  result.peak_resident_bytes = PeakResidentBytes();
  result.others_percent = gate.OthersPercent();
  result.max_others_percent = values.Float("max-others");
  result.date = DateUtc();
  return result;
}

void PrintResult(const OptionValues& values, const BenchResult& result) {
  const Machine machine = ThisMachine();
  if (values.Flag("json")) {
    std::printf("%s\n", boost::json::serialize(ToJson(result, machine)).c_str());
  } else {
    std::printf("%s", ToText({result}, machine).c_str());
  }
}

std::vector<TokenId> RandomTokens(uint32_t vocab, size_t count, uint64_t stream) {
  // mt19937_64 is fixed by the standard; distributions are not, so none is used.
  std::mt19937_64 generator(stream + 1);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(generator() % vocab);
  return tokens;
}

}  // namespace kvrm::cli
