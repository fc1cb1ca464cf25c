// kvrm record replay: the same events again, and whether the same commits and tokens come of them.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "engine/record_replay.h"
#include "engine/record_runtime.h"
#include "kvrm/commands.h"
#include "record/record.h"
#include "session/model_path.h"
#include "session/progress_bar.h"
#include "session/session.h"

namespace kvrm::cli {
namespace {

// -m, or else what the record says.
Result<std::string> ModelOf(const OptionValues& values, const RecordHeader& header) {
  const bool named = values.Source("model") != ValueSource::kDefault ||
                     values.Source("hf-repo") != ValueSource::kDefault;
  if (named) return ModelPathOf(values);
  const std::string name = TextLine(header, "model");
  auto found = FindModel(name);
  if (!found.ok()) {
    return Error{found.error().kind, "the record was taken from model '" + name +
                                         "', give its file with -m: " + found.error().message};
  }
  return found;
}

void WarnOfOtherProgram(const RecordHeader& header) {
  const std::string recorded = TextLine(header, "program");
  if (recorded == "kvrm " KVRM_VERSION) return;
  std::fprintf(stderr, "the record is %s's, this is kvrm %s: they need not agree\n",
               recorded.c_str(), KVRM_VERSION);
}

void Print(const OptionValues& values, const RecordReplayReport& report) {
  if (values.Flag("json")) {
    fmt::print(
        "{{\"same\":{},\"steps\":{},\"commits\":{},\"requests\":{},\"tokens\":{},"
        "\"chain_hash\":\"{:016x}\",\"closed\":{},\"diverged_step\":{}}}\n",
        !report.divergence, report.steps, report.commits, report.requests, report.tokens,
        report.chain_hash, report.closed,
        report.divergence ? std::to_string(report.divergence->step) : "null");
    return;
  }
  fmt::print("{} requests, {} steps, {} commits, {} tokens: {}\n", report.requests, report.steps,
             report.commits, report.tokens, report.divergence ? "NOT the same" : "all as recorded");
  fmt::print("chain hash {:016x}{}\n", report.chain_hash,
             report.closed || report.divergence ? "" : "; the record was not closed");
}

}  // namespace

int RunRecordReplay(const OptionValues& values) {
  const auto reader = OpenNamedRecord(values);
  if (!reader.ok()) return Failed(values, reader.error());
  const RecordHeader& header = (*reader)->header();
  WarnOfOtherProgram(header);
  const auto model = ModelOf(values, header);
  if (!model.ok()) return Failed(values, model.error());
  auto options = OptionsForReplay(header, *model);
  if (!options.ok()) return Failed(values, options.error());
  ReplayClock clock;
  options->clock = &clock;
  options->num_threads = static_cast<uint32_t>(values.Int("threads"));
  options->simd = SimdOf(values);
  options->progress = ProgressBar("loading the model");
  if (const Status taken = TakeFolderTokenizer({}, &*options); !taken.ok()) {
    return Failed(values, taken.error());
  }
  const auto runtime = LoadRuntime(*options);
  if (!runtime.ok()) return Failed(values, runtime.error());
  std::fprintf(stderr, "%s\n", Banner(**runtime, *model).c_str());
  const auto report = ReplayRecord(**reader, *(*runtime)->engine, clock);
  if (!report.ok()) return Failed(values, report.error());
  Print(values, *report);
  if (!report->divergence) return kExitDone;
  return Failed(values, InvalidInput("step " + std::to_string(report->divergence->step) + ": " +
                                     report->divergence->what));
}

}  // namespace kvrm::cli
