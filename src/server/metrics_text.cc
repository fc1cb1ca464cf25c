#include "server/metrics_text.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <vector>

namespace kvrm {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr double kUsPerSecond = 1e6;
constexpr int64_t kLeastLatencyUs = 500;  // the first bucket of what users wait for

class Families {
 public:
  // A label on every metric of a lossy view, so that no figure of one is taken for another's.
  explicit Families(std::string lossy_view) : lossy_view_(std::move(lossy_view)) {}

  MetricFamily& Family(MetricType type, const char* name, const char* help) {
    MetricFamily family;
    family.name = name;
    family.help = help;
    family.type = type;
    list_.push_back(std::move(family));
    return list_.back();
  }
  void Counter(const char* name, const char* help, double value) {
    Add(Family(MetricType::Counter, name, help), {}, value);
  }
  void Gauge(const char* name, const char* help, double value) {
    Add(Family(MetricType::Gauge, name, help), {}, value);
  }
  static void Add(MetricFamily& family, std::vector<ClientMetric::Label> labels, double value) {
    ClientMetric metric;
    metric.label = std::move(labels);
    (family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
    family.metric.push_back(std::move(metric));
  }
  // Buckets whose bound is below `least_us` are left out: what they hold is in the next.
  static void AddHistogram(MetricFamily& family, std::vector<ClientMetric::Label> labels,
                           const HistogramCounts& counts, int64_t least_us) {
    ClientMetric metric;
    metric.label = std::move(labels);
    uint64_t cumulative = 0;
    for (size_t i = 0; i < counts.buckets.size(); ++i) {
      cumulative += counts.buckets[i];
      const bool last = i == kHistogramBoundsUs.size();
      if (!last && kHistogramBoundsUs[i] < least_us) continue;
      const double bound = last ? std::numeric_limits<double>::infinity()
                                : static_cast<double>(kHistogramBoundsUs[i]) / kUsPerSecond;
      metric.histogram.bucket.push_back({cumulative, bound});
    }
    metric.histogram.sample_count = cumulative;
    metric.histogram.sample_sum = static_cast<double>(counts.sum_us) / kUsPerSecond;
    family.metric.push_back(std::move(metric));
  }
  void Latency(const char* name, const char* help, const Histogram& histogram) {
    AddHistogram(Family(MetricType::Histogram, name, help), {}, histogram.Load(), kLeastLatencyUs);
  }
  std::string Text() {
    std::ostringstream out;
    for (MetricFamily& family : list_) {
      for (ClientMetric& metric : family.metric) {
        if (!lossy_view_.empty()) metric.label.push_back({"view", lossy_view_});
      }
    }
    prometheus::TextSerializer().Serialize(out, list_);
    return out.str();
  }

 private:
  const std::string lossy_view_;
  std::vector<MetricFamily> list_;
};

double Number(uint64_t value) { return static_cast<double>(value); }
double Seconds(int64_t us) { return static_cast<double>(us) / kUsPerSecond; }

void AddHttp(Families& out, const HttpCounters& http, ServerPhase phase) {
  out.Gauge("kvrm_ready", "1 when requests are taken", phase == ServerPhase::kReady ? 1 : 0);
  out.Gauge("kvrm_http_connections", "Open connections", Number(http.connections));
  out.Counter("kvrm_http_connections_accepted_total", "Connections accepted",
              Number(http.connections_accepted));
  out.Counter("kvrm_http_connections_refused_total", "Connections refused over the limit",
              Number(http.connections_refused));
  out.Counter("kvrm_client_gone_total", "Clients that hung up before their answer was complete",
              Number(http.client_gone));
  auto& outbox = out.Family(MetricType::Counter, "kvrm_outbox_overflow_total",
                            "Streams cut because their reader stalled, by the bound that it met");
  Families::Add(outbox, {{"bound", "bytes"}}, Number(http.outbox_overflows));
  Families::Add(outbox, {{"bound", "age"}}, Number(http.outbox_too_old));
  auto& responses = out.Family(MetricType::Counter, "kvrm_http_responses_total", "Responses sent");
  for (const auto& [key, count] : http.responses) {
    Families::Add(responses, {{"route", key.first}, {"status", std::to_string(key.second)}},
                  Number(count));
  }
}

void AddService(Families& out, const Service& service, const HttpCounters& http) {
  const ServiceCounters& c = service.counters();
  auto& requests = out.Family(MetricType::Counter, "kvrm_requests_total", "Requests started");
  constexpr const char* kApis[kNumApis] = {"chat", "completions", "native", "responses",
                                           "messages"};
  for (uint32_t i = 0; i < kNumApis; ++i) {
    Families::Add(requests, {{"api", kApis[i]}}, Number(c.requests[i]));
  }
  auto& finished =
      out.Family(MetricType::Counter, "kvrm_choices_finished_total", "Choices finished, by reason");
  Families::Add(finished, {{"reason", "stop"}}, Number(c.finished_stop));
  Families::Add(finished, {{"reason", "length"}}, Number(c.finished_length));
  Families::Add(finished, {{"reason", "timeout"}}, Number(c.finished_timeout));
  out.Latency("kvrm_time_to_first_token_seconds",
              "Request received to its first token, of those that got one", c.first_token);
  out.Latency("kvrm_request_seconds", "Request received to its answer complete", c.whole);
  out.Counter("kvrm_requests_failed_total", "Answers that ended with an error", Number(c.failed));
  out.Counter("kvrm_requests_abandoned_total", "Answers whose client went away",
              Number(c.abandoned));
  auto& refused = out.Family(MetricType::Counter, "kvrm_requests_refused_total",
                             "Requests refused though they were valid, by reason");
  Families::Add(refused, {{"reason", "queue_full"}}, Number(c.refused_queue_full));
  Families::Add(refused, {{"reason", "key_limit"}}, Number(http.refused_key_limit));
  Families::Add(refused, {{"reason", "no_key"}}, Number(http.refused_no_key));
  Families::Add(refused, {{"reason", "not_ready"}}, Number(http.refused_not_ready));
  Families::Add(refused, {{"reason", "no_memory"}}, Number(http.refused_no_memory));
  out.Counter("kvrm_requests_timed_out_total", "Requests whose own timeout passed",
              Number(c.timed_out));
  out.Gauge("kvrm_requests_open", "Answers under way", Number(service.num_open()));
  out.Gauge("kvrm_engine_stalled", "1 when work is open and nothing of it is computed",
            service.stalled() ? 1 : 0);
}

// Copies, by cause. Reads in place are another family, never added to these.
void AddCopies(Families& out, const CopyCounters& copies) {
  constexpr const char* kCauses[kNumCopyCauses] = {"cow",  "stage",  "publish",
                                                   "park", "resume", "compact"};
  const auto add = [&](const char* name, const char* help, const uint64_t* by_cause) {
    auto& family = out.Family(MetricType::Counter, name, help);
    for (uint32_t cause = 0; cause < kNumCopyCauses; ++cause) {
      Families::Add(family, {{"cause", kCauses[cause]}}, Number(by_cause[cause]));
    }
  };
  add("kvrm_copy_pieces_total", "Pieces to copy, before neighbours were merged",
      copies.copy_pieces);
  add("kvrm_copies_total", "Copies made, each one contiguous piece", copies.copies);
  add("kvrm_copy_bytes_total", "Bytes copied", copies.copy_bytes);
}

void AddPages(Families& out, const Service& service, const EngineMetrics& m) {
  const Engine& engine = service.engine();
  auto& pages = out.Family(MetricType::Gauge, "kvrm_kv_pages", "KV pages, by state");
  const PagerBooks& books = m.books;
  const std::pair<const char*, uint64_t> states[] = {
      {"free", books.free}, {"cached", books.cached}, {"in_use", books.in_use},
      {"soft", books.soft}, {"limbo", books.limbo},   {"in_flight", books.in_flight}};
  for (const auto& [state, count] : states) Families::Add(pages, {{"state", state}}, Number(count));
  out.Gauge("kvrm_kv_reserved_bytes", "KV bytes in use, soft, cached or in limbo",
            Number(books.reserved_bytes));
  out.Gauge("kvrm_kv_resident_bytes", "KV bytes in memory, as the system counts",
            Number(service.ResidentKvBytes()));
  out.Gauge("kvrm_kv_superblock_bytes", "KV bytes taken from the system",
            Number(books.superblock_bytes));
  out.Gauge(
      "kvrm_kv_free_resident_bytes", "KV bytes taken from the system and not reserved",
      Number(books.superblock_bytes - std::min(books.superblock_bytes, books.reserved_bytes)));
  out.Counter("kvrm_kv_superblocks_populated_total", "Superblocks taken from the system",
              Number(m.pager.superblocks_populated));
  out.Counter("kvrm_kv_superblocks_given_back_total", "Superblocks given back to the system",
              Number(m.pager.superblocks_given_back));
  out.Gauge("kvrm_kv_tokens_capacity", "Token places of the pool", Number(engine.kv_tokens()));
  out.Gauge("kvrm_read_runs", "Runs of adjacent pages of all open sequences",
            Number(m.pager.read_runs));
  out.Gauge("kvrm_read_run_bytes", "Bytes that the last step reads in runs, for one layer",
            Number(m.reads.bytes));
  out.Counter("kvrm_prefix_hit_tokens_total", "Prompt tokens found in the prefix cache",
              Number(m.pager.prefix_hit_tokens));
  out.Counter("kvrm_prefix_miss_tokens_total", "Prompt tokens looked up and not found",
              Number(m.pager.prefix_miss_tokens));
  out.Counter("kvrm_prefix_pages_evicted_total", "Cached pages that gave way",
              Number(m.pager.prefix_pages_evicted));
}

// Two places where text is held up: the engine's sinks, and the connection behind them.
GapCounters AllGaps(const EngineMetrics& m, const HttpCounters& http) {
  constexpr auto kOutput = static_cast<uint32_t>(GapCause::kOutput);
  GapCounters gaps = m.gaps;
  gaps.over_budget[kOutput] += http.late_gaps;
  gaps.excess_us[kOutput] += http.late_gap_us;
  return gaps;
}

void AddGaps(Families& out, const EngineMetrics& m, const HttpCounters& http) {
  const GapCounters counted = AllGaps(m, http);
  auto& gaps = out.Family(MetricType::Counter, "kvrm_gaps_over_budget_total",
                          "Gaps between two tokens of a stream over --max-itl-ms, by cause");
  auto& excess = out.Family(MetricType::Counter, "kvrm_gap_excess_seconds_total",
                            "What those gaps were over it, by cause");
  for (uint32_t i = 0; i < kNumGapCauses; ++i) {
    const char* cause = GapCauseName(static_cast<GapCause>(i));
    Families::Add(gaps, {{"cause", cause}}, Number(counted.over_budget[i]));
    Families::Add(excess, {{"cause", cause}}, Seconds(counted.excess_us[i]));
  }
  out.Gauge("kvrm_longest_gap_seconds", "Longest gap between two tokens of a stream",
            Seconds(m.longest_gap_us));
}

void AddSteps(Families& out, const Engine& engine, const EngineMetrics& m) {
  out.Counter("kvrm_steps_total", "Engine steps", Number(m.steps));
  out.Counter("kvrm_commits_total", "Commits, one each step", Number(m.commits));
  out.Counter("kvrm_preemptions_total", "Sequences preempted", Number(m.sched.preempted));
  out.Counter("kvrm_deferred_total", "Reservations put off for lack of room",
              Number(m.pager.deferred));
  auto& seconds =
      out.Family(MetricType::Counter, "kvrm_step_seconds_total", "Time spent in steps, by phase");
  const std::pair<const char*, int64_t> phases[] = {
      {"plan", m.plan_us}, {"edit_commit", m.edit_commit_us}, {"move", m.move_us},
      {"run", m.run_us},   {"sample", m.sample_us},           {"output", m.output_us},
      {"all", m.step_us}};
  for (const auto& [phase, us] : phases) Families::Add(seconds, {{"phase", phase}}, Seconds(us));
  out.Gauge("kvrm_control_share", "Plan, edit, commit and move as a part of all steps' time",
            m.control_share());
  const EngineLatencies& l = engine.latencies();
  constexpr const char* kPhases[kNumStepPhases] = {"plan", "edit_commit", "move",
                                                   "run",  "sample",      "output"};
  auto& histogram =
      out.Family(MetricType::Histogram, "kvrm_step_phase_seconds", "Time of each step, by phase");
  for (uint32_t i = 0; i < kNumStepPhases; ++i) {
    Families::AddHistogram(histogram, {{"phase", kPhases[i]}}, l.phases[i].Load(), 0);
  }
  Families::AddHistogram(histogram, {{"phase", "all"}}, l.step.Load(), 0);
  out.Latency("kvrm_queue_seconds", "Submission to admission", l.queued);
  out.Latency("kvrm_prefill_seconds", "Admission to first token", l.prefill);
  out.Latency("kvrm_inter_token_seconds", "Gap between two tokens of a stream", l.gap);
  out.Latency("kvrm_request_longest_gap_seconds", "Longest gap of each request", l.longest_gap);
}

// What routers written for vLLM balance by. Both names of the usage: older ones read the second.
void AddVllmNames(Families& out, const Service& service, const EngineMetrics& m) {
  const auto gauge = [&](const char* name, const char* help, double value) {
    Families::Add(out.Family(MetricType::Gauge, name, help),
                  {{"model_name", service.config().model}}, value);
  };
  gauge("vllm:num_requests_running", "As kvrm_running", m.running);
  gauge("vllm:num_requests_waiting", "As kvrm_queued", m.queued);
  const double used = Number(m.books.in_use + m.books.soft - 1) * service.engine().kv_page_tokens();
  const double usage = std::clamp(used / Number(service.engine().kv_tokens()), 0.0, 1.0);
  for (const char* name : {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"}) {
    gauge(name, "Part of the KV pool that sequences hold, 0 to 1", usage);
  }
}

void AddEngine(Families& out, const Service& service, const HttpCounters& http) {
  const Engine& engine = service.engine();
  const EngineMetrics m = engine.Metrics();
  out.Gauge("kvrm_running", "Sequences that hold a slot", m.running);
  out.Gauge("kvrm_queued", "Sequences that wait for a slot", m.queued);
  out.Gauge("kvrm_view_lossy", "1 when answers see less than the model asks for",
            engine.config().lossy_view.empty() ? 0 : 1);
  out.Gauge("kvrm_slots", "Sequences that can run at once", engine.config().max_slots);
  out.Counter("kvrm_prompt_tokens_total", "Prompt tokens computed", Number(m.prompt_tokens));
  out.Counter("kvrm_output_tokens_total", "Tokens produced", Number(m.output_tokens));
  AddSteps(out, engine, m);
  AddPages(out, service, m);
  AddGaps(out, m, http);
  AddCopies(out, m.copies);
  AddVllmNames(out, service, m);
}

}  // namespace

std::string MetricsText(const HttpCounters& http, ServerPhase phase, const Service* service) {
  Families out(service == nullptr ? "" : service->engine().config().lossy_view);
  AddHttp(out, http, phase);
  if (service != nullptr) {
    AddService(out, *service, http);
    AddEngine(out, *service, http);
  }
  return out.Text();
}

}  // namespace kvrm
