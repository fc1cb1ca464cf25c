// kvrm bench ops: where the time of a step goes, op by op, beside what each op must take at least.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/ceilings.h"
#include "bench/decode_batch.h"
#include "bench/machine.h"
#include "bench/quiet_gate.h"
#include "bench/step_bench.h"
#include "bench/step_work.h"
#include "kvrm/commands.h"

namespace kvrm::cli {
namespace {

// All ops of one kind and shape, over all layers, in one step.
struct OpGroup {
  std::string name;
  OpKind kind;
  Encoding encoding;
  uint32_t n = 0, k = 0;
  uint32_t calls = 0;
  uint32_t logits_calls = 0;  // of them, over the rows with logits alone
  double ms = 0;              // of a step
  double floor_ms = 0;        // 0: bounded by neither bytes nor operations worth naming
};

struct StepWork {
  uint32_t num_seqs = 1;
  uint32_t rows = 1;          // of the step
  double context_tokens = 0;  // mean, of a sequence
  bool prefill = false;
};

bool IsLinear(OpKind kind) {
  return kind == OpKind::kLinear || kind == OpKind::kGatedLinear || kind == OpKind::kHead;
}

const char* LinearName(const LayerWeights& layer, const OpTime& op) {
  const auto is = [&](const LinearWeights& weights) {
    return weights.n == op.n && weights.k == op.k;
  };
  if (is(layer.qkv)) return "QKV";
  if (is(layer.attn_out)) return "attention output";
  if (is(layer.gate_up)) return "gate + up";
  if (is(layer.down)) return "down";
  return "linear";
}

std::string NameOf(const Model& model, const OpTime& op) {
  std::string name = OpName(op.kind);
  if (!IsLinear(op.kind)) return name;
  if (op.kind != OpKind::kHead) name = LinearName(model.layers()[op.layer], op);
  return name + fmt::format(", {} x {}", op.n, op.k);
}

std::vector<OpGroup> Group(const Model& model, const OpTimes& times, uint32_t steps) {
  std::vector<OpGroup> groups;
  for (const OpTime& op : times) {
    const std::string name = NameOf(model, op);
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const OpGroup& g) { return g.name == name; });
    if (group == groups.end()) {
      groups.push_back(
          {.name = name, .kind = op.kind, .encoding = op.encoding, .n = op.n, .k = op.k});
      group = groups.end() - 1;
    }
    ++group->calls;
    group->logits_calls += op.rows == RowSet::kLogits ? 1 : 0;
    group->ms += 1e-6 * static_cast<double>(op.ns) / steps;
  }
  std::sort(groups.begin(), groups.end(),
            [](const OpGroup& a, const OpGroup& b) { return a.ms > b.ms; });
  return groups;
}

// What bounds an op: the bytes that it alone reads from memory (weights; keys and values), or its
// operations. Activations stay in the caches nearest to the cores and are not counted.
class Floors {
 public:
  Floors(const StepDriver& driver, const StepWork& work) : driver_(driver), work_(work) {
    const uint64_t step_bytes =
        DecodeStepBytes(driver.model(), driver.geometry(), work.num_seqs, work.context_tokens);
    bytes_per_s_ = MeasureReadBandwidth(step_bytes, driver.num_threads());
    peak_ = MeasureArithmeticPeak(driver.num_threads());
  }

  double Ms(const OpGroup& op) const {
    if (!IsLinear(op.kind) && op.kind != OpKind::kAttention) return 0;
    return 1e3 * ((op.calls - op.logits_calls) * CallSeconds(op, RowSet::kLive) +
                  op.logits_calls * CallSeconds(op, RowSet::kLogits));
  }
  double bytes_per_s() const { return bytes_per_s_; }

 private:
  double CallSeconds(const OpGroup& op, RowSet rows) const {
    const bool linear = IsLinear(op.kind);
    const double bytes =
        linear ? static_cast<double>(EncodedBytes(op.encoding, op.n, op.k)) : AttentionBytes();
    const double operations = linear ? LinearOperations(op, rows) : AttentionOperations(rows);
    const bool integer = linear && op.encoding != Encoding::kF32 && peak_.int8_ops_per_s > 0;
    const double per_s = integer ? peak_.int8_ops_per_s : peak_.float_ops_per_s;
    const double compute_s = per_s > 0 ? operations / per_s : 0;
    return std::max(bytes / bytes_per_s_, compute_s);
  }
  double AttentionBytes() const {
    return work_.num_seqs * work_.context_tokens *
           static_cast<double>(driver_.geometry().bytes_per_token()) /
           driver_.model().config().num_layers;
  }
  // One row of a sequence has logits.
  double NumRows(RowSet rows) const {
    return rows == RowSet::kLogits ? work_.num_seqs : work_.rows;
  }
  double LinearOperations(const OpGroup& op, RowSet rows) const {
    return 2.0 * NumRows(rows) * op.n * op.k;
  }
  // Each row sees the mean context, the last row of a prompt all of it, once for its scores and
  // once for its sum.
  double AttentionOperations(RowSet rows) const {
    const ModelConfig& config = driver_.model().config();
    const bool mean = work_.prefill && rows == RowSet::kLive;
    const double seen = mean ? (work_.rows + 1) / 2.0 : work_.context_tokens;
    return 4.0 * config.num_heads * config.head_dim * NumRows(rows) * seen;
  }

  const StepDriver& driver_;
  const StepWork work_;
  double bytes_per_s_ = 0;
  ArithmeticPeak peak_;
};

// Seconds of all repeats' steps; nothing when logits were not finite.
std::optional<double> RunSteps(const OptionValues& values, StepDriver& driver, OpTimes& times) {
  const auto forget = [&] {
    for (OpTime& op : times) op.ns = 0;
  };
  double seconds = 0;
  const auto prompt = static_cast<uint32_t>(values.Int("n-prompt"));
  std::optional<DecodeBatch> batch;
  if (prompt == 0) {
    batch.emplace(driver, DecodeSetting{.num_seqs = static_cast<uint32_t>(values.Int("slots")),
                                        .depth = static_cast<uint32_t>(values.Int("depth")),
                                        .steps = static_cast<uint32_t>(values.Int("n-gen"))});
  }
  for (int64_t repeat = -1; repeat < values.Int("repetitions"); ++repeat) {
    if (repeat == 0) forget();  // the first one only warms up
    std::optional<double> took;
    if (batch) {
      took = batch->TimeSteps();
    } else {
      const auto tokens = RandomTokens(driver.executor().info().vocab, prompt, 1);
      const SeqId seq = driver.OpenSequence();
      const auto begin = std::chrono::steady_clock::now();
      driver.Prefill(seq, tokens, /*want_last=*/true);
      took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      driver.CloseSequence(seq);
    }
    if (!took) return std::nullopt;
    if (repeat >= 0) seconds += *took;
  }
  return seconds;
}

void PrintText(const std::vector<OpGroup>& groups, double step_ms, const std::string& about) {
  std::vector<std::vector<std::string>> table = {
      {"op", "calls", "ms a step", "share of step", "floor, ms", "share of floor"}};
  double in_ops = 0;
  for (const OpGroup& op : groups) {
    in_ops += op.ms;
    table.push_back({op.name, std::to_string(op.calls), fmt::format("{:.3f}", op.ms),
                     fmt::format("{:.1f} %", 100 * op.ms / step_ms),
                     op.floor_ms > 0 ? fmt::format("{:.3f}", op.floor_ms) : "",
                     op.floor_ms > 0 ? fmt::format("{:.0f} %", 100 * op.floor_ms / op.ms) : ""});
  }
  table.push_back({"outside of ops", "", fmt::format("{:.3f}", step_ms - in_ops),
                   fmt::format("{:.1f} %", 100 * (step_ms - in_ops) / step_ms), "", ""});
  std::printf("%s\n%s\n", MarkdownTable(table).c_str(), about.c_str());
}

void PrintJson(const std::vector<OpGroup>& groups, double step_ms, const std::string& command,
               const StepDriver& driver, const Floors& floors,
               const std::optional<double>& others) {
  boost::json::array ops;
  for (const OpGroup& op : groups) {
    ops.push_back(boost::json::object{
        {"op", op.name}, {"calls", op.calls}, {"ms", op.ms}, {"floor_ms", op.floor_ms}});
  }
  boost::json::object json{{"schema", kResultSchema},
                           {"test", "ops"},
                           {"command", command},
                           {"encoding", driver.model().encoding_summary()},
                           {"threads", driver.num_threads()},
                           {"step_ms", step_ms},
                           {"bytes_per_s", floors.bytes_per_s()},
                           {"ops", std::move(ops)},
                           {"machine", ToJson(ThisMachine())},
                           {"date", DateUtc()}};
  if (others) json["others_percent"] = *others;
  std::printf("%s\n", boost::json::serialize(json).c_str());
}

}  // namespace

int RunBenchOps(const OptionValues& values) {
  const auto prompt = static_cast<uint32_t>(values.Int("n-prompt"));
  const auto num_seqs = prompt > 0 ? 1u : static_cast<uint32_t>(values.Int("slots"));
  const auto depth = static_cast<uint32_t>(values.Int("depth"));
  const auto steps = prompt > 0 ? 1u : static_cast<uint32_t>(values.Int("n-gen"));
  OpTimes times;
  const auto bench =
      OpenStepBench(values, num_seqs, prompt > 0 ? prompt : depth + steps, {.op_times = &times});
  if (!bench.ok()) return Failed(values, bench.error());
  StepDriver& driver = *bench->driver;
  const QuietGate gate;
  const std::optional<double> seconds = RunSteps(values, driver, times);
  if (!seconds) return Failed(values, InvalidInput("logits are not finite"));
  const std::optional<double> others = gate.OthersPercent();

  const auto num_steps = static_cast<uint32_t>(steps * values.Int("repetitions"));
  const double step_ms = 1e3 * *seconds / num_steps;
  std::vector<OpGroup> groups = Group(driver.model(), times, num_steps);
  StepWork work;
  work.prefill = prompt > 0;
  work.num_seqs = num_seqs;
  work.rows = prompt > 0 ? prompt : num_seqs;
  work.context_tokens = prompt > 0 ? prompt : depth + (steps + 1) / 2.0;
  const Floors floors(driver, work);
  for (OpGroup& op : groups) op.floor_ms = floors.Ms(op);
  std::string command =
      fmt::format("kvrm bench ops -t {} -r {}", driver.num_threads(), values.Int("repetitions"));
  command += prompt > 0 ? fmt::format(" -p {}", prompt)
                        : fmt::format(" -np {} -d {} -n {}", num_seqs, depth, steps);
  if (values.Flag("json")) {
    PrintJson(groups, step_ms, command, driver, floors, others);
    return kExitDone;
  }
  const Machine machine = ThisMachine();
  PrintText(
      groups, step_ms,
      fmt::format("{}: {:.3f} ms a step; {}, KV {}; {:.1f} GB/s at this working set; others "
                  "{}; {}, {} CPUs, {}, {}",
                  command, step_ms, driver.model().encoding_summary(), values.Text("kv"),
                  floors.bytes_per_s() / 1e9, others ? fmt::format("{:.1f} %", *others) : "unknown",
                  machine.cpu, machine.cpus, machine.compiler, DateUtc()));
  return kExitDone;
}

}  // namespace kvrm::cli
