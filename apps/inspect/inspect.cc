// kvrm inspect: what a model file holds and what memory it needs, without loading its weights; or
// what a frame trace tells.
#include <cstdio>
#include <string>

#include "inspect/trace_inspect.h"
#include "kvrm/commands.h"
#include "model/describe.h"
#include "model/gguf.h"
#include "session/model_path.h"

namespace kvrm::cli {

int RunInspect(const OptionValues& values) {
  const bool has_file = !values.positionals().empty();
  if (has_file && IsFrameTrace(values.positionals()[0])) {
    return InspectTrace(values, values.positionals()[0]);
  }
  for (const char* name : {"epoch", "replay", "diff"}) {
    if (values.Source(name) == ValueSource::kDefault) continue;
    return UsageError(values, "--" + std::string(name) + " needs a frame trace, FILE.kvft");
  }
  const auto path = has_file ? FindModel(values.positionals()[0]) : ModelPathOf(values);
  if (!path.ok()) return Failed(values, path.error());
  const auto file = GgufFile::Open(*path);
  if (!file.ok()) return Failed(values, file.error());
  std::string text = values.Flag("json") ? DescribeJson(**file) : DescribeText(**file);
  if (!text.ends_with('\n')) text += '\n';
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  return written ? kExitDone : OutputFailed(values);
}

}  // namespace kvrm::cli
