#include "server/metrics_text.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <sstream>
#include <vector>

namespace kvrm {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr double kUsPerSecond = 1e6;

class Families {
 public:
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
  std::string Text() const {
    std::ostringstream out;
    prometheus::TextSerializer().Serialize(out, list_);
    return out.str();
  }

 private:
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
  out.Counter("kvrm_outbox_overflow_total", "Streams cut because their reader stalled",
              Number(http.outbox_overflows));
  auto& responses = out.Family(MetricType::Counter, "kvrm_http_responses_total", "Responses sent");
  for (const auto& [key, count] : http.responses) {
    Families::Add(responses, {{"route", key.first}, {"status", std::to_string(key.second)}},
                  Number(count));
  }
}

void AddService(Families& out, const Service& service) {
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
  out.Counter("kvrm_requests_failed_total", "Answers that ended with an error", Number(c.failed));
  out.Counter("kvrm_requests_abandoned_total", "Answers whose client went away",
              Number(c.abandoned));
  out.Counter("kvrm_requests_refused_total", "Requests refused because the queue was full",
              Number(c.refused_queue_full));
  out.Counter("kvrm_requests_timed_out_total", "Requests whose own timeout passed",
              Number(c.timed_out));
  out.Gauge("kvrm_requests_open", "Answers under way", Number(service.num_open()));
  out.Gauge("kvrm_engine_stalled", "1 when work is open and no step is made",
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

void AddEngine(Families& out, const Engine& engine) {
  const EngineMetrics m = engine.Metrics();
  out.Gauge("kvrm_running", "Sequences that hold a slot", m.running);
  out.Gauge("kvrm_queued", "Sequences that wait for a slot", m.queued);
  out.Counter("kvrm_prompt_tokens_total", "Prompt tokens computed", Number(m.prompt_tokens));
  out.Counter("kvrm_output_tokens_total", "Tokens produced", Number(m.output_tokens));
  out.Counter("kvrm_steps_total", "Engine steps", Number(m.steps));
  out.Counter("kvrm_commits_total", "Commits, one each step", Number(m.commits));
  out.Counter("kvrm_preemptions_total", "Sequences preempted", Number(m.sched.preempted));
  out.Counter("kvrm_deferred_total", "Reservations put off for lack of room",
              Number(m.pager.deferred));
  auto& pages = out.Family(MetricType::Gauge, "kvrm_kv_pages", "KV pages, by state");
  const PagerBooks& books = m.books;
  const std::pair<const char*, uint64_t> states[] = {
      {"free", books.free}, {"cached", books.cached}, {"in_use", books.in_use},
      {"soft", books.soft}, {"limbo", books.limbo},   {"in_flight", books.in_flight}};
  for (const auto& [state, count] : states) Families::Add(pages, {{"state", state}}, Number(count));
  out.Gauge("kvrm_kv_reserved_bytes", "KV bytes in use, soft, cached or in limbo",
            Number(books.reserved_bytes));
  out.Gauge("kvrm_kv_tokens_capacity", "Token places of the pool", Number(engine.kv_tokens()));
  out.Gauge("kvrm_read_runs", "Runs of adjacent pages of all open sequences",
            Number(m.pager.read_runs));
  AddCopies(out, m.copies);
  auto& seconds =
      out.Family(MetricType::Counter, "kvrm_step_seconds_total", "Time spent in steps, by phase");
  const std::pair<const char*, int64_t> phases[] = {{"plan", m.plan_us},
                                                    {"edit_commit", m.edit_commit_us},
                                                    {"run", m.run_us},
                                                    {"sample", m.sample_us},
                                                    {"all", m.step_us}};
  for (const auto& [phase, us] : phases) Families::Add(seconds, {{"phase", phase}}, Seconds(us));
  out.Gauge("kvrm_longest_gap_seconds", "Longest gap between two tokens of a stream",
            Seconds(m.longest_gap_us));
}

}  // namespace

std::string MetricsText(const HttpCounters& http, ServerPhase phase, const Service* service) {
  Families out;
  AddHttp(out, http, phase);
  if (service != nullptr) {
    AddService(out, *service);
    AddEngine(out, service->engine());
  }
  return out.Text();
}

}  // namespace kvrm
