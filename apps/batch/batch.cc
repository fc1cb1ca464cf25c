// kvrm batch: an OpenAI batch file answered offline, in one process.
#include <cstdio>

#include "batch/batch_run.h"
#include "kvrm/commands.h"
#include "serve/request_defaults.h"
#include "session/interrupt.h"
#include "session/model_path.h"
#include "session/progress_bar.h"
#include "session/session.h"

namespace kvrm::cli {
namespace {

// Twice what runs at once, so that a slot which falls free finds work that is tokenized.
uint32_t WindowOf(const Engine& engine) { return 2 * engine.config().max_slots + 16; }

std::string ModelIdOf(const OptionValues& values, const std::string& model_path) {
  const std::string& alias = values.Text("alias");
  return alias.empty() ? ModelNameOf(model_path) : alias;
}

void PrintSummary(const BatchCounts& counts) {
  std::fprintf(stderr, "%llu answered, %llu of them with an error; %llu were answered before\n",
               static_cast<unsigned long long>(counts.answered),
               static_cast<unsigned long long>(counts.errors),
               static_cast<unsigned long long>(counts.skipped));
}

}  // namespace

int RunBatch(const OptionValues& values) {
  if (values.positionals().size() != 2) {
    return UsageError(values, "needs two files: requests and answers, IN.jsonl OUT.jsonl");
  }
  if (const auto usable = RequestDefaultsOf(values); !usable.ok()) {
    return UsageError(values, usable.error().message);
  }
  const std::string& in = values.positionals()[0];
  const std::string& out = values.positionals()[1];
  auto input = BatchInput::Open(in);
  if (!input.ok()) return Failed(values, input.error());
  auto output = BatchOutput::Open(out, in);
  if (!output.ok()) return Failed(values, output.error());
  const auto session = OpenSession(values, ChatUse::kIfAny);
  if (!session.ok()) return Failed(values, session.error());
  CatchInterrupts();
  Engine& engine = *session->runtime->engine;
  bool stopped = false;
  const auto defaults = RequestDefaultsOf(values, SamplingBy(session->defaults));
  if (!defaults.ok()) return Failed(values, defaults.error());
  BatchRun run(engine, *session->tokenizer, session->chat_template.get(),
               ModelIdOf(values, session->model_path), *defaults, WindowOf(engine));
  const auto counts = run.Run(
      *input, *output, [&stopped] { return stopped = stopped || TakeInterrupt(); },
      ProgressBar("answering"));
  if (!counts.ok()) return Failed(values, counts.error());
  PrintSummary(*counts);
  if (stopped) return Failed(values, Unavailable("interrupted; the same command goes on with it"));
  return kExitDone;
}

}  // namespace kvrm::cli
