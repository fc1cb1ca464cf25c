// The commands of the `kvrm` program, one folder each. A command gets its parsed options, writes to
// standard output, and returns an exit code: 0 done, 1 failed, 2 usage. What went wrong is one line
// on standard error.
#pragma once

#include <string>

#include "base/result.h"
#include "options/option_values.h"

namespace kvrm::cli {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

int RunServe(const OptionValues& values);
int RunChat(const OptionValues& values);
int RunGenerate(const OptionValues& values);
int RunBatch(const OptionValues& values);
int RunTokenize(const OptionValues& values);
int RunTemplate(const OptionValues& values);
int RunInspect(const OptionValues& values);
int RunModels(const OptionValues& values);
int RunEvalPpl(const OptionValues& values);
int RunBenchDecode(const OptionValues& values);
int RunBenchGrowth(const OptionValues& values);
int RunBenchOps(const OptionValues& values);
int RunBenchPrefill(const OptionValues& values);
int RunBenchVersus(const OptionValues& values);
int RunBenchHeart(const OptionValues& values);
int RunBenchServe(const OptionValues& values);
int RunBenchReplay(const OptionValues& values);
int RunBenchTail(const OptionValues& values);
int RunRecordShow(const OptionValues& values);
int RunRecordReplay(const OptionValues& values);

// Print "kvrm COMMAND: message" to standard error; return the exit code.
int Failed(const OptionValues& values, const Error& error);
int OutputFailed(const OptionValues& values);  // standard output cannot be written
// Writes `output` to standard output; returns the exit code.
int WriteOutput(const OptionValues& values, const std::string& output);
int UsageError(const OptionValues& values, const std::string& message);

}  // namespace kvrm::cli
