#include "bench/replay/mode_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "bench/quiet_gate.h"
#include "bench/replay/counted_words.h"
#include "bench/replay/engine_backend.h"
#include "bench/table.h"

namespace kvrm::cli {
namespace {

uint64_t ReservedBytes(const Pager& pager) {
  uint64_t bytes = 0;
  for (uint32_t g = 0; g < pager.geometry().groups.size(); ++g) {
    bytes += pager.books(g).reserved_bytes;
  }
  return bytes;
}

// What the engine held at most, seen after each step.
class Most final : public StepObserver {
 public:
  explicit Most(const Pager& pager) : pager_(pager) {}
  void OnStep(const StepPlan&, const FrameView& frame, const StepResult&) override {
    reserved_bytes = std::max(reserved_bytes, ReservedBytes(pager_));
    running = std::max(running, frame.head->num_slots);
  }
  uint64_t reserved_bytes = 0;
  uint32_t running = 0;

 private:
  const Pager& pager_;
};

uint64_t MeanTokens(const LoadRun& run) {
  uint64_t tokens = 0, requests = 0;
  for (const RequestRecord& record : run.records) {
    tokens +=
        record.prompt_tokens.value_or(record.asked_prompt_tokens) + record.asked_output_tokens;
    ++requests;
  }
  return requests == 0 ? 0 : tokens / requests;
}

// A slot's run is as long as the context, whatever is asked of it.
uint64_t Holds(const Engine& engine, Mode mode, uint32_t ctx, uint64_t mean_tokens) {
  const uint64_t tokens = TraitsOf(mode).slot_runs ? ctx : std::max<uint64_t>(mean_tokens, 1);
  return engine.kv_tokens() / tokens;
}

void Describe(const OptionValues& values, const Session& session, const LoadJob& job,
              ModeRun& mode) {
  LoadReport& report = mode.report;
  report.workload = job.workload;
  report.url = "in process, mode " + mode.name;
  report.model = session.runtime->model->config().name;
  report.context_tokens = session.runtime->ctx;
  report.counted_words = true;
  report.figures = FiguresOf(mode.run, job.workload);
  report.dropped_turns = mode.run.dropped_turns;
  report.interrupted = mode.run.interrupted;
  DescribeSitting(values, report);
}

std::string Mib(uint64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20));
}

// Law I7: "2 of 900 gaps over the budget of 50.0 ms: decode 1 (3.2 ms over), stolen 1 (9.0 ms
// over)".
std::string GapsLine(const ModeRun& run) {
  if (run.max_itl_us == 0) return fmt::format("{}: no budget for gaps\n", run.name);
  uint64_t over = 0;
  std::string causes;
  for (uint32_t i = 0; i < kNumGapCauses; ++i) {
    over += run.gaps.over_budget[i];
    if (run.gaps.over_budget[i] == 0) continue;
    causes += fmt::format("{} {} {} ({:.1f} ms over)", causes.empty() ? ":" : ",",
                          GapCauseName(static_cast<GapCause>(i)), run.gaps.over_budget[i],
                          static_cast<double>(run.gaps.excess_us[i]) / 1e3);
  }
  return fmt::format("{}: {} of {} gaps over the budget of {:.1f} ms{}\n", run.name, over,
                     run.gaps.gaps, static_cast<double>(run.max_itl_us) / 1e3, causes);
}

boost::json::object GapsJson(const ModeRun& run) {
  boost::json::object over, excess_us;
  for (uint32_t i = 0; i < kNumGapCauses; ++i) {
    const char* cause = GapCauseName(static_cast<GapCause>(i));
    over[cause] = run.gaps.over_budget[i];
    excess_us[cause] = run.gaps.excess_us[i];
  }
  return {{"budget_us", run.max_itl_us},
          {"gaps", run.gaps.gaps},
          {"over_budget", std::move(over)},
          {"excess_us", std::move(excess_us)}};
}

// Law I3's goal, over all modes that ran.
std::string ControlVerdict(const std::vector<ModeRun>& runs) {
  std::string missed;
  for (const ModeRun& run : runs) {
    if (!run.refused.empty() || run.control_goal_met()) continue;
    missed += fmt::format("{}{} ({:.2f} %)", missed.empty() ? "" : ", ", run.name,
                          100 * run.control_share);
  }
  return fmt::format(
      "goal, control below {} % of the time of all steps (plan, edit, commit, move): "
      "{}\n",
      100 * kMostControlShare, missed.empty() ? "met" : "missed by " + missed);
}

std::string At(const Distribution& samples, uint32_t per_mille) {
  return samples.empty() ? "none" : fmt::format("{:.1f}", samples.PerMille(per_mille));
}

}  // namespace

Result<ModeRun> RunMode(const OptionValues& values, const RuntimeOptions& options,
                        const LoadJob& job) {
  ModeRun mode;
  mode.name = std::string(TraitsOf(options.mode).name) + (options.strict_shape ? " + strict" : "");
  auto opened =
      OpenSession(values, options, job.workload.chat ? ChatUse::kRequired : ChatUse::kNone);
  if (!opened.ok()) {
    mode.refused = opened.error().message;
    return mode;
  }
  const Session session = std::move(opened).value();
  Engine& engine = *session.runtime->engine;
  mode.slots = engine.config().max_slots;
  mode.ctx = session.runtime->ctx;
  mode.kv_bytes = session.runtime->kv_bytes;
  mode.reserved_ready_bytes = ReservedBytes(engine.pager());
  mode.resident_ready_bytes = engine.ResidentKvBytes();
  Most most(engine.pager());
  engine.SetObserver(&most);
  const PromptWords words = WordsCountedBy(*session.tokenizer);
  {
    const QuietGate gate;
    EngineBackend backend(session, static_cast<uint32_t>(job.workload.context));
    LoadHooks hooks;
    hooks.catch_interrupt = true;
    KVRM_ASSIGN_OR_RETURN(mode.run, RunLoad(job.workload, job.traces, backend, words, hooks));
    mode.report.others_percent = gate.OthersPercent();
  }
  const EngineMetrics metrics = engine.Metrics();
  mode.reserved_most_bytes = std::max(most.reserved_bytes, mode.reserved_ready_bytes);
  mode.most_running = most.running;
  mode.resident_end_bytes = engine.ResidentKvBytes();
  mode.preempted = metrics.sched.preempted;
  mode.control_share = metrics.control_share();
  mode.max_itl_us = engine.config().max_itl_us;
  mode.gaps = metrics.gaps;
  if (metrics.exec.rows > 0) {
    mode.rows_computed_per_row =
        static_cast<double>(metrics.exec.rows_computed) / static_cast<double>(metrics.exec.rows);
  }
  mode.mean_tokens = MeanTokens(mode.run);
  mode.holds = Holds(engine, options.mode, mode.ctx, mode.mean_tokens);
  Describe(values, session, job, mode);
  return mode;
}

std::string ModesText(const std::vector<ModeRun>& runs) {
  std::vector<std::vector<std::string>> memory = {
      {"MiB", "slots x ctx", "KV", "reserved, ready", "reserved, most", "resident, ready",
       "resident, end", "holds requests", "most at once", "preempted"}};
  std::vector<std::vector<std::string>> speed = {{"ms", "tok/s", "of the first", "TTFT p50",
                                                  "TTFT p99", "gap p50", "gap p99", "longest gap",
                                                  "done", "errors", "rows computed", "control"}};
  std::string refused;
  const ModeRun* first = nullptr;
  for (const ModeRun& run : runs) {
    if (!run.refused.empty()) {
      refused += run.name + ": " + run.refused + "\n";
      continue;
    }
    if (first == nullptr) first = &run;
    memory.push_back({run.name, fmt::format("{} x {}", run.slots, run.ctx), Mib(run.kv_bytes),
                      Mib(run.reserved_ready_bytes), Mib(run.reserved_most_bytes),
                      Mib(run.resident_ready_bytes), Mib(run.resident_end_bytes),
                      std::to_string(run.holds), std::to_string(run.most_running),
                      std::to_string(run.preempted)});
    const LoadFigures& figures = run.report.figures;
    const double base = first->report.figures.window_tokens_per_s;
    const RequestFigures& all = figures.all;
    speed.push_back(
        {run.name, fmt::format("{:.1f}", figures.window_tokens_per_s),
         base > 0 ? fmt::format("{:.3f}", figures.window_tokens_per_s / base) : "none",
         At(all.ttft_ms, 500), At(all.ttft_ms, 990), At(all.itl_ms, 500), At(all.itl_ms, 990),
         At(all.itl_ms, 1000), std::to_string(all.outcomes[static_cast<size_t>(Outcome::kDone)]),
         std::to_string(all.errors()), fmt::format("{:.2f}x", run.rows_computed_per_row),
         fmt::format("{:.2f} %", 100 * run.control_share)});
  }
  std::string text = MarkdownTable(memory) + "\n" + MarkdownTable(speed);
  if (first != nullptr) {
    text += fmt::format(
        "\nholds: requests of the mean length here, {} tokens, that the KV bytes are enough for\n"
        "null hypothesis: kvrm, dynamic and static-live read the same bytes and are equal in "
        "tok/s within noise\n",
        first->mean_tokens);
    text += ControlVerdict(runs);
    for (const ModeRun& run : runs) text += run.refused.empty() ? GapsLine(run) : "";
  }
  return refused.empty() ? text : text + "\nrefused:\n" + refused;
}

boost::json::object ModeJson(const ModeRun& run) {
  boost::json::object object{{"mode", run.name}};
  if (!run.refused.empty()) {
    object["refused"] = run.refused;
    return object;
  }
  object["slots"] = run.slots;
  object["ctx"] = run.ctx;
  object["kv_bytes"] = run.kv_bytes;
  object["reserved_ready_bytes"] = run.reserved_ready_bytes;
  object["reserved_most_bytes"] = run.reserved_most_bytes;
  object["resident_ready_bytes"] = run.resident_ready_bytes;
  object["resident_end_bytes"] = run.resident_end_bytes;
  object["mean_tokens"] = run.mean_tokens;
  object["holds_requests"] = run.holds;
  object["most_running"] = run.most_running;
  object["preempted"] = run.preempted;
  object["rows_computed_per_row"] = run.rows_computed_per_row;
  object["control_share"] = run.control_share;
  object["control_goal_met"] = run.control_goal_met();
  object["gaps"] = GapsJson(run);
  object["load"] = LoadJson(run.report);
  return object;
}

}  // namespace kvrm::cli
