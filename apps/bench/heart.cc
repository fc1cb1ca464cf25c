// kvrm bench heart: pager and frame alone, against their goals.
#include "bench/heart.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/check.h"
#include "bench/heart_report.h"
#include "bench/quiet_gate.h"
#include "kvrm/commands.h"

namespace kvrm::cli {

int RunBenchHeart(const OptionValues& values) {
  const HeartSizes sizes = SizesFor(values.Flag("quick"), KVRM_CHECK_TIER);
  const std::string& part = values.Text("part");
  const auto wanted = [&](const char* name) { return part == "all" || part == name; };
  HeartReport report;
  report.sizes = sizes.name;
  report.check_tier = KVRM_CHECK_TIER;
  report.command =
      fmt::format("kvrm bench heart --part {}{}", part, values.Flag("quick") ? " --quick" : "");
  report.max_others_percent = values.Float("max-others");

  const QuietGate gate;
  if (wanted("verbs")) report.verbs = MeasureVerbs(sizes);
  if (wanted("steps")) report.steps = MeasureSteps(sizes);
  if (wanted("match")) report.match = MeasureMatch(sizes);
  if (wanted("churn")) report.churn = MeasureChurn(sizes);
  report.others_percent = gate.OthersPercent();
  report.date = DateUtc();

  const Machine machine = ThisMachine();
  const std::string text = values.Flag("json")
                               ? boost::json::serialize(ToJson(report, machine)) + "\n"
                               : ToText(report, machine);
  if (std::fputs(text.c_str(), stdout) < 0) return OutputFailed(values);
  return kExitDone;
}

}  // namespace kvrm::cli
